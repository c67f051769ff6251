"""Check a collection without changing it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from chunkproof.clients.ports import Point
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    InvalidParameterError,
    UnsupportedDistanceError,
)
from chunkproof.models import CollectionInfo, SearchQuery
from chunkproof.retrieval.collection import collection_info, find_mapping
from chunkproof.retrieval.pages import read_first
from chunkproof.retrieval.payload import PayloadMap, lies_in_json_string
from chunkproof.retrieval.search import search
from chunkproof.retrieval.services import SAMPLE_POINTS, Services
from chunkproof.retrieval.text_fields import TextField, describe_texts, propose_text_field
from chunkproof.suite.cases import Suite
from chunkproof_cli.doctor.content import check_copies, check_hashes
from chunkproof_cli.doctor.result import CheckResult, Level
from chunkproof_cli.doctor.tuning import (
    check_quantization,
    check_room,
    check_sparse_vectors,
    check_suite_filters,
    check_vector_index,
)
from chunkproof_cli.doctor.vectors import check_vectors

SAMPLE_ROWS = 3
# A field with texts so many times longer, or so much more varied, is more likely the text.
MUCH_LONGER = 5
FILTERED_FIELDS = ("url", "document_id", "timestamp")


@dataclass
class DoctorReport:
    """Facts about a collection, the results of the checks, and settings to use."""

    host: str
    collections: list[str]
    collection: str | None = None
    info: CollectionInfo | None = None
    mapping: Mapping[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=dict)
    checks: list[CheckResult] = field(default_factory=list)
    suggested_settings: list[str] = field(default_factory=list)
    proposed_map: dict[str, Any] = field(default_factory=dict)
    content_hash: str | None = None
    store: str = "Qdrant"

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.level is not Level.FAIL for check in self.checks)

    @property
    def verdict(self) -> str:
        """The report in one line."""
        failed = [check.name for check in self.checks if check.level is Level.FAIL]
        notes = sum(check.level is Level.NOTE for check in self.checks)
        if failed:
            return f"Verdict: collection {self.collection} does not fit yet ({', '.join(failed)})."
        noted = f", with {notes} note{'s' * (notes > 1)}" if notes else ""
        return f"Verdict: collection {self.collection} is ready{noted}."

    def to_json(self) -> dict[str, Any]:
        """Return the report as `--json` prints it."""
        return {
            "host": self.host,
            "store": self.store,
            "collections": self.collections,
            "collection": self.collection,
            "fits": self.passed,
            "verdict": self.verdict,
            "info": self.info.model_dump(mode="json") if self.info else None,
            "payload_map": dict(self.mapping),
            "proposed_payload_map": self.proposed_map or None,
            "content_hash": self.content_hash,
            "samples": self.rows,
            "shares": self.shares,
            "findings": [
                {"level": c.level.value, "check": c.name, "message": c.message, "remedy": c.remedy or None}
                for c in self.checks
            ],
            "set": self.suggested_settings,
        }


def check_collection(
    name: str | None, services: Services, deadline: Callable[[], Deadline], suites: Sequence[Suite] = ()
) -> DoctorReport:
    """Check the named collection, or the only one there is, and the filters of these suites."""
    report = DoctorReport(services.store.host, services.store.collections(deadline()))
    with suppress(ChunkproofError):  # a proxy may hide the server's version
        report.store = services.store.features(deadline()).store
    report.collection = _choose_collection(name, services, report.collections)
    report.info = collection_info(report.collection, services=services, deadline=deadline())
    page = read_first(services.store, report.collection, deadline(), limit=SAMPLE_POINTS)
    payloads = [dict(point.payload) for point in page.points]
    report.mapping = find_mapping(payloads, services.payloads)
    better = _propose_text(report.mapping.get("text"), payloads)
    report.proposed_map = {**_configured_rows(services), "text": better.path} if better else {}
    # As they would be read with the proposed map, if there is one.
    reading = PayloadMap({**services.settings.payload_map, "text": (better.path,)}) if better else services.payloads
    report.rows = [
        {field: reading.value(field, payload) for field in find_mapping(payloads, reading)}
        for payload in payloads[:SAMPLE_ROWS]
    ]
    report.shares = {
        field: sum(bool(services.payloads.value(field, payload)) for payload in payloads) / len(payloads)
        for field in ("text", "url", "document_title", "content_hash")
        if payloads
    }
    kind = services.hashes(report.collection, deadline()).content_hash
    report.content_hash = str(kind) if kind else None
    description = services.store.describe(report.collection, deadline())
    report.checks = [
        *_check_size(report.info),
        *_check_distance(report.collection, services, deadline()),
        *_check_payload(report, better),
        *check_hashes(report.collection, report.shares.get("content_hash", 0.0), services, deadline()),
        *check_copies(report.info, services, deadline),
        *_check_indexes(report, page.points, services),
        *check_vector_index(description),
        *check_quantization(description),
        *check_room(description, page.points),
        *check_sparse_vectors(description, page.points, services),
        *(found for suite in suites for found in check_suite_filters(suite, description, services, deadline)),
        *check_vectors(report.info, page.points, services, deadline),
    ]
    if report.passed:
        report.checks += _check_search(report, page.points, services, deadline)
    report.suggested_settings = list(_suggest_settings(report, services))
    return report


def _choose_collection(name: str | None, services: Services, names: list[str]) -> str:
    default = services.settings.collection
    if name is not None:
        if name not in names:
            raise CollectionNotFoundError(name)
        return name
    if default in names:
        return default
    if len(names) == 1:
        return names[0]
    if not names:
        raise InvalidParameterError(
            f"There is no collection at {services.store.host}: load one with chunkproof load, or set QDRANT_URL"
        )
    raise InvalidParameterError(
        f"There are {len(names)} collections at {services.store.host}; choose one with --collection: {', '.join(names)}"
    )


def _check_size(info: CollectionInfo) -> Iterator[CheckResult]:
    if info.points_count == 0:
        yield CheckResult(Level.FAIL, "points", "The collection is empty", "Load it: chunkproof load chunks.jsonl")
    if info.status in ("red", "grey"):
        yield CheckResult(Level.NOTE, "status", f"Qdrant reports status {info.status}", "Read the server's log")


def _check_distance(collection: str, services: Services, deadline: Deadline) -> Iterator[CheckResult]:
    try:
        config = services.vector_config(collection, deadline)
    except UnsupportedDistanceError as error:
        yield CheckResult(Level.FAIL, "distance", str(error), "Create the collection again with Cosine distance")
    except InvalidParameterError as error:
        yield CheckResult(Level.FAIL, "vector", str(error))
    else:
        yield CheckResult(Level.OK, "distance", f"{config.distance}: scores are cosine similarities")


def _configured_rows(services: Services) -> dict[str, Any]:
    """Return the rows of the configured payload map, as they are written in JSON."""
    rows = services.settings.payload_map
    return {name: paths[0] if len(paths) == 1 else list(paths) for name, paths in rows.items()}


def _propose_text(current: str | None, payloads: Sequence[dict[str, Any]]) -> TextField | None:
    """Return a field that holds the text more likely than the one that is read now; None when that one will do."""
    found = propose_text_field(payloads)
    if current is None or found is None or found.path == current:
        return found if current is None else None
    reading = PayloadMap({"text": (current,)})
    texts = [text for payload in payloads if isinstance(text := reading.value("text", payload), str) and text]
    now = describe_texts(current, texts) if texts else None
    return found if now is None or found.chars * found.variety > MUCH_LONGER * now.chars * now.variety else None


def _check_payload(report: DoctorReport, better: TextField | None) -> Iterator[CheckResult]:
    shares = report.shares
    texts = shares.get("text", 0.0)
    setting = f"CHUNKPROOF_PAYLOAD_MAP='{json.dumps(report.proposed_map, ensure_ascii=False)}'"
    if shares and texts == 0.0:
        looks = f"; {better.path} looks like it ({better.chars} characters each)" if better else ""
        yield CheckResult(
            Level.FAIL,
            "text",
            f"The sampled payloads have no text field that Chunkproof knows{looks}",
            f"Set {setting}" if better else "Store each chunk's text in the payload: search returns it from there",
        )
    elif shares and better:
        yield CheckResult(
            Level.NOTE,
            "text",
            f"The text is read from {report.mapping['text']}, but {better.path} has longer and more varied texts "
            f"({better.chars} characters each)",
            f"If that is the text, set {setting}",
        )
    elif shares:
        level = Level.OK if texts == 1.0 else Level.NOTE
        yield CheckResult(level, "text", f"{texts:.0%} of the sampled points have text")
    for name, effect in (
        ("url", "results do not show their source"),
        ("content_hash", "a chunk can be validated only against an original"),
    ):
        if shares and shares.get(name, 0.0) < 1.0:
            yield CheckResult(
                Level.NOTE,
                name,
                f"{shares[name]:.0%} of the sampled points have {name}; without it, {effect}",
            )


def _check_indexes(report: DoctorReport, points: tuple[Point, ...], services: Services) -> Iterator[CheckResult]:
    if services.settings.qdrant_url is None or report.info is None:
        return
    indexed = {item.name for item in report.info.payload_fields if item.indexed}
    ids = {path for path in services.payloads.id_paths for point in points if _has_text(path, point)}
    wanted = dict.fromkeys(ids, "keyword")
    for name in FILTERED_FIELDS:
        path = report.mapping.get(name)
        if path and not any(lies_in_json_string(path, point.payload) for point in points):
            wanted[path] = "datetime" if name == "timestamp" else "keyword"
    missing = {path: schema for path, schema in sorted(wanted.items()) if path not in indexed}
    for path, schema in missing.items():
        what = "looking up chunks by id" if path in ids else "filtering on it"
        yield CheckResult(
            Level.NOTE,
            "payload index",
            f"No index on {path}: {what} scans every point, and strict mode refuses it",
            f'create_payload_index("{report.collection}", field_name="{path}", field_schema="{schema}")',
        )
    if wanted and not missing:
        yield CheckResult(Level.OK, "payload index", "Ids and the usual filter fields are indexed")


def _has_text(path: str, point: Point) -> bool:
    value: Any = point.payload
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return isinstance(value, str)


def _check_search(
    report: DoctorReport, points: tuple[Point, ...], services: Services, deadline: Callable[[], Deadline]
) -> Iterator[CheckResult]:
    """Search with the beginning of a stored text: a collection is ready when that works."""
    texts = (services.payloads.value("text", point.payload) for point in points)
    question = next((" ".join(text.split()[:10]) for text in texts if isinstance(text, str) and text.strip()), "")
    wanted = {"query_text": question[:200] or "test", "collection": report.collection, "top_k": 1}
    try:
        found = search(SearchQuery.parse(wanted), services=services, deadline=deadline()).results
    except ChunkproofError as error:
        yield CheckResult(Level.FAIL, "search", f"A search for a stored text fails: {error}")
        return
    if question and not found:
        yield CheckResult(
            Level.FAIL,
            "search",
            "A search for a stored text finds nothing",
            "Compare the models: set CHUNKPROOF_MODEL to the one that made the collection",
        )


def _suggest_settings(report: DoctorReport, services: Services) -> Iterator[str]:
    settings = services.settings
    if report.collection != settings.collection:
        yield f"CHUNKPROOF_COLLECTION={report.collection}"
    if settings.qdrant_url is not None:
        yield f"QDRANT_URL={settings.qdrant_url}"
    if report.proposed_map and not report.shares.get("text"):
        yield f"CHUNKPROOF_PAYLOAD_MAP='{json.dumps(report.proposed_map, ensure_ascii=False)}'"
    if report.info and len(report.info.vectors) > 1 and settings.vector_name:
        yield f"CHUNKPROOF_VECTOR_NAME={settings.vector_name}"
