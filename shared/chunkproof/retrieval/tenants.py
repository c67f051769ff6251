"""One tenant's part of a store: whatever a use case asks, only that tenant's points answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chunkproof.clients.ports import Description, NearestQuery, Page, Point, PointId, VectorStore
from chunkproof.deadline import Deadline
from chunkproof.models.filters import AnyOf, Condition, HasId


@dataclass(frozen=True, slots=True)
class TenantStore:
    """A `VectorStore` that adds its tenant's condition to every question.

    It stands between the use cases and the store, so that none of them can forget the condition and no filter
    of a caller can widen it: Qdrant wants both to hold.
    """

    store: VectorStore
    field: str
    tenant: str

    @property
    def host(self) -> str:
        """Where the store is."""
        return self.store.host

    def collections(self, deadline: Deadline) -> list[str]:
        """All names: collections are allowed by the deployment, not by tenant."""
        return self.store.collections(deadline)

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """The collection's shape; it counts only the tenant's points."""
        found = self.store.describe(collection, deadline)
        own = self.count(collection, (), deadline)
        # Which vectors are indexed is known of all together; short of all, none of these is claimed to be.
        is_indexed = found.indexed_vectors_count >= found.points_count
        return replace(found, points_count=own, indexed_vectors_count=own if is_indexed else 0)

    def nearest(self, query: NearestQuery, deadline: Deadline) -> list[Point]:
        """The tenant's best points."""
        return self.store.nearest(replace(query, where=self._own(query.where)), deadline)

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """The tenant's points among these ids: another's does not exist."""
        page = self.scroll(
            collection, deadline, limit=max(1, len(ids)), where=(HasId(tuple(ids)),), with_vector=with_vector
        )
        return list(page.points)

    def scroll(
        self,
        collection: str,
        deadline: Deadline,
        *,
        limit: int,
        where: tuple[Condition, ...] = (),
        start: PointId | None = None,
        with_vector: str | None = None,
    ) -> Page:
        """A page of the tenant's points."""
        return self.store.scroll(
            collection, deadline, limit=limit, where=self._own(where), start=start, with_vector=with_vector
        )

    def count(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """How many of the tenant's points meet the conditions."""
        return self.store.count(collection, self._own(where), deadline)

    def _own(self, where: tuple[Condition, ...]) -> tuple[Condition, ...]:
        return (AnyOf(self.field, (self.tenant,)), *where)
