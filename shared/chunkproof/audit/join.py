"""Compare the manifest with the collection by ids: in one pass over all points, or only the chunks of the manifest.

A scan returns points in the order of their ids, which is also that of the ledger's chunks. What it leaves open is
resolved by chunk id: chunks on other points, ids on several points, and points that the manifest does not have.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import islice
from time import monotonic
from typing import Any

from chunkproof.audit.findings import Finding, Judge, Kind, Stray, duplicate_finding, missing_finding
from chunkproof.audit.ledger import ChunkState, ExpectedChunk, Ledger, Progress, StrayState, parse_point_key, point_key
from chunkproof.collection.lookup import Lookup, has_id, parse_point_id
from chunkproof.collection.reader import BATCH_SIZE, PAGE_SIZE, Reader, in_batches
from chunkproof.stores.store_port import Point, PointId

# Of the points with one id of the manifest, this many are named; the others are only counted.
MAX_NAMED_POINTS = 10
# A page is read ahead from every so many expected points on: a few less than fit, so that there is room for others.
EXPECTED_ON_PAGE = PAGE_SIZE * 24 // 25
# The few chunks that look wrong are read again together, those of so many pages: each reading is a round trip.
PAGES_RECHECKED = 8
Suspects = list[tuple[ExpectedChunk, Point]]


@dataclass
class AuditRun:
    """A running audit: what its phases share."""

    ledger: Ledger
    reader: Reader
    on_progress: Callable[[Progress], None] = lambda _progress: None
    _saved_at: float = field(default_factory=monotonic)

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return self.ledger.progress

    @property
    def matches_by_text(self) -> bool:
        """Whether chunks whose ids are not stored are looked for by their texts."""
        return self.progress.spec.match_by == "text"

    @cached_property
    def judge(self) -> Judge:
        """What compares a stored chunk with the expected one; to a diff, a second text is a field like any other."""
        is_diff = self.progress.spec.all_metadata
        sample = () if is_diff else self.reader.sample.payloads
        return Judge(self.reader.services.payloads, sample, all_metadata=is_diff)

    def log_finding(self, finding: Finding) -> None:
        """Log what is wrong with a chunk."""
        finding.add_to(self.ledger)

    def log_missing(self, expected: ExpectedChunk) -> None:
        """Log a chunk whose id no point has; its text may be stored under another id."""
        if self.matches_by_text:
            self.ledger.mark(expected, ChunkState.MISSING)
        else:
            self.log_finding(missing_finding(expected.entry))

    def text_of(self, point: Point | None) -> str | None:
        """Return the text of a point; None when it cannot be read, or there is no point."""
        return None if point is None else self.reader.services.payloads.find_text(point)

    def save(self, **changes: Any) -> None:
        """Record that everything up to here is done."""
        now = monotonic()
        seconds, self._saved_at = self.progress.seconds + now - self._saved_at, now
        self.ledger.save(self.progress.model_copy(update={**changes, "seconds": seconds}))
        self.on_progress(self.progress)

    def recheck(self, suspects: Suspects, on_gone: Callable[[ExpectedChunk], None]) -> int:
        """Read chunks that looked wrong again, and log what still is. Return how many changed in between."""
        points = self.reader.read_points([point.id for _, point in suspects])
        changed = 0
        for expected, before in suspects:
            point = points.get(before.id)
            if point is None:
                on_gone(expected)
                changed += 1
                continue
            changed += point.payload != before.payload
            if finding := self.judge(expected, point):
                self.log_finding(finding)
        return changed


def scan(run: AuditRun) -> None:
    """Judge every chunk that is on its expected point; log chunks that are not, unexpected points and open ids."""
    join, execute = _Join(run), run.ledger.execute
    keys = run.ledger.rows("SELECT point FROM chunk WHERE id % ? = 0 ORDER BY id", EXPECTED_ON_PAGE)
    suspects: Suspects = []
    for number, page in enumerate(run.reader.pages(boundaries=[parse_point_key(key) for (key,) in keys]), start=1):
        suspects += join.add(page.points)
        changed, points = 0, run.progress.points + len(page.points)
        if len(suspects) >= BATCH_SIZE or number % PAGES_RECHECKED == 0 or page.next_id is None:
            changed = run.recheck(suspects, on_gone=join.log_absent)
            suspects.clear()
        run.save(compared=join.compared, points=points, changed=run.progress.changed + changed)
    join.skip_to(None)
    execute("CREATE INDEX IF NOT EXISTS stray_by_id ON stray (chunk_id)")
    sql = "UPDATE chunk SET state = ? WHERE state = ? AND chunk_id IN (SELECT chunk_id FROM stray)"
    execute(sql, ChunkState.REPEATED, ChunkState.STORED)
    execute(
        "UPDATE stray SET state = ? "
        "WHERE NOT claimed AND NOT EXISTS (SELECT 1 FROM chunk WHERE chunk.chunk_id = stray.chunk_id)",
        StrayState.UNKNOWN,
    )
    run.save(compared=join.compared, changed=run.progress.changed + run.reader.added_or_removed)


class _Join:
    """The next expected chunk, and how far the manifest has been read."""

    def __init__(self, run: AuditRun) -> None:
        self._run = run
        self._payloads = run.reader.services.payloads
        self._chunks: Iterator[ExpectedChunk] = run.ledger.read()
        self.compared = 0
        self._next = next(self._chunks, None)

    def add(self, points: Sequence[Point]) -> Suspects:
        """Return the chunks on these points that are not as expected, and log points with unexpected payload ids.

        A point is claimed when the manifest has its point id as a chunk id.
        """
        payloads, judge = self._payloads, self._run.judge
        suspects: Suspects = []
        strays: list[tuple[str, str, bool, StrayState]] = []
        for point in points:
            key, own_id = point_key(point.id), payloads.id_of(point)
            self.skip_to(key)
            claimed, claimed_own = False, False
            while (expected := self._next) is not None and expected.key == key:
                if expected.chunk_id == own_id or has_id(point, expected.chunk_id, payloads):
                    claimed = True
                    claimed_own |= expected.chunk_id == own_id
                    if judge(expected, point, explain=False):
                        suspects.append((expected, point))
                else:
                    self.log_absent(expected)
                self.compared, self._next = self.compared + 1, next(self._chunks, None)
            # Claimed by its point id alone, its payload id may still be another chunk of the manifest.
            if not claimed_own and not (claimed and (own_id == str(point.id) or self._has_shared_id(point))):
                strays.append((key, own_id, claimed, StrayState.READ))
        self._run.ledger.add_rows("INSERT INTO stray (point, chunk_id, claimed, state) VALUES (?, ?, ?, ?)", strays)
        return suspects

    def skip_to(self, key: str | None) -> None:
        """Log the chunks expected before this key, or all that are left, as absent."""
        while self._next is not None and (key is None or self._next.key < key):
            self.log_absent(self._next)
            self.compared, self._next = self.compared + 1, next(self._chunks, None)

    def log_absent(self, expected: ExpectedChunk) -> None:
        """Log a chunk that is not on its expected point; it may be on another one."""
        self._run.ledger.mark(expected, ChunkState.ABSENT)

    def _has_shared_id(self, point: Point) -> bool:
        """Whether the id in the payload is not the chunk's but, most likely, its document's."""
        return self._payloads.id_path(point.payload) in self._run.reader.payloads.shared_paths


@dataclass
class _OpenChunk:
    """A chunk that is not on its expected point, or not only there, and the stray points that have its id."""

    expected: ExpectedChunk
    is_absent: bool
    strays: list[tuple[PointId, bool]]
    unnamed_points: int

    @property
    def point_ids(self) -> list[PointId]:
        """The expected point and the stray ones."""
        return [self.expected.point_id, *(point_id for point_id, _ in self.strays)]


def match_open_ids(run: AuditRun) -> None:
    """Log a finding for each chunk with an open id that has one, after reading its points again."""
    for state in (ChunkState.ABSENT, ChunkState.REPEATED):
        chunks = run.ledger.read(where=f"state = {state:d}")
        while batch := [_read_open_chunk(run, chunk, state) for chunk in islice(chunks, BATCH_SIZE)]:
            wanted = dict.fromkeys(point_id for each in batch for point_id in each.point_ids)
            points = run.reader.read_points(list(wanted))
            suspects: Suspects = []
            for each in batch:
                run.ledger.mark(each.expected, ChunkState.STORED)
                _resolve(each, points, run, suspects)
            changed = run.recheck(suspects, on_gone=run.log_missing)
            run.save(changed=run.progress.changed + changed)


def read_strays(run: AuditRun, state: StrayState) -> Iterator[tuple[int, Stray]]:
    """Yield the points with this state, and their rows, which may be changed meanwhile."""
    after, sql = 0, "SELECT id, point, chunk_id, source FROM stray WHERE state = ? AND id > ? ORDER BY id LIMIT 1000"
    while rows := list(run.ledger.rows(sql, state, after)):
        for row, point, chunk_id, source in rows:
            yield row, Stray(parse_point_key(point), chunk_id, source)
        after = rows[-1][0]


def match_unknown_points(run: AuditRun) -> None:
    """Log each point whose id the manifest does not have as an orphan, unless its text may be that of a chunk."""
    payloads, matches_by_text = run.reader.services.payloads, run.matches_by_text
    for batch in in_batches(read_strays(run, StrayState.UNKNOWN)):
        points = run.reader.read_points([stray.point_id for _, stray in batch])
        for row, (point_id, chunk_id, _) in batch:
            point = points.get(point_id)
            own_id = chunk_id if point is None else payloads.id_of(point)
            if own_id != chunk_id and run.ledger.count("SELECT count(*) FROM chunk WHERE chunk_id = ?", own_id):
                point = None  # it was written since the scan, and found as that chunk
            state, hashed, stray = StrayState.RESOLVED, None, None
            if point is not None and has_id(point, chunk_id, payloads):
                stray = Stray.from_point(point, run.reader.payloads)
                text = run.text_of(point) if matches_by_text else None
                if text is None:
                    run.log_finding(stray.to_orphan())
                else:
                    state, hashed = StrayState.UNCLAIMED, sha256(text.encode()).digest()
            own_id, source = (stray.chunk_id, stray.source) if stray else (chunk_id, None)
            sql = "UPDATE stray SET state = ?, sha256 = ?, chunk_id = ?, source = ? WHERE id = ?"
            run.ledger.execute(sql, state, hashed, own_id, source, row)
        run.save()


def _read_open_chunk(run: AuditRun, expected: ExpectedChunk, state: ChunkState) -> _OpenChunk:
    rows = run.ledger.rows("SELECT point, claimed FROM stray WHERE chunk_id = ? ORDER BY point", expected.chunk_id)
    strays = [(parse_point_key(point), bool(claimed)) for point, claimed in islice(rows, MAX_NAMED_POINTS)]
    return _OpenChunk(expected, state is ChunkState.ABSENT, strays, sum(1 for _ in rows))


def _resolve(each: _OpenChunk, points: dict[PointId, Point], run: AuditRun, suspects: Suspects) -> None:
    expected, payloads = each.expected, run.reader.services.payloads
    own = {
        point_id: points[point_id]
        for point_id in each.point_ids
        if point_id in points and has_id(points[point_id], expected.chunk_id, payloads)
    }
    if expected.point_id in own and parse_point_id(expected.chunk_id) == expected.point_id:
        # Named by its point id, the chunk is this point, whatever ids other chunks of the manifest have.
        for point_id, claimed in each.strays:
            if claimed and point_id != expected.point_id:
                own.pop(point_id, None)
    if len(own) > 1:
        count = len(own) + each.unnamed_points
        run.log_finding(duplicate_finding(expected.entry, own, count, payloads))
    elif each.is_absent and own:
        point = next(iter(own.values()))
        if run.judge(expected, point, explain=False):
            suspects.append((expected, point))
    elif each.is_absent:
        run.log_missing(expected)


def audit_by_id(run: AuditRun) -> None:
    """Judge every chunk of the manifest, or of a sample, by its id; other points are not read."""
    drawn = run.ledger.draw(run.progress.spec.audited, "sample")
    for batch in in_batches(run.ledger.read(where=drawn)):
        lookup = _find(batch, run)
        suspects = [chunk for chunk in batch if _judge_by_id(chunk, lookup, run, explain=False)]
        # Chunks may change during the audit: a finding counts only if a second read confirms it.
        again = _find(suspects, run) if suspects else lookup
        findings = [finding for chunk in suspects if (finding := _judge_by_id(chunk, again, run))]
        for finding in findings:
            run.log_finding(finding)
        changed = run.progress.changed + len(suspects) - len(findings)
        run.save(compared=run.progress.compared + len(batch), changed=changed)


def _find(chunks: Sequence[ExpectedChunk], run: AuditRun) -> Lookup:
    return run.reader.look_up({chunk.chunk_id: chunk.point_id for chunk in chunks})


def _judge_by_id(expected: ExpectedChunk, lookup: Lookup, run: AuditRun, *, explain: bool = True) -> Finding | None:
    payloads = run.reader.services.payloads
    points = lookup.points.get(expected.chunk_id, [])
    if len(points) > 1 and (point_id := parse_point_id(expected.chunk_id)) is not None:
        points = [point for point in points if point.id == point_id or not _is_another(point, run)]
    if len(points) > 1:
        return duplicate_finding(expected.entry, {point.id: point for point in points}, len(points), payloads)
    if points:
        return run.judge(expected, points[0], explain=explain)
    if lookup.blocked_by:
        return Finding.of_entry(expected.entry, Kind.UNVERIFIABLE, lookup.blocked_by.message)
    return missing_finding(expected.entry)


def _is_another(point: Point, run: AuditRun) -> bool:
    """Whether a point that was found by the id in its payload is another chunk, which has the id of its point.

    A document's id may be the id of its first point, or the manifest may have the chunk under its point id.
    """
    if run.reader.services.payloads.id_path(point.payload) in run.reader.payloads.shared_paths:
        return True
    return run.ledger.count("SELECT count(*) FROM chunk WHERE chunk_id = ?", str(point.id)) > 0
