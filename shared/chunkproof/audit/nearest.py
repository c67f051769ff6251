"""Match missing chunks with the nearest unclaimed text, so that a changed text is a mismatch with its kind.

Candidates share a key of their sketches (`near_text.py`), the pairs are compared whole, and the best pairs are taken
first. Where the manifest and the collection use the same ids, an edited text under another id is no match: only a
text that differs in form, or was cut or extended, is.
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from chunkproof.audit.findings import Finding, Kind, Stray, judge, missing_finding
from chunkproof.audit.prepare import ExpectedChunk, format_line
from chunkproof.audit.reader import in_batches
from chunkproof.audit.session import Run
from chunkproof.audit.sort import Sorter
from chunkproof.clients.ports import Point, PointId
from chunkproof.errors import CorruptChunkError
from chunkproof.models import MismatchKind
from chunkproof.retrieval.integrity import digest, possible_originals
from chunkproof.retrieval.near_text import containment, shingles, similarity, sketch_keys

# An edited text is matched if it shares half of its shingles: two such texts have a common origin.
SIMILAR = 0.5
# A part of a text is matched if it has so many characters, and this share of the whole.
LEAST_PART_CHARS, LEAST_PART = 20, 0.1
# Pairs below this share of the shorter text are not compared whole.
WORTH_COMPARING = 0.3
# A key that more texts have is boilerplate: of them, only the first ones are candidates.
MAX_SAME_KEY = 20
PARTS = (MismatchKind.TRUNCATED, MismatchKind.EXTENDED)


class Leftovers:
    """Missing chunks and unclaimed points that no equal text has matched, in unnamed files."""

    def __init__(self, folder: Path) -> None:
        self._missing: IO[bytes] = TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `with`
        self._strays: IO[bytes] = TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `with`
        self.missing = self.strays = 0

    def __enter__(self) -> "Leftovers":
        return self

    def __exit__(self, *_: object) -> None:
        self._missing.close()
        self._strays.close()

    def add_missing(self, line: bytes) -> None:
        """Add a line of the sorted manifest."""
        self._missing.write(line.rstrip(b"\n") + b"\n")
        self.missing += 1

    def add_stray(self, stray: Stray) -> None:
        """Add a point."""
        self._strays.write(json.dumps(stray).encode() + b"\n")
        self.strays += 1

    def read_missing(self) -> Iterator[tuple[int, ExpectedChunk]]:
        """Yield each missing chunk with the byte that its line starts at."""
        self._missing.seek(0)
        offset = 0
        for line in self._missing:
            yield offset, ExpectedChunk.from_line(line)
            offset += len(line)

    def read_missing_at(self, offset: int) -> ExpectedChunk:
        """Read one missing chunk."""
        self._missing.seek(offset)
        return ExpectedChunk.from_line(self._missing.readline())

    def read_strays(self) -> Iterator[Stray]:
        """Yield each point."""
        self._strays.seek(0)
        for line in self._strays:
            yield Stray(*json.loads(line))


class _Pair(NamedTuple):
    """A missing chunk and a point that may have its text: their numbers, and where to read them."""

    chunk: int
    stray: int
    offset: int
    point_id: PointId


def match_nearest(run: Run, leftovers: Leftovers, *, ids_overlap: bool) -> int:
    """Log a mismatch for each chunk whose nearest text is near enough, and the others as missing and orphans.

    Return how many were matched.
    """
    matched_chunks, matched_strays = bytearray(leftovers.missing), bytearray(leftovers.strays)
    if leftovers.missing and leftovers.strays:
        for pair, finding in _rank_pairs(run, leftovers, ids_overlap=ids_overlap):
            if not matched_chunks[pair.chunk] and not matched_strays[pair.stray]:
                matched_chunks[pair.chunk] = matched_strays[pair.stray] = 1
                run.log_finding(finding)
    for number, (_, expected) in enumerate(leftovers.read_missing()):
        if not matched_chunks[number]:
            details = "No point has this id, and none has this text" if expected.sha256 else "No point has this id"
            run.log_finding(missing_finding(expected.entry, details))
    for number, stray in enumerate(leftovers.read_strays()):
        if not matched_strays[number]:
            run.log_finding(stray.to_orphan())
    return sum(matched_chunks)


def _rank_pairs(run: Run, leftovers: Leftovers, *, ids_overlap: bool) -> Iterator[tuple[_Pair, Finding]]:
    """Yield the pairs that are near enough, best first."""
    ranked = Sorter(run.folder)
    for pairs in in_batches(_find_candidates(run, leftovers)):
        points = run.reader.fetch(list(dict.fromkeys(pair.point_id for pair in pairs)))
        for pair in pairs:
            if point := points.get(pair.point_id):
                score, finding = _compare(leftovers.read_missing_at(pair.offset), point, run)
                if finding and score >= (1.0 if ids_overlap else SIMILAR):
                    ranked.add(format_line(f"{3 - score:.9f}", [pair, finding.model_dump(mode="json")]))
    for line in ranked:
        pair, finding = json.loads(line.partition(b"\t")[2])
        yield _Pair(*pair), Finding.model_validate(finding, strict=False)


def _find_candidates(run: Run, leftovers: Leftovers) -> Iterator[_Pair]:
    """Yield each missing chunk with each point that shares a key with it."""
    by_key, pairs = Sorter(run.folder), Sorter(run.folder)
    has_hashes = False
    for number, (offset, expected) in enumerate(leftovers.read_missing()):
        text = expected.entry.original_text
        has_hashes |= text is None
        hashed = [f"h{expected.sha256}"] if expected.sha256 else []
        for key in hashed if text is None else sketch_keys(text):
            by_key.add(format_line(f"{key}\tchunk", [number, offset]))
    for number, stray, text in _read_texts(run, leftovers):
        originals = {f"h{digest(each)}" for each in possible_originals(text)} if has_hashes else ()
        for key in (*sketch_keys(text), *originals):
            by_key.add(format_line(f"{key}\tstray", [number, stray.point_id]))
    for _, lines in groupby(by_key, key=lambda line: line.partition(b"\t")[0]):
        chunks: list[Sequence[int]] = []
        strays = 0
        for line in lines:
            _, kind, fields = line.split(b"\t", 2)
            if kind == b"chunk" and len(chunks) < MAX_SAME_KEY:
                chunks.append(json.loads(fields))
            elif kind == b"stray" and chunks and strays < MAX_SAME_KEY:
                strays += 1
                stray, point_id = json.loads(fields)
                for chunk, offset in chunks:
                    pairs.add(format_line(f"{chunk:012d}", _Pair(chunk, stray, offset, point_id)))
    for line, _ in groupby(pairs):
        yield _Pair(*json.loads(line.partition(b"\t")[2]))


def _read_texts(run: Run, leftovers: Leftovers) -> Iterator[tuple[int, Stray, str]]:
    """Yield the unclaimed points with their numbers and texts."""
    for batch in in_batches(enumerate(leftovers.read_strays())):
        points = run.reader.fetch([stray.point_id for _, stray in batch])
        for number, stray in batch:
            text = _text_of(points.get(stray.point_id), run)
            if text is not None:
                yield number, stray, text


def _text_of(point: Point | None, run: Run) -> str | None:
    try:
        return None if point is None else run.reader.services.payloads.text_of(point)
    except CorruptChunkError:
        return None


def _compare(expected: ExpectedChunk, point: Point, run: Run) -> tuple[float, Finding | None]:
    """Return how near the texts are, and the finding: 2 for the same text in another form, 1 and more for a part."""
    stored, original = _text_of(point, run), expected.entry.original_text
    if stored is None:
        return 0.0, None
    share = 1.0
    if original is not None:
        left, right = _shingles(stored), _shingles(original)
        share = min(0.99, similarity(left, right))  # not as near as a part of the text
        near_enough = max(containment(left, right), containment(right, left)) >= WORTH_COMPARING
        if not near_enough and set(sketch_keys(stored)).isdisjoint(
            key for key in sketch_keys(original) if not key.startswith("s")
        ):
            return 0.0, None
    finding = judge(expected, point, run.reader.services.payloads)
    if not expected.sha256 or finding is None or finding.kind is not Kind.MISMATCH or finding.mismatch is None:
        return 0.0, None
    details = f"Nearest text, under the id {point.id}: {finding.details}"
    finding = finding.model_copy(update={"matched_by": "nearest_text", "details": details})
    kind = finding.mismatch.kind if finding.mismatch else MismatchKind.DIFFERENT
    if kind in PARTS and original is not None:
        shorter, longer = sorted((len(stored), len(original)))
        is_enough = shorter >= LEAST_PART_CHARS and shorter >= LEAST_PART * longer
        return (1.0 + shorter / longer / 2 if is_enough else 0.0), finding
    if kind in (MismatchKind.DIFFERENT, MismatchKind.EMPTY, *PARTS):
        return (0.0 if original is None else share), finding
    return 2.0, finding


@lru_cache(maxsize=256)
def _shingles(text: str) -> set[int]:
    return shingles(text)
