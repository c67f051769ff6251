"""The manifest joined with the whole collection in one pass: both come in the order of point ids."""

from collections.abc import Iterator

from chunkproof.audit.findings import judge
from chunkproof.audit.prepare import Expected, point_key
from chunkproof.audit.session import Run
from chunkproof.clients.ports import Point
from chunkproof.retrieval.lookup import answers_to


def scan(run: Run) -> None:
    """Judge every chunk that is where it should be; log what is not, and every point that nobody asked for."""
    join = _Join(run)
    for page in run.reader.pages(run.progress.next_point):
        for point in page.points:
            join.take(point)
        changed = run.judged_again(join.suspects, gone=run.absent)
        join.suspects.clear()
        run.save(
            next_point=page.next_id,
            offset=join.offset,
            seen=join.seen,
            points=run.progress.points + len(page.points),
            changed=run.progress.changed + changed,
            **({} if page.next_id is not None else {"phase": "rest"}),
        )


def rest(run: Run) -> None:
    """Chunks of the manifest after the last point."""
    join = _Join(run)
    join.pass_by(None)
    run.save(offset=join.offset, seen=join.seen, phase="settle")


class _Join:
    """The manifest's side: the next expected chunk, and how far it was read."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._services = run.reader.services
        self._coming: Iterator[tuple[int, Expected]] = run.prepared.read(run.progress.offset)
        self.offset = run.progress.offset
        self.seen = run.progress.seen
        self.suspects: list[tuple[Expected, Point]] = []
        self._next_offset = self.offset
        self._next: Expected | None = None
        self._advance()

    def take(self, point: Point) -> None:
        """Judge what the manifest expects at this point."""
        key, payloads = point_key(point.id), self._services.payloads
        self.pass_by(key)
        own_id = payloads.id_of(point)
        claimed, claimed_own = False, False
        while self._next is not None and self._next.key == key:
            expected = self._next
            chunk_id = expected.chunk_id
            if chunk_id == own_id or answers_to(chunk_id, point, self._services):
                claimed = True
                claimed_own |= chunk_id == own_id
                if judge(expected, point, payloads):
                    self.suspects.append((expected, point))
            else:
                self._run.absent(expected)
            self._done()
        if not claimed_own:
            # Claimed by its point id alone, its payload's id may still be another chunk of the manifest.
            if claimed and own_id == str(point.id):
                return
            self._run.stray(own_id, point.id, claimed=claimed)

    def pass_by(self, key: str | None) -> None:
        """Chunks expected before this key, or all that are left, are not where they should be."""
        while self._next is not None and (key is None or self._next.key < key):
            self._run.absent(self._next)
            self._done()

    def _done(self) -> None:
        self.offset = self._next_offset
        self.seen += 1
        self._advance()

    def _advance(self) -> None:
        self._next_offset, self._next = next(self._coming, (self._next_offset, None))
