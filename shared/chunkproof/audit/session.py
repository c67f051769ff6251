"""What the phases of an audit share: what to read, where to write, how far it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from chunkproof.audit.findings import Finding, judge
from chunkproof.audit.prepare import Expected, Prepared, id_key, keyed
from chunkproof.audit.reader import Reader
from chunkproof.audit.state import Logs, Progress, save
from chunkproof.clients.ports import Point, PointId


@dataclass
class Run:
    """One audit under way."""

    folder: Path
    prepared: Prepared
    reader: Reader
    logs: Logs
    progress: Progress
    watch: Callable[[Progress], None] = lambda _progress: None
    _since: float = field(default_factory=monotonic)

    def found(self, finding: Finding) -> None:
        """Log what is wrong with a chunk."""
        self.logs.add("findings", keyed(id_key(finding.chunk_id), finding.model_dump(mode="json")))

    def absent(self, expected: Expected) -> None:
        """Log a chunk that is not where it should be; it may be elsewhere."""
        self.logs.add(
            "missing", keyed(id_key(expected.chunk_id), [expected.chunk_id, expected.line.decode()])
        )

    def stray(self, chunk_id: str, point_id: PointId, *, claimed: bool) -> None:
        """Log a point whose own chunk id no entry had there; claimed when its point id is one in the manifest."""
        self.logs.add("strays", keyed(id_key(chunk_id), [chunk_id, point_id, claimed]))

    def save(self, **now: Any) -> None:
        """All of it up to here is done."""
        elapsed, self._since = monotonic() - self._since, monotonic()
        seconds = self.progress.seconds + elapsed
        update = {**now, "lengths": self.logs.lengths(), "seconds": seconds}
        if now.get("phase") == "vectors":
            update["reading_seconds"] = seconds
        self.progress = self.progress.model_copy(update=update)
        save(self.folder, self.progress)
        self.watch(self.progress)

    def judged_again(
        self, suspects: Sequence[tuple[Expected, Point]], gone: Callable[[Expected], None]
    ) -> int:
        """Read chunks that looked wrong once more, and log what is wrong still; how many had changed meanwhile."""
        if not suspects:
            return 0
        payloads = self.reader.services.payloads
        now = self.reader.fetch([point.id for _, point in suspects])
        changed = 0
        for expected, before in suspects:
            point = now.get(before.id)
            if point is None:
                gone(expected)
                changed += 1
                continue
            changed += point.payload != before.payload
            if finding := judge(expected, point, payloads):
                self.found(finding)
        return changed
