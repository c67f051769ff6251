"""Find stored texts that are nearly the same, in one more scan of the collection."""

import json
from collections.abc import Iterator
from itertools import groupby

from chunkproof.audit.findings import Finding, Kind
from chunkproof.audit.prepare import format_line, point_key
from chunkproof.audit.reader import in_batches
from chunkproof.audit.session import Run
from chunkproof.audit.sort import Sorter
from chunkproof.clients.ports import Point, PointId
from chunkproof.errors import CorruptChunkError
from chunkproof.retrieval.integrity import digest
from chunkproof.retrieval.near_text import shingles, similarity, sketch_keys

# Each text is compared with its neighbours among those that share a key, not with all of them.
NEIGHBOURS = 3


def find_near_duplicates(run: Run, least: float) -> None:
    """Log each stored text that has at least this similarity with another one; equal texts are compared once.

    A text is reported with the nearest of the texts that were read before it.
    """
    last: tuple[str, float, Finding] | None = None
    for pairs in in_batches(_find_pairs(run)):
        wanted = dict.fromkeys(point_id for pair in pairs for point_id in pair)
        points = run.reader.fetch(list(wanted))
        texts = {point_id: _text_of(point, run) for point_id, point in points.items()}
        parts = {point_id: shingles(text) for point_id, text in texts.items() if text}
        for later, earlier in pairs:
            if later not in parts or earlier not in parts or texts[later] == texts[earlier]:
                continue
            nearness = similarity(parts[later], parts[earlier])
            if nearness < least:
                continue
            key = point_key(later)
            if last is not None and last[0] == key and last[1] >= nearness:
                continue
            if last is not None and last[0] != key:
                run.log_finding(last[2])
            last = key, nearness, _make_finding(points[later], points[earlier], nearness, run)
    if last is not None:
        run.log_finding(last[2])


def _find_pairs(run: Run) -> Iterator[tuple[PointId, PointId]]:
    """Yield pairs of points that share a key, in the order of the later point."""
    by_key, pairs = Sorter(run.folder), Sorter(run.folder)
    for page in run.reader.pages(None):
        for point in page.points:
            text = _text_of(point, run)
            sha256 = digest(text) if text else ""
            for key in sketch_keys(text) if text else ():
                by_key.add(format_line(f"{key}\t{sha256}\t{point_key(point.id)}", point.id))
    for _, lines in groupby(by_key, key=lambda line: line.partition(b"\t")[0]):
        before: list[PointId] = []
        for _, of_text in groupby(lines, key=lambda line: line.split(b"\t", 2)[1]):
            point_id = json.loads(next(of_text).split(b"\t", 3)[3])  # of equal texts, one is compared
            for earlier in before:
                pairs.add(format_line(f"{point_key(point_id)}\t{point_key(earlier)}", [point_id, earlier]))
            before = [*before, point_id][-NEIGHBOURS:]
    for line, _ in groupby(pairs):
        later, earlier = json.loads(line.split(b"\t", 2)[2])
        yield later, earlier


def _text_of(point: Point, run: Run) -> str | None:
    try:
        return run.reader.services.payloads.text_of(point)
    except CorruptChunkError:
        return None


def _make_finding(later: Point, earlier: Point, nearness: float, run: Run) -> Finding:
    payloads = run.reader.payloads
    return Finding(
        chunk_id=payloads.id_of(later),
        kind=Kind.NEAR_DUPLICATE,
        details=f"Nearly the text of {payloads.id_of(earlier)}: {nearness:.0%} in common",
        point_ids=(later.id, earlier.id),
        source=payloads.source_of(later.payload),
    )
