"""Match by text what the ids left over: chunks whose ids are not stored, and points that no entry has the id of.

Many pipelines give every point a random id. A chunk whose id no point has is matched with a point of the same text;
points with the text of a chunk that has its point already are copies of it (`duplicate_text`). What is left is
matched with the nearest text, so that a changed text is a mismatch with its kind: candidates share a key of their
sketches (`near_text.py`), the pairs are compared whole, and the best pairs are taken first. Where the manifest and the
collection use the same ids, an edited text under another id is no match: only a text that differs in form, or was cut
or extended, is.
"""

from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, groupby

from chunkproof.audit.findings import (
    NO_TEXT,
    Finding,
    Kind,
    Stray,
    duplicate_text_finding,
    find_source,
    missing_finding,
)
from chunkproof.audit.join import AuditRun, read_strays
from chunkproof.audit.ledger import ChunkState, ExpectedChunk, MatchFacts, StrayState, parse_point_key, point_key
from chunkproof.collection.reader import BATCH_SIZE, in_batches
from chunkproof.contract import MismatchKind
from chunkproof.proof.integrity import digest, possible_originals
from chunkproof.proof.near_text import containment, shingles, similarity, sketch_keys
from chunkproof.stores.store_port import Point, PointId

ELSEWHERE = "No point has this id; its text is stored, but as another chunk of the manifest"
# An edited text is matched if it shares half of its shingles: two such texts have a common origin.
SIMILAR = 0.5
# A part of a text is matched if it has so many characters, and this share of the whole.
LEAST_PART_CHARS, LEAST_PART = 20, 0.1
# Pairs below this share of the shorter text are not compared whole.
WORTH_COMPARING = 0.3
# A key that more texts have is boilerplate: of them, only the first ones are candidates.
MAX_SAME_KEY = 20
PARTS = (MismatchKind.TRUNCATED, MismatchKind.EXTENDED)
# Each stored text is compared with its neighbours among those that share a key, not with all of them.
NEIGHBOURS = 3


def match_by_content(run: AuditRun) -> None:
    """Log a finding for each chunk and point that the ids left over, unless their texts match."""
    missing_ids = run.ledger.count("SELECT count(*) FROM chunk WHERE state = ?", ChunkState.MISSING)
    counts = _SameTexts(run).resolve_all()
    # At least half of the chunks have theirs: the manifest and the collection use the same ids.
    by_nearest = _match_nearest(run, ids_overlap=missing_ids * 2 <= run.progress.compared)
    by_id = run.ledger.manifest.chunks - missing_ids
    run.save(matching=MatchFacts(by_id=by_id, by_nearest_text=by_nearest, **counts))


@dataclass
class _Text:
    """What is known of one text: the chunks that have it, by their state, as rows of the ledger."""

    entries: int = 0
    stored: "array[int]" = field(default_factory=lambda: array("q"))
    missing: "array[int]" = field(default_factory=lambda: array("q"))
    faulty: int | None = None
    strays: int = 0


class _SameTexts:
    """All texts that several chunks or points have."""

    def __init__(self, run: AuditRun) -> None:
        self._run, self._ledger = run, run.ledger
        self._pairs: list[tuple[int, PointId]] = []
        self._counts = Counter({"by_text": 0, "repeated_texts": 0, "extra_points": 0})

    def resolve_all(self) -> Counter[str]:
        """Resolve every text that several chunks or points have; return counts for the report."""
        self._ledger.execute(  # so far, all findings are about texts
            "UPDATE chunk SET state = ? WHERE state = ? AND chunk_id IN (SELECT chunk_id FROM finding WHERE kind <> ?)",
            ChunkState.FAULTY,
            ChunkState.STORED,
            Kind.ORPHAN,
        )
        self._ledger.execute("CREATE TEMP TABLE repeated (sha256 BLOB PRIMARY KEY) WITHOUT ROWID")
        self._ledger.execute(
            "INSERT INTO repeated SELECT sha256 FROM ("
            "SELECT sha256 FROM chunk WHERE sha256 <> x'' UNION ALL SELECT sha256 FROM stray WHERE state = ?"
            ") WHERE sha256 <> ? GROUP BY sha256 HAVING count(*) > 1",
            StrayState.UNCLAIMED,
            NO_TEXT,
        )
        rows = self._ledger.rows(  # sorted apart from the tables, which change meanwhile
            "SELECT sha256, 0, chunk_id, id, state, chunk_id, '' FROM chunk WHERE sha256 IN repeated "
            "UNION ALL SELECT sha256, 1, point, id, state, chunk_id, source FROM stray "
            "WHERE state = ? AND sha256 IN repeated ORDER BY 1, 2, 3",
            StrayState.UNCLAIMED,
        )
        for _, of_text in groupby(rows, key=lambda row: row[0]):
            self._resolve(of_text)
        self._judge_pairs()
        self._ledger.execute("DROP TABLE repeated")
        return self._counts

    def _resolve(self, rows: Iterator[tuple[bytes, int, str, int, int, str, str | None]]) -> None:
        """Match the points of one text with its chunks: first those of the same document, then any."""
        text = _Text()
        strays: Iterator[tuple[int, Stray]] = iter(())
        for row in rows:  # chunks in the order of their ids, then strays
            _, is_stray, _, chunk, state, _, _ = row
            if is_stray:
                strays = (
                    (stray, Stray(parse_point_key(point), chunk_id, source))
                    for _, _, point, stray, _, chunk_id, source in chain((row,), rows)
                )
                break
            text.entries += 1
            if state == ChunkState.STORED:
                text.stored.append(chunk)
            elif state == ChunkState.MISSING:
                text.missing.append(chunk)
            else:
                text.faulty = chunk
        if not text.stored and not text.missing:
            self._log_orphans(text, strays)
            return
        paired, copies = self._pair(text, strays)
        points = len(text.stored) + text.strays
        if points > 1:
            self._counts["repeated_texts"] += 1
            self._counts["extra_points"] += points - 1
        if points:
            for chunk in text.missing:
                if chunk not in paired:
                    self._log_missing(self._ledger.read_chunk(chunk), ELSEWHERE)
        self._log_copies(text, paired, copies, points)

    def _log_orphans(self, text: _Text, strays: Iterator[tuple[int, Stray]]) -> None:
        """The text is in no entry, or only in one whose own point has another text."""
        of_chunk = None if text.faulty is None else self._ledger.read_chunk(text.faulty).chunk_id
        for row, stray in strays:
            text.strays += 1
            if of_chunk is not None:
                details = f"Stored, but not in the manifest; it has the text of chunk {of_chunk}, which is wrong itself"
                self._run.log_finding(stray.to_orphan(details))
                _resolve_stray(self._run, row)
        if text.strays > 1:
            self._counts["repeated_texts"] += 1
            self._counts["extra_points"] += text.strays - 1

    def _pair(self, text: _Text, strays: Iterator[tuple[int, Stray]]) -> tuple[dict[int, PointId], list[PointId]]:
        """Pair missing chunks with points; return the pairs and two of the points that are left."""
        by_source: dict[str | None, deque[int]] = defaultdict(deque)
        for chunk in text.missing if len(text.missing) > 1 else ():
            by_source[find_source(self._ledger.read_chunk(chunk).entry)].append(chunk)
        paired: dict[int, PointId] = {}
        others: list[PointId] = []
        for row, stray in strays:
            text.strays += 1
            _resolve_stray(self._run, row)
            if by_source.get(stray.source):
                paired[by_source[stray.source].popleft()] = stray.point_id
            elif len(others) < len(text.missing) + 2:
                others.append(stray.point_id)
        waiting = [chunk for chunk in text.missing if chunk not in paired]
        paired |= dict(zip(waiting, others, strict=False))
        for pair in paired.items():
            self._pairs.append(pair)
            if len(self._pairs) == BATCH_SIZE:
                self._judge_pairs()
        return paired, others[len(waiting) :][:2]

    def _log_copies(self, text: _Text, paired: dict[int, PointId], copies: list[PointId], points: int) -> None:
        """Each point beyond the chunks that have one is a copy; each makes one chunk a duplicate."""
        owners = sorted((*text.stored, *paired))
        for chunk in owners[: points - len(owners)]:
            own = [paired[chunk]] if chunk in paired else []
            entry = self._ledger.read_chunk(chunk).entry
            self._run.log_finding(duplicate_text_finding(entry, [*own, *copies], points, text.entries))

    def _log_missing(self, expected: ExpectedChunk, details: str = "No point has this id") -> None:
        self._run.log_finding(missing_finding(expected.entry, details))
        self._ledger.mark(expected, ChunkState.FAULTY)

    def _judge_pairs(self) -> None:
        """Compare the metadata of chunks that were matched by their text; a point may be gone by now."""
        points = self._run.reader.read_points([point_id for _, point_id in self._pairs])
        for chunk, point_id in self._pairs:
            expected, point = self._ledger.read_chunk(chunk), points.get(point_id)
            if point is None:
                self._log_missing(expected)
                continue
            self._counts["by_text"] += 1
            sql = "UPDATE chunk SET state = ?, moved_to = ? WHERE id = ?"
            self._ledger.execute(sql, ChunkState.STORED, point_key(point_id), chunk)
            if finding := self._run.judge(expected, point):
                self._run.log_finding(finding.model_copy(update={"matched_by": "text"}))
        self._pairs.clear()


def _resolve_stray(run: AuditRun, row: int) -> None:
    run.ledger.execute("UPDATE stray SET state = ? WHERE id = ?", StrayState.RESOLVED, row)


def _match_nearest(run: AuditRun, *, ids_overlap: bool) -> int:
    """Log a mismatch for each chunk whose nearest text is near enough, and the others as missing and orphans.

    Return how many were matched.
    """
    matched = 0
    is_missing = f"state = {ChunkState.MISSING:d}"
    if any(run.ledger.read(where=is_missing)) and any(read_strays(run, StrayState.UNCLAIMED)):
        matched = sum(_take_pair(run, *pair) for pair in _rank_pairs(run, ids_overlap=ids_overlap))
        run.ledger.execute("DROP TABLE ranked")
    for expected in run.ledger.read(where=is_missing):
        details = "No point has this id, and none has this text" if expected.hashed else "No point has this id"
        run.log_finding(missing_finding(expected.entry, details))
    for _, stray in read_strays(run, StrayState.UNCLAIMED):
        run.log_finding(stray.to_orphan())
    return matched


def _take_pair(run: AuditRun, chunk: int, stray: int, finding: str) -> bool:
    """Log the finding of a pair, unless one of the two is in a better pair."""
    free = (
        "SELECT count(*) FROM chunk, stray WHERE chunk.id = ? AND chunk.state = ? AND stray.id = ? AND stray.state = ?"
    )
    if not run.ledger.count(free, chunk, ChunkState.MISSING, stray, StrayState.UNCLAIMED):
        return False
    run.ledger.mark(run.ledger.read_chunk(chunk), ChunkState.FAULTY)
    _resolve_stray(run, stray)
    run.log_finding(Finding.model_validate_json(finding))
    return True


def _rank_pairs(run: AuditRun, *, ids_overlap: bool) -> Iterator[tuple[int, int, str]]:
    """Yield the pairs that are near enough, and their findings, best first."""
    run.ledger.execute("CREATE TEMP TABLE ranked (score REAL, chunk INTEGER, stray INTEGER, finding TEXT)")
    for pairs in in_batches(_find_candidates(run)):
        points = run.reader.read_points(list(dict.fromkeys(parse_point_key(point) for _, _, point in pairs)))
        for chunk, stray, key in pairs:
            if point := points.get(parse_point_key(key)):
                score, finding = _compare(run.ledger.read_chunk(chunk), point, run)
                if finding and score >= (1.0 if ids_overlap else SIMILAR):
                    sql = "INSERT INTO ranked VALUES (?, ?, ?, ?)"
                    run.ledger.execute(sql, round(score, 9), chunk, stray, finding.to_json())
    yield from run.ledger.rows("SELECT chunk, stray, finding FROM ranked ORDER BY score DESC, chunk, stray")


def _find_candidates(run: AuditRun) -> Iterator[tuple[int, int, str]]:
    """Yield each missing chunk with each point that shares a key with it, as rows of the ledger, and its point."""
    ledger, has_hashes = run.ledger, False
    ledger.execute("CREATE TEMP TABLE sketch (key TEXT, is_stray INTEGER, id INTEGER)")
    ledger.execute("CREATE TEMP TABLE pair (chunk INTEGER, stray INTEGER, PRIMARY KEY (chunk, stray)) WITHOUT ROWID")
    add_key, add_pair = "INSERT INTO sketch VALUES (?, ?, ?)", "INSERT OR IGNORE INTO pair VALUES (?, ?)"
    for expected in ledger.read(where=f"state = {ChunkState.MISSING:d}"):
        text = expected.entry.original_text
        has_hashes |= text is None
        hashed = [f"h{expected.sha256}"] if expected.hashed else []
        ledger.add_rows(add_key, ((key, 0, expected.id) for key in (hashed if text is None else sketch_keys(text))))
    for row, text in _read_texts(run):
        originals = {f"h{digest(each)}" for each in possible_originals(text)} if has_hashes else ()
        ledger.add_rows(add_key, ((key, 1, row) for key in (*sketch_keys(text), *originals)))
    keys = ledger.rows("SELECT key, is_stray, id FROM sketch ORDER BY key, is_stray, id")
    for _, of_key in groupby(keys, key=lambda row: row[0]):
        chunks: list[int] = []
        strays = 0
        for _, is_stray, row in of_key:
            if not is_stray and len(chunks) < MAX_SAME_KEY:
                chunks.append(row)
            elif is_stray and chunks and strays < MAX_SAME_KEY:
                strays += 1
                ledger.add_rows(add_pair, ((chunk, row) for chunk in chunks))
    yield from ledger.rows("SELECT chunk, stray, point FROM pair JOIN stray ON stray.id = stray ORDER BY chunk, stray")
    ledger.execute("DROP TABLE sketch")
    ledger.execute("DROP TABLE pair")


def _read_texts(run: AuditRun) -> Iterator[tuple[int, str]]:
    """Yield the rows of the unclaimed points, and their texts."""
    for batch in in_batches(read_strays(run, StrayState.UNCLAIMED)):
        points = run.reader.read_points([stray.point_id for _, stray in batch])
        for row, stray in batch:
            text = run.text_of(points.get(stray.point_id))
            if text is not None:
                yield row, text


def _compare(expected: ExpectedChunk, point: Point, run: AuditRun) -> tuple[float, Finding | None]:
    """Return how near the texts are, and the finding: 2 for the same text in another form, 1 and more for a part."""
    stored, original = run.text_of(point), expected.entry.original_text
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
    finding = run.judge(expected, point)
    if not expected.hashed or finding is None or finding.kind is not Kind.MISMATCH or finding.mismatch is None:
        return 0.0, None
    kind = finding.mismatch.kind
    details = f"Nearest text, under the id {point.id}: {finding.details}"
    finding = finding.model_copy(update={"matched_by": "nearest_text", "details": details})
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


def find_near_duplicates(run: AuditRun, least: float) -> None:
    """Log each stored text that has at least this similarity with another one, in one more scan of the collection.

    Equal texts are compared once. A text is reported with the nearest of the texts that were read before it.
    """
    last: tuple[PointId, float, Finding] | None = None
    for pairs in in_batches(_find_near_pairs(run)):
        points = run.reader.read_points(list(dict.fromkeys(point_id for pair in pairs for point_id in pair)))
        texts = {point_id: run.text_of(point) for point_id, point in points.items()}
        parts = {point_id: shingles(text) for point_id, text in texts.items() if text}
        for later, earlier in pairs:
            if later not in parts or earlier not in parts or texts[later] == texts[earlier]:
                continue
            nearness = similarity(parts[later], parts[earlier])
            if nearness < least or (last is not None and last[0] == later and last[1] >= nearness):
                continue
            if last is not None and last[0] != later:
                run.log_finding(last[2])
            last = later, nearness, _near_duplicate(points[later], points[earlier], nearness, run)
    if last is not None:
        run.log_finding(last[2])


def _find_near_pairs(run: AuditRun) -> Iterator[tuple[PointId, PointId]]:
    """Yield pairs of points that share a key, in the order of the later point."""
    ledger = run.ledger
    ledger.execute("CREATE TEMP TABLE sketch (key TEXT, sha256 TEXT, point TEXT)")
    ledger.execute("CREATE TEMP TABLE pair (later TEXT, earlier TEXT, PRIMARY KEY (later, earlier)) WITHOUT ROWID")
    for page in run.reader.pages():
        for point in page.points:
            if text := run.text_of(point):
                hashed, key_of_point = digest(text), point_key(point.id)
                rows = ((key, hashed, key_of_point) for key in sketch_keys(text))
                ledger.add_rows("INSERT INTO sketch VALUES (?, ?, ?)", rows)
    # Of equal texts, one is compared.
    keys = ledger.rows("SELECT key, min(point) FROM sketch GROUP BY key, sha256 ORDER BY key, sha256")
    for _, of_key in groupby(keys, key=lambda row: row[0]):
        before: list[str] = []
        for _, later in of_key:
            ledger.add_rows("INSERT OR IGNORE INTO pair VALUES (?, ?)", [(later, earlier) for earlier in before])
            before = [*before, later][-NEIGHBOURS:]
    for later, earlier in ledger.rows("SELECT later, earlier FROM pair ORDER BY later, earlier"):
        yield parse_point_key(later), parse_point_key(earlier)
    ledger.execute("DROP TABLE sketch")
    ledger.execute("DROP TABLE pair")


def _near_duplicate(later: Point, earlier: Point, nearness: float, run: AuditRun) -> Finding:
    payloads = run.reader.payloads
    return Finding(
        chunk_id=payloads.id_of(later),
        kind=Kind.NEAR_DUPLICATE,
        details=f"Nearly the text of {payloads.id_of(earlier)}: {nearness:.0%} in common",
        point_ids=(later.id, earlier.id),
        source=payloads.source_of(later.payload),
    )
