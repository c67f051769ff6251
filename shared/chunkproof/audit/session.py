"""What the phases of a running audit share: the manifest, the reader, the logs and the progress."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

from chunkproof.audit.findings import Finding, Stray, judge, missing_finding
from chunkproof.audit.prepare import ExpectedChunk, SortedManifest, encode_id, format_line
from chunkproof.audit.reader import Reader
from chunkproof.audit.state import Logs, Progress, save_state
from chunkproof.clients.ports import Point, PointId
from chunkproof.errors import CorruptChunkError


@dataclass
class Run:
    """A running audit."""

    folder: Path
    manifest: SortedManifest
    reader: Reader
    logs: Logs
    progress: Progress
    on_progress: Callable[[Progress], None] = lambda _progress: None
    _saved_at: float = field(default_factory=monotonic)

    def log_finding(self, finding: Finding) -> None:
        """Log what is wrong with a chunk."""
        self.logs.add("findings", finding.to_log_line())

    def log_absent(self, expected: ExpectedChunk) -> None:
        """Log a chunk that is not on its expected point; it may be on another one."""
        fields = [expected.chunk_id, expected.line.decode()]
        self.logs.add("absent", format_line(encode_id(expected.chunk_id), fields))

    def log_stray(self, chunk_id: str, point_id: PointId, *, claimed: bool) -> None:
        """Log a point whose payload id the manifest does not expect there.

        It is claimed when the manifest has its point id as a chunk id.
        """
        self.logs.add("strays", format_line(encode_id(chunk_id), [chunk_id, point_id, claimed]))

    @property
    def matches_by_text(self) -> bool:
        """Whether chunks whose ids are not stored are looked for by their texts."""
        return self.progress.spec.match_by == "text"

    def log_missing(self, expected: ExpectedChunk) -> None:
        """Log a chunk whose id no point has; its text may be stored under another id."""
        if not self.matches_by_text:
            self.log_finding(missing_finding(expected.entry))
            return
        line = expected.line.decode()
        self.logs.add("missing", format_line(encode_id(expected.chunk_id), line))

    def log_unclaimed(self, point: Point) -> None:
        """Log a point whose id the manifest does not have; its text may be a chunk of the manifest."""
        stray = Stray.from_point(point, self.reader.payloads)
        try:
            text = self.reader.services.payloads.utf8_of(point) if self.matches_by_text else None
        except CorruptChunkError:
            text = None
        if text is None:
            self.log_finding(stray.to_orphan())
        else:
            self.logs.add("unclaimed", format_line(sha256(text).hexdigest(), stray))

    def save(self, **changes: Any) -> None:
        """Record that everything up to here is done."""
        now = monotonic()
        seconds, self._saved_at = self.progress.seconds + now - self._saved_at, now
        update = {**changes, "log_lengths": self.logs.flush(), "seconds": seconds}
        if changes.get("phase") == "vectors" and not self.progress.reading_seconds:
            update["reading_seconds"] = seconds
        self.progress = self.progress.model_copy(update=update)
        save_state(self.folder, self.progress)
        self.on_progress(self.progress)

    def recheck(self, suspects: Sequence[tuple[ExpectedChunk, Point]], on_gone: Callable[[ExpectedChunk], None]) -> int:
        """Read chunks that looked wrong again, and log what still is. Return how many changed in between."""
        if not suspects:
            return 0
        payloads = self.reader.services.payloads
        points = self.reader.fetch([point.id for _, point in suspects])
        changed = 0
        for expected, before in suspects:
            point = points.get(before.id)
            if point is None:
                on_gone(expected)
                changed += 1
                continue
            changed += point.payload != before.payload
            if finding := judge(expected, point, payloads):
                self.log_finding(finding)
        return changed
