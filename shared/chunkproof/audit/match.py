"""What a scan leaves open, settled by chunk id: chunks on another point, ids on several points, orphans."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby, islice
from json import loads

from chunkproof.audit.findings import Finding, duplicate, judge, missing, orphan
from chunkproof.audit.prepare import Expected, keyed, point_of
from chunkproof.audit.reader import BY_IDS
from chunkproof.audit.session import Run
from chunkproof.audit.sort import Sorter
from chunkproof.clients.ports import Point, PointId
from chunkproof.retrieval.lookup import answers_to

# Of the points that show one id of the manifest, so many are named; the others are counted.
NAMED = 10
# Ids that are held in memory to look them up in the manifest; for more of them, the manifest is sorted by id.
MOST_HELD = 20_000


@dataclass
class _Case:
    """All that is known of one chunk id: in the manifest, absent from its point, points that show it."""

    chunk_id: str
    known: Expected | None = None
    absent: bool = False
    points: list[tuple[PointId, bool]] = field(default_factory=list)
    unnamed: int = 0

    def wanted(self) -> list[PointId]:
        """The points to read again before anything is said."""
        home = [point_of(self.known.key)] if self.known else []
        return [*home, *(point for point, _ in self.points)]


def settle(run: Run) -> None:
    """Decide each open id; what is in question is read again first."""
    cases = _cases(run)
    for _ in islice(cases, run.progress.settled):  # decided before an interruption
        pass
    while batch := list(islice(cases, BY_IDS)):
        now = run.reader.fetch(list(dict.fromkeys(point for case in batch for point in case.wanted())))
        suspects: list[tuple[Expected, Point]] = []
        for case in batch:
            for finding in _decided(case, now, run, suspects):
                run.found(finding)
        changed = run.judged_again(suspects, gone=lambda expected: run.found(missing(expected.entry)))
        run.save(settled=run.progress.settled + len(batch), changed=run.progress.changed + changed)
    run.save(phase="vectors")


def _decided(
    case: _Case, now: dict[PointId, Point], run: Run, suspects: list[tuple[Expected, Point]]
) -> Iterator[Finding]:
    services = run.reader.services
    shows = {
        point_id: now[point_id]
        for point_id in case.wanted()
        if point_id in now and answers_to(case.chunk_id, now[point_id], services)
    }
    if case.known is None:
        for point_id, claimed in case.points:
            if point_id in shows and not claimed:
                yield orphan(shows[point_id], services.payloads)
    elif len(shows) > 1:
        yield duplicate(case.known.entry, shows, len(shows) + case.unnamed, services.payloads)
    elif case.absent and shows:
        point = next(iter(shows.values()))
        if judge(case.known, point, services.payloads):
            suspects.append((case.known, point))
    elif case.absent:
        yield missing(case.known.entry)


def _cases(run: Run) -> Iterator[_Case]:
    """Every id that is open, in order: absent from its point, or shown by a point that nobody expected."""
    absent, strays, known = Sorter(run.folder), Sorter(run.folder), Sorter(run.folder)
    for line in run.logs.read("missing"):
        absent.add(_tagged(line, "absent"))
    shown: set[bytes] | None = set()
    for line in run.logs.read("strays"):
        strays.add(_tagged(line, "stray"))
        if shown is not None:
            shown.add(line.partition(b"\t")[0])
            shown = shown if len(shown) <= MOST_HELD else None  # all of the manifest, then, sorted
    if strays.count:
        for chunk_id, expected in run.prepared.known(shown):
            known.add(keyed(chunk_id.decode(), ["known", expected.chunk_id, expected.line.decode()]))
    lines = merge(absent, known, strays)
    for _, of_one_id in groupby(lines, key=lambda line: line.partition(b"\t")[0]):
        yield from _cases_of(of_one_id)


def _cases_of(lines: Iterable[bytes]) -> Iterator[_Case]:
    """The case of one id; a great many points with an id that nobody knows come in parts."""
    case: _Case | None = None
    for line in lines:  # absent, then known, then strays
        tag, *fields = loads(line.partition(b"\t")[2])
        case = case or _Case(fields[0])
        if tag != "stray":
            case.known = Expected.on(fields[1].encode())
            case.absent |= tag == "absent"
        elif case.known is not None and len(case.points) == NAMED:
            case.unnamed += 1
        else:
            case.points.append((fields[1], fields[2]))
            if len(case.points) == BY_IDS:
                yield case
                case = _Case(fields[0])
    if case is not None and (case.absent or case.points):
        yield case


def _tagged(line: bytes, tag: str) -> bytes:
    key, _, fields = line.partition(b"\t")
    return key + b'\t["' + tag.encode() + b'",' + fields[1:]
