"""Check what a collection holds: texts stored twice, shared ids, points without vectors, hashes."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from chunkproof.clients.ports import Point, PointId
from chunkproof.deadline import Deadline
from chunkproof.errors import ChunkproofError
from chunkproof.models import CollectionInfo
from chunkproof.models.filters import HasVector, Not
from chunkproof.retrieval.integrity import digest
from chunkproof.retrieval.pages import read_page
from chunkproof.retrieval.payload import id_at
from chunkproof.retrieval.services import Services
from chunkproof_cli.doctor.result import CheckResult, Level

PAGE = 500
# Texts and ids of so many points are compared with each other.
MAX_SCANNED = 10_000
MAX_NAMED = 3
# A longer list of points to delete is not one to paste.
MAX_DELETED = 20


@dataclass
class _Scan:
    """The points with each text, and with each id of their payloads."""

    texts: dict[str, list[PointId]] = field(default_factory=dict)
    ids: Counter[str] = field(default_factory=Counter)
    points: int = 0


def check_copies(info: CollectionInfo, services: Services, deadline: Callable[[], Deadline]) -> Iterator[CheckResult]:
    """Find texts that are stored more than once, and ids that several points share."""
    scan = _Scan()
    start, limit = None, PAGE
    while scan.points < MAX_SCANNED:
        page = read_page(services.store, info.name, deadline(), limit=limit, start=start)
        for point in page.points:
            _add(point, scan, services)
        scan.points += len(page.points)
        if page.next_id is None:
            break
        start, limit = page.next_id, max(1, len(page.points))
    among = "" if scan.points >= info.points_count else f" among the first {scan.points:,} points"
    yield from _judge_texts(info.name, scan, among)
    yield from _judge_ids(info.name, scan, among, services, deadline)


def check_missing_vectors(
    info: CollectionInfo, vector: str, services: Services, deadline: Deadline
) -> Iterator[CheckResult]:
    """Count the points that no search can find, because they have no vector."""
    try:
        missing = services.store.count(info.name, (Not((HasVector(vector),)),), deadline)
    except ChunkproofError:  # a server before 1.13
        return
    if missing:
        condition = f'Filter(must_not=[HasVectorCondition(has_vector="{vector}")])'
        yield CheckResult(
            Level.NOTE,
            "points without vectors",
            f"{missing:,} of {info.points_count:,} points have no vector, so no search finds them",
            f'List them: client.scroll("{info.name}", scroll_filter={condition}); then embed and upsert them again',
        )


def check_hashes(name: str, share: float, services: Services, deadline: Deadline) -> Iterator[CheckResult]:
    """Say why the stored hashes prove nothing, if there are any."""
    hashes = services.hashes(name, deadline)
    if share and hashes.content_hash is None:
        why = (
            "chunks with different texts have the same one"
            if hashes.is_per_source
            else "not a SHA-256, SHA-1 or MD5 of the text"
        )
        yield CheckResult(
            Level.NOTE,
            "content_hash",
            f"The stored content_hash proves nothing ({why}) and is ignored",
            "Validate against an original: chunkproof validate CHUNK_ID --original-file FILE",
        )


def _add(point: Point, scan: _Scan, services: Services) -> None:
    payloads = services.payloads
    text = payloads.value("text", point.payload)
    if isinstance(text, str) and text.strip():
        scan.texts.setdefault(digest(text.encode("utf-8", "replace").decode()), []).append(point.id)
    path = payloads.id_path(point.payload)
    if path and (value := id_at(path, point.payload)):
        scan.ids[value] += 1


def _judge_texts(name: str, scan: _Scan, among: str) -> Iterator[CheckResult]:
    copies = [ids for ids in scan.texts.values() if len(ids) > 1]
    if not copies:
        return
    extra = [point_id for ids in copies for point_id in ids[1:]]
    delete = f'client.delete("{name}", points_selector={json.dumps(extra)})'
    yield CheckResult(
        Level.NOTE,
        "duplicate texts",
        f"{len(copies):,} texts are stored more than once{among}, {len(extra):,} points too many: "
        "they take the place of other results. Was the collection loaded twice?",
        delete
        if len(extra) <= MAX_DELETED
        else "Load it again into a new collection with ids made from the content: then a second run adds nothing",
    )


def _judge_ids(
    name: str, scan: _Scan, among: str, services: Services, deadline: Callable[[], Deadline]
) -> Iterator[CheckResult]:
    shared = [value for value, count in scan.ids.items() if count > 1]
    if not shared:
        return
    paths = services.payloads_of(name, deadline()).shared_paths
    where = f"{' and '.join(paths)} holds" if paths else f"{', '.join(shared[:MAX_NAMED])}:"
    yield CheckResult(
        Level.NOTE,
        "shared ids",
        f"{where} ids that several points share{among} ({len(shared):,} ids, {sum(scan.ids[v] for v in shared):,} "
        "points): results show the point id instead",
        "If the chunks have ids of their own, name the field: "
        "CHUNKPROOF_PAYLOAD_MAP='" + json.dumps({"chunk_id": "FIELD"}) + "'",
    )
