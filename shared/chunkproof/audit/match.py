"""Resolve by chunk id what a scan leaves open: chunks on other points, ids on several points, orphans."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby, islice
from json import loads

from chunkproof.audit.findings import duplicate_finding, judge
from chunkproof.audit.prepare import ExpectedChunk, format_line
from chunkproof.audit.reader import BATCH_SIZE
from chunkproof.audit.session import Run
from chunkproof.audit.sort import Sorter
from chunkproof.clients.ports import Point, PointId
from chunkproof.retrieval.lookup import has_id, parse_point_id

# Of the points with one id of the manifest, this many are named; the others are only counted.
MAX_NAMED_POINTS = 10
# Ids that are held in memory to look them up in the manifest; beyond that, the manifest is sorted by id.
MAX_IDS_IN_MEMORY = 20_000


@dataclass
class _OpenId:
    """What is known about one chunk id: its manifest entry, if any, and the stray points that have it."""

    chunk_id: str
    expected: ExpectedChunk | None = None
    is_absent: bool = False
    points: list[tuple[PointId, bool]] = field(default_factory=list)
    unnamed_points: int = 0

    def points_to_read(self) -> list[PointId]:
        """The expected point and the stray ones."""
        first = [self.expected.point_id] if self.expected else []
        return [*first, *(point_id for point_id, _ in self.points)]


def match_open_ids(run: Run) -> None:
    """Log a finding for each open id that has one, after reading its points again."""
    open_ids = _collect_open_ids(run)
    for _ in islice(open_ids, run.progress.matched):  # resolved before an interruption
        pass
    while batch := list(islice(open_ids, BATCH_SIZE)):
        wanted = dict.fromkeys(point_id for each in batch for point_id in each.points_to_read())
        points = run.reader.fetch(list(wanted))
        suspects: list[tuple[ExpectedChunk, Point]] = []
        for each in batch:
            _resolve(each, points, run, suspects)
        changed = run.recheck(suspects, on_gone=run.log_missing)
        run.save(matched=run.progress.matched + len(batch), changed=run.progress.changed + changed)
    run.save(phase="content")


def _resolve(
    open_id: _OpenId, points: dict[PointId, Point], run: Run, suspects: list[tuple[ExpectedChunk, Point]]
) -> None:
    services, expected = run.reader.services, open_id.expected
    found = {
        point_id: points[point_id]
        for point_id in open_id.points_to_read()
        if point_id in points and has_id(points[point_id], open_id.chunk_id, services.payloads)
    }
    if expected and expected.point_id in found and parse_point_id(open_id.chunk_id) == expected.point_id:
        # Named by its point id, the chunk is this point, whatever ids other chunks of the manifest have.
        for point_id, claimed in open_id.points:
            if claimed and point_id != expected.point_id:
                found.pop(point_id, None)
    if expected is None:
        for point_id, claimed in open_id.points:
            if point_id in found and not claimed:
                run.log_unclaimed(found[point_id])
    elif len(found) > 1:
        count = len(found) + open_id.unnamed_points
        run.log_finding(duplicate_finding(expected.entry, found, count, services.payloads))
    elif open_id.is_absent and found:
        point = next(iter(found.values()))
        if judge(expected, point, services.payloads):
            suspects.append((expected, point))
    elif open_id.is_absent:
        run.log_missing(expected)


def _collect_open_ids(run: Run) -> Iterator[_OpenId]:
    """Yield, in order, every id that is absent from its point or on a point where it is not expected."""
    absent, strays, expected = Sorter(run.folder), Sorter(run.folder), Sorter(run.folder)
    for line in run.logs.read("absent"):
        absent.add(_tag(line, "absent"))
    stray_ids: set[bytes] | None = set()
    for line in run.logs.read("strays"):
        strays.add(_tag(line, "stray"))
        if stray_ids is not None:
            stray_ids.add(line.partition(b"\t")[0])
            if len(stray_ids) > MAX_IDS_IN_MEMORY:
                stray_ids = None
    if strays.count:
        for chunk_id, chunk in run.manifest.find(stray_ids):
            expected.add(format_line(chunk_id.decode(), ["expected", chunk.chunk_id, chunk.line.decode()]))
    lines = merge(absent, expected, strays)
    for _, lines_of_id in groupby(lines, key=lambda line: line.partition(b"\t")[0]):
        yield from _parse_open_ids(lines_of_id)


def _parse_open_ids(lines: Iterable[bytes]) -> Iterator[_OpenId]:
    """Read the lines of one id; very many points with an id that the manifest does not have come in parts."""
    open_id: _OpenId | None = None
    for line in lines:  # absent, then expected, then stray
        tag, chunk_id, *fields = loads(line.partition(b"\t")[2])
        open_id = open_id or _OpenId(chunk_id)
        if tag != "stray":
            open_id.expected = ExpectedChunk.from_line(fields[0].encode())
            open_id.is_absent |= tag == "absent"
        elif open_id.expected is not None and len(open_id.points) == MAX_NAMED_POINTS:
            open_id.unnamed_points += 1
        else:
            point_id, claimed = fields
            open_id.points.append((point_id, claimed))
            if len(open_id.points) == BATCH_SIZE:
                yield open_id
                open_id = _OpenId(chunk_id)
    if open_id is not None and (open_id.is_absent or open_id.points):
        yield open_id


def _tag(line: bytes, tag: str) -> bytes:
    key, _, fields = line.partition(b"\t")
    return key + b'\t["' + tag.encode() + b'",' + fields[1:]
