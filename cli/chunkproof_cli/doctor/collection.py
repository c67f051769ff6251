"""A read-only examination of a collection."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from chunkproof.clients.ports import Point, VectorConfig
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    EmbeddingSizeError,
    InvalidParameterError,
    UnsupportedDistanceError,
)
from chunkproof.models import CollectionInfo
from chunkproof.retrieval.collection import collection_info, find_mapping
from chunkproof.retrieval.payload import lies_in_json_string
from chunkproof.retrieval.services import Services
from chunkproof.retrieval.vectors import AGREES, SIMILAR, cosine_with_text

SAMPLE_ROWS = 3
COMPARED_CHUNKS = 5
FILTERED_FIELDS = ("url", "document_id", "timestamp")
_MODELS_BY_SIZE = {
    384: "all-MiniLM-L6-v2, bge-small or another small model",
    768: "a base-size model such as bge-base or all-mpnet-base-v2",
    1024: "Cohere embed-english-v3.0 or embed-multilingual-v3.0, or a large open model",
    1536: "Cohere embed-v4.0 or OpenAI text-embedding-3-small",
    3072: "OpenAI text-embedding-3-large",
}


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    FAIL = "FAIL"


@dataclass(frozen=True)
class CheckResult:
    """One thing looked at."""

    level: Level
    subject: str
    message: str
    remedy: str = ""


@dataclass
class DoctorReport:
    """Everything found, and what follows from it."""

    host: str
    collections: list[str]
    collection: str | None = None
    info: CollectionInfo | None = None
    mapping: Mapping[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=dict)
    findings: list[CheckResult] = field(default_factory=list)
    to_set: list[str] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether Chunkproof can serve this collection."""
        return all(item.level is not Level.FAIL for item in self.findings)

    @property
    def verdict(self) -> str:
        """The examination in a line."""
        failed = [item.subject for item in self.findings if item.level is Level.FAIL]
        notes = sum(item.level is Level.NOTE for item in self.findings)
        if failed:
            return f"Verdict: collection {self.collection} does not fit yet ({', '.join(failed)})."
        return f"Verdict: collection {self.collection} is ready" + (f", {notes} to note." if notes else ".")

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        return {
            "host": self.host,
            "collections": self.collections,
            "collection": self.collection,
            "fits": self.fits,
            "verdict": self.verdict,
            "info": self.info.model_dump(mode="json") if self.info else None,
            "payload_map": dict(self.mapping),
            "samples": self.rows,
            "shares": self.shares,
            "findings": [
                {"level": f.level.value, "check": f.subject, "message": f.message, "remedy": f.remedy or None}
                for f in self.findings
            ],
            "set": self.to_set,
        }


def check_collection(
    wanted: str | None, services: Services, deadline: Callable[[], Deadline]
) -> DoctorReport:
    """Look at the collection that was asked for, or at the only one there is."""
    found = DoctorReport(services.store.host, services.store.collections(deadline()))
    found.collection = _chosen(wanted, services, found.collections)
    found.info = collection_info(found.collection, services=services, deadline=deadline())
    page = services.store.scroll(found.collection, deadline(), limit=100)
    payloads = [dict(point.payload) for point in page.points]
    found.mapping = find_mapping(payloads, services.payloads)
    found.rows = [
        {name: services.payloads.value(name, payload) for name in found.mapping}
        for payload in payloads[:SAMPLE_ROWS]
    ]
    found.shares = {
        name: sum(bool(services.payloads.value(name, payload)) for payload in payloads) / len(payloads)
        for name in ("text", "url", "document_title", "content_hash")
        if payloads
    }
    found.findings = [
        *_size(found.info),
        *_distance(found.collection, services, deadline()),
        *_payload(found.shares),
        *_indexes(found, page.points, services),
        *_vectors(found, page.points, services, deadline),
    ]
    found.to_set = list(_settings(found, services))
    return found


def _chosen(wanted: str | None, services: Services, names: list[str]) -> str:
    default = services.settings.collection
    if wanted is not None:
        if wanted not in names:
            raise CollectionNotFoundError(wanted)
        return wanted
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


def _size(info: CollectionInfo) -> Iterator[CheckResult]:
    if info.points_count == 0:
        yield CheckResult(
            Level.FAIL, "points", "The collection is empty", "Load it: chunkproof load chunks.jsonl"
        )
    if info.status in ("red", "grey"):
        yield CheckResult(
            Level.NOTE, "status", f"Qdrant reports status {info.status}", "See the server's log"
        )


def _distance(collection: str, services: Services, deadline: Deadline) -> Iterator[CheckResult]:
    try:
        space = services.space(collection, deadline)
    except UnsupportedDistanceError as error:
        yield CheckResult(
            Level.FAIL, "distance", str(error), "Make the collection again with Cosine distance"
        )
    except InvalidParameterError as error:
        yield CheckResult(Level.FAIL, "vector", str(error))
    else:
        yield CheckResult(Level.OK, "distance", f"{space.distance}: scores are cosine similarities")


def _payload(shares: Mapping[str, float]) -> Iterator[CheckResult]:
    texts = shares.get("text", 0.0)
    if shares and texts == 0.0:
        yield CheckResult(
            Level.FAIL,
            "text",
            "No text was found in the payloads",
            'Name its field: CHUNKPROOF_PAYLOAD_MAP=\'{"text": "…"}\'',
        )
    elif shares:
        level = Level.OK if texts == 1.0 else Level.NOTE
        yield CheckResult(level, "text", f"{texts:.0%} of the sampled points have text")
    for name, why in (
        ("url", "its source cannot be shown"),
        ("content_hash", "it validates only with an original"),
    ):
        if shares and shares.get(name, 0.0) < 1.0:
            yield CheckResult(Level.NOTE, name, f"{shares[name]:.0%} have {name}; without it, {why}")


def _indexes(found: DoctorReport, points: tuple[Point, ...], services: Services) -> Iterator[CheckResult]:
    if services.settings.qdrant_url is None or found.info is None:
        return
    indexed = {item.name for item in found.info.payload_fields if item.indexed}
    ids = {path for path in services.payloads.id_paths for point in points if _holds_text(path, point)}
    wanted = dict.fromkeys(ids, "keyword")
    for name in FILTERED_FIELDS:
        path = found.mapping.get(name)
        if path and not any(lies_in_json_string(path, point.payload) for point in points):
            wanted[path] = "datetime" if name == "timestamp" else "keyword"
    missing = {path: schema for path, schema in sorted(wanted.items()) if path not in indexed}
    for path, schema in missing.items():
        why = "looking up chunks by id" if path in ids else "filters on it"
        yield CheckResult(
            Level.NOTE,
            "payload index",
            f"No index on {path}: {why} scans every point, and is refused under strict mode",
            f'create_payload_index("{found.collection}", field_name="{path}", field_schema="{schema}")',
        )
    if wanted and not missing:
        yield CheckResult(Level.OK, "payload index", "Ids and the usual filter fields are indexed")


def _holds_text(path: str, point: Point) -> bool:
    value: Any = point.payload
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return isinstance(value, str)


def _vectors(
    found: DoctorReport, points: tuple[Point, ...], services: Services, deadline: Callable[[], Deadline]
) -> Iterator[CheckResult]:
    """Whether the configured embedder made what is stored; says why when that cannot be told."""
    if found.info is None or not points or not found.collection or services.embedder is None:
        return
    stored = _stored_models(points, services)
    likely = " and ".join(stored) or _MODELS_BY_SIZE.get(found.info.vector_size, "unknown")
    yield CheckResult(
        Level.OK, "likely model", likely + (" (the payload says so)" if stored else " (by vector size)")
    )
    model, size = services.embedder.model, services.embedder.dimension
    if size is not None and size != found.info.vector_size:
        yield CheckResult(
            Level.NOTE,
            "vectors",
            f"Not compared: {model} makes {size} values, the collection stores {found.info.vector_size}",
            "Set COHERE_API_KEY and CHUNKPROOF_MODEL to the model of the pipeline",
        )
        return
    try:
        space = services.space(found.collection, deadline())
        cosines = list(_cosines(found.collection, points, space, services, deadline))
    except EmbeddingSizeError as error:
        remedy = "Set CHUNKPROOF_MODEL to the model of the pipeline"
        yield CheckResult(Level.FAIL, "vectors", error.message, remedy)
        return
    except ChunkproofError as error:
        yield CheckResult(Level.NOTE, "vectors", f"Not compared: {error.message}")
        return
    if not cosines:
        yield CheckResult(
            Level.NOTE, "vectors", "Not compared: no sampled chunk has a text the model can read"
        )
        return
    lowest = min(cosines)
    message = f"{len(cosines)} chunks embedded again with {model}: cosine {lowest:.3f} to {max(cosines):.3f}"
    if lowest >= AGREES:
        yield CheckResult(Level.OK, "vectors", f"{message}; the stored vectors agree")
    elif lowest >= SIMILAR:
        yield CheckResult(
            Level.NOTE,
            "vectors",
            f"{message}; close, so likely the same model with other preprocessing or another input type",
        )
    else:
        yield CheckResult(
            Level.FAIL,
            "vectors",
            f"{message}; the stored vectors come from another model or another text",
            "Set CHUNKPROOF_MODEL to the model of the pipeline, or embed the collection again",
        )


def _stored_models(points: tuple[Point, ...], services: Services) -> list[str]:
    return sorted(
        {str(m) for point in points if (m := services.payloads.value("embedding_model", point.payload))}
    )


def _cosines(
    collection: str,
    points: tuple[Point, ...],
    space: VectorConfig,
    services: Services,
    deadline: Callable[[], Deadline],
) -> Iterator[float]:
    ids = [point.id for point in points[:COMPARED_CHUNKS]]
    for point in services.store.fetch(collection, ids, deadline(), with_vector=space.name):
        if (found := cosine_with_text(point, services, deadline)) is not None:
            yield found


def _settings(found: DoctorReport, services: Services) -> Iterator[str]:
    settings = services.settings
    if found.collection != settings.collection:
        yield f"CHUNKPROOF_COLLECTION={found.collection}"
    if settings.qdrant_url is not None:
        yield f"QDRANT_URL={settings.qdrant_url}"
    if found.info and len(found.info.vectors) > 1 and settings.vector_name:
        yield f"CHUNKPROOF_VECTOR_NAME={settings.vector_name}"
