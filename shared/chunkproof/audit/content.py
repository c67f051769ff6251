"""Match by content what the ids left over: chunks whose ids are not stored, and points that no entry has the id of.

Many pipelines give every point a random id. A chunk whose id no point has is matched with a point of the same text;
points with the text of a chunk that has its point already are copies of it (`duplicate_text`). What is left is
compared with the nearest text (`nearest.py`).

    1. sort the manifest and the unclaimed points by the hash of the text; keep the texts that occur more than once
    2. sort their entries by chunk id, beside the missing ids and the findings: is each one stored, missing or faulty?
    3. sort by hash again and resolve each text
"""

import json
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, groupby
from pathlib import Path

from chunkproof.audit.findings import CHUNK_KINDS, Stray, duplicate_text_finding, find_source, judge, missing_finding
from chunkproof.audit.nearest import Leftovers, match_nearest
from chunkproof.audit.prepare import BUFFER, ExpectedChunk, format_line
from chunkproof.audit.reader import BATCH_SIZE
from chunkproof.audit.session import Run
from chunkproof.audit.sort import Sorter
from chunkproof.clients.ports import PointId

ELSEWHERE = "No point has this id; its text is stored, but as another chunk of the manifest"
STORED, MISSING, FAULTY = "stored", "missing", "faulty"


def match_by_content(run: Run) -> None:
    """Log a finding for each chunk and point that the ids left over, unless their texts match."""
    if run.matches_by_text:
        with Leftovers(run.folder) as leftovers:
            texts = _Texts(run, leftovers)
            texts.resolve_all()
            by_nearest = match_nearest(run, leftovers, ids_overlap=texts.ids_overlap)
        counts = texts.counts
        run.save(
            missing_ids=texts.missing_ids,
            by_text=counts["by_text"],
            by_nearest_text=by_nearest,
            repeated_texts=counts["repeated_texts"],
            extra_points=counts["extra_points"],
        )
    run.save(phase="near_duplicates")


@dataclass
class _Text:
    """What is known of one text: the entries that have it, by their state; offsets are lines of the manifest."""

    entries: int = 0
    stored: "array[int]" = field(default_factory=lambda: array("q"))
    missing: "array[int]" = field(default_factory=lambda: array("q"))
    faulty: int | None = None
    strays: int = 0


class _Texts:
    """All texts that several entries or points have."""

    def __init__(self, run: Run, leftovers: Leftovers) -> None:
        self._run = run
        self._leftovers = leftovers
        self._manifest = _Lines(run.manifest.path)
        self._pairs: list[tuple[int, PointId]] = []
        self.counts: Counter[str] = Counter()
        self.missing_ids = 0

    @property
    def ids_overlap(self) -> bool:
        """Whether the manifest and the collection use the same ids: at least half of the chunks have theirs."""
        return self.missing_ids * 2 <= self._run.progress.compared

    def resolve_all(self) -> None:
        """Resolve every text that several entries or points have; the others are left over."""
        with closing(self._manifest):
            strays, entries = Sorter(self._run.folder), Sorter(self._run.folder)
            self._select_repeated(strays, entries)
            states = self._find_states(entries)
            for _, lines in groupby(merge(states, strays), key=_first_column):
                self._resolve(lines)
            self._judge_pairs()

    def _select_repeated(self, strays: Sorter, entries: Sorter) -> None:
        """Keep the texts that occur more than once; a point with a text of its own is left over."""
        by_text = Sorter(self._run.folder)
        offset = 0
        with self._run.manifest.path.open("rb", buffering=BUFFER) as file:
            for line in file:
                _, chunk_id, _, sha256, _ = line.split(b"\t", 4)
                if sha256:  # otherwise the text is unknown
                    by_text.add(b"%b\tentry\t%b\t%d\n" % (sha256, chunk_id, offset))
                offset += len(line)
        for line in self._run.logs.read("unclaimed"):
            sha256, _, fields = line.partition(b"\t")
            by_text.add(b"%b\tstray\t%b" % (sha256, fields))
        for _, lines in groupby(by_text, key=_first_column):
            of_text = iter(lines)
            first, second = next(of_text), next(of_text, None)
            if second is None:
                if b"\tstray\t" in first:
                    self._leftovers.add_stray(_parse_stray(first))
                continue
            for line in chain((first, second), of_text):
                sha256, kind, rest = line.split(b"\t", 2)
                if kind == b"stray":
                    strays.add(line)
                else:
                    chunk_id, _, at = rest.rstrip(b"\n").partition(b"\t")
                    entries.add(b"%b\t%b\t%b\n" % (chunk_id, sha256, at))

    def _find_states(self, entries: Sorter) -> Sorter:
        """Find out which of the entries are stored, missing or faulty; a missing one of another text is left over."""
        folder, logs = self._run.folder, self._run.logs
        missing, faulty, states = Sorter(folder), Sorter(folder), Sorter(folder)
        for line in logs.read("missing"):
            chunk_id, _, fields = line.partition(b"\t")
            missing.add(b"%b\tmissing\t%b" % (chunk_id, fields))
        self.missing_ids = missing.count
        for line in logs.read("findings"):
            chunk_id, _, fields = line.partition(b"\t")
            if json.loads(fields)["kind"] in CHUNK_KINDS:
                faulty.add(b"%b\tfaulty\n" % chunk_id)
        for chunk_id, lines in groupby(merge(entries, faulty, missing), key=_first_column):
            state, places, line_of_missing = STORED, [], b""
            for line in lines:
                second, _, rest = line[len(chunk_id) + 1 :].rstrip(b"\n").partition(b"\t")
                if second == b"faulty":
                    state = FAULTY
                elif second == b"missing":
                    state, line_of_missing = MISSING, rest
                else:
                    places.append((second, rest))
            if line_of_missing and not places:
                self._leftovers.add_missing(json.loads(line_of_missing).encode())
            for sha256, offset in places:
                states.add(b"%b\tentry\t%b\t%b\t%b\n" % (sha256, chunk_id, state.encode(), offset))
        return states

    def _resolve(self, lines: Iterator[bytes]) -> None:
        """Match the points of one text with its entries: first those of the same document, then any."""
        text = _Text()
        strays: Iterator[Stray] = iter(())
        for line in lines:  # entries in the order of their ids, then strays
            columns = line.rstrip(b"\n").split(b"\t")
            if columns[1] == b"stray":
                strays = map(_parse_stray, chain((line,), lines))
                break
            text.entries += 1
            offset, state = int(columns[4]), columns[3].decode()
            if state == STORED:
                text.stored.append(offset)
            elif state == MISSING:
                text.missing.append(offset)
            else:
                text.faulty = offset
        if not text.stored and not text.missing:
            self._log_orphans(text, strays)
            return
        paired, copies = self._pair(text, strays)
        points = len(text.stored) + text.strays
        if points > 1:
            self.counts["repeated_texts"] += 1
            self.counts["extra_points"] += points - 1
        self._log_missing(text, paired, is_stored=points > 0)
        self._log_copies(text, paired, copies, points)

    def _log_orphans(self, text: _Text, strays: Iterator[Stray]) -> None:
        """The text is in no entry, or only in one whose own point has another text."""
        of_chunk = None if text.faulty is None else self._manifest.read(text.faulty).chunk_id
        for stray in strays:
            text.strays += 1
            if of_chunk is None:
                self._leftovers.add_stray(stray)
            else:
                details = f"Stored, but not in the manifest; it has the text of chunk {of_chunk}, which is wrong itself"
                self._run.log_finding(stray.to_orphan(details))
        if text.strays > 1:
            self.counts["repeated_texts"] += 1
            self.counts["extra_points"] += text.strays - 1

    def _pair(self, text: _Text, strays: Iterator[Stray]) -> tuple[dict[int, PointId], list[PointId]]:
        """Pair missing entries with points; return the pairs and two of the points that are left."""
        by_source: dict[str | None, deque[int]] = defaultdict(deque)
        for offset in text.missing if len(text.missing) > 1 else ():
            by_source[find_source(self._manifest.read(offset).entry)].append(offset)
        paired: dict[int, PointId] = {}
        others: list[PointId] = []
        for stray in strays:
            text.strays += 1
            if by_source.get(stray.source):
                paired[by_source[stray.source].popleft()] = stray.point_id
            elif len(others) < len(text.missing) + 2:
                others.append(stray.point_id)
        waiting = [offset for offset in text.missing if offset not in paired]
        paired |= dict(zip(waiting, others, strict=False))
        for pair in paired.items():
            self._pairs.append(pair)
            if len(self._pairs) == BATCH_SIZE:
                self._judge_pairs()
        return paired, others[len(waiting) :][:2]

    def _log_missing(self, text: _Text, paired: dict[int, PointId], *, is_stored: bool) -> None:
        for offset in text.missing:
            if offset in paired:
                continue
            expected = self._manifest.read(offset)
            if is_stored:
                self._run.log_finding(missing_finding(expected.entry, ELSEWHERE))
            else:
                self._leftovers.add_missing(expected.line)

    def _log_copies(self, text: _Text, paired: dict[int, PointId], copies: list[PointId], points: int) -> None:
        """Each point beyond the entries that have one is a copy; each makes one entry a duplicate."""
        owners = sorted((*text.stored, *paired))
        too_many = points - len(owners)
        for offset in owners[:too_many]:
            known = [paired[offset]] if offset in paired else []
            finding = duplicate_text_finding(self._manifest.read(offset).entry, [*known, *copies], points, text.entries)
            self._run.log_finding(finding)

    def _judge_pairs(self) -> None:
        """Compare the metadata of chunks that were matched by their text; a point may be gone by now."""
        points = self._run.reader.fetch([point_id for _, point_id in self._pairs])
        for offset, point_id in self._pairs:
            expected, point = self._manifest.read(offset), points.get(point_id)
            if point is None:
                self._run.log_finding(missing_finding(expected.entry))
                continue
            self.counts["by_text"] += 1
            self._run.logs.add("pairs", format_line(f"{offset:020d}", point_id))
            if finding := judge(expected, point, self._run.reader.services.payloads):
                self._run.log_finding(finding.model_copy(update={"matched_by": "text"}))
        self._pairs.clear()


class _Lines:
    """Reads single lines of the sorted manifest, until it is closed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.close = self._file.close

    def read(self, offset: int) -> ExpectedChunk:
        """Read the chunk whose line starts at this byte."""
        self._file.seek(offset)
        return ExpectedChunk.from_line(self._file.readline())


def _first_column(line: bytes) -> bytes:
    return line.partition(b"\t")[0]


def _parse_stray(line: bytes) -> Stray:
    return Stray(*json.loads(line.split(b"\t", 2)[2]))
