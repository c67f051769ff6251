"""Compare the manifest with the whole collection in one pass: both come in the order of point ids."""

from collections.abc import Iterator

from chunkproof.audit.findings import judge
from chunkproof.audit.prepare import ExpectedChunk, point_key
from chunkproof.audit.session import Run
from chunkproof.clients.ports import Point
from chunkproof.retrieval.lookup import has_id


def scan(run: Run) -> None:
    """Judge every chunk that is on its expected point; log chunks that are not, and unexpected points."""
    join = _Join(run)
    for page in run.reader.pages(run.progress.next_point):
        for point in page.points:
            join.add(point)
        changed = run.recheck(join.suspects, on_gone=run.log_absent)
        join.suspects.clear()
        run.save(
            next_point=page.next_id,
            offset=join.offset,
            compared=join.compared,
            points=run.progress.points + len(page.points),
            changed=run.progress.changed + changed,
            **({} if page.next_id is not None else {"phase": "finish_scan"}),
        )


def finish_scan(run: Run) -> None:
    """Log the chunks of the manifest that are expected after the last point."""
    join = _Join(run)
    join.skip_to(None)
    run.save(offset=join.offset, compared=join.compared, phase="match")


class _Join:
    """The next expected chunk, and how far the manifest has been read."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._services = run.reader.services
        self._chunks: Iterator[tuple[int, ExpectedChunk]] = run.manifest.read(run.progress.offset)
        self.offset = run.progress.offset
        self.compared = run.progress.compared
        self.suspects: list[tuple[ExpectedChunk, Point]] = []
        self._next_offset = self.offset
        self._next: ExpectedChunk | None = None
        self._advance()

    def add(self, point: Point) -> None:
        """Judge the chunks that the manifest expects on this point."""
        key, payloads = point_key(point.id), self._services.payloads
        self.skip_to(key)
        own_id = payloads.id_of(point)
        claimed, claimed_own = False, False
        while self._next is not None and self._next.key == key:
            expected = self._next
            if expected.chunk_id == own_id or has_id(point, expected.chunk_id, payloads):
                claimed = True
                claimed_own |= expected.chunk_id == own_id
                if judge(expected, point, payloads):
                    self.suspects.append((expected, point))
            else:
                self._run.log_absent(expected)
            self._consume()
        if not claimed_own:
            # Claimed by its point id alone, its payload id may still be another chunk of the manifest.
            if claimed and (own_id == str(point.id) or self._has_shared_id(point)):
                return
            self._run.log_stray(own_id, point.id, claimed=claimed)

    def _has_shared_id(self, point: Point) -> bool:
        """Whether the id in the payload is not the chunk's but, most likely, its document's."""
        return self._services.payloads.id_path(point.payload) in self._run.reader.payloads.shared_paths

    def skip_to(self, key: str | None) -> None:
        """Log the chunks expected before this key, or all that are left, as absent."""
        while self._next is not None and (key is None or self._next.key < key):
            self._run.log_absent(self._next)
            self._consume()

    def _consume(self) -> None:
        self.offset = self._next_offset
        self.compared += 1
        self._advance()

    def _advance(self) -> None:
        self._next_offset, self._next = next(self._chunks, (self._next_offset, None))
