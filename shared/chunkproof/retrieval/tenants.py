"""A store restricted to one tenant's points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from chunkproof.clients.ports import Description, Features, Page, Point, PointId, StoreQuery, VectorStore
from chunkproof.deadline import Deadline
from chunkproof.models.filters import AnyOf, Condition, HasId


@dataclass(frozen=True, slots=True)
class TenantStore:
    """A `VectorStore` that adds its tenant's condition to every request.

    Use cases get this store instead of the real one, so none of them can forget the condition, and a caller's
    filter cannot widen it: Qdrant requires both to hold.
    """

    store: VectorStore
    field: str
    tenant: str

    @property
    def host(self) -> str:
        """The store's host."""
        return self.store.host

    def collections(self, deadline: Deadline) -> list[str]:
        """Return all names: the deployment allows collections, not the tenant."""
        return self.store.collections(deadline)

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Describe the collection, counting only the tenant's points."""
        found = self.store.describe(collection, deadline)
        own = self.count(collection, (), deadline)
        # The store counts indexed vectors of all tenants; unless all are indexed, claim none of this tenant's.
        is_indexed = found.indexed_vectors_count >= found.points_count
        return replace(found, points_count=own, indexed_vectors_count=own if is_indexed else 0)

    def features(self, deadline: Deadline) -> Features:
        """Return what the store can do."""
        return self.store.features(deadline)

    def search(self, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        """Search the tenant's points: a query's `where` applies to each of its legs.

        BM25 weighs a word by how many points of all tenants have it, so its scores are left out.
        """
        found = self.store.search([replace(query, where=self._own(query.where)) for query in queries], deadline)
        return [[_without_text_score(point) for point in points] for points in found]

    def sample_scores(self, query: StoreQuery, deadline: Deadline) -> list[float]:
        """Return the scores of the tenant's own points."""
        return self.store.sample_scores(replace(query, where=self._own(query.where)), deadline)

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """Return the tenant's points among these ids; another tenant's point does not exist."""
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
        """Return a page of the tenant's points."""
        return self.store.scroll(
            collection, deadline, limit=limit, where=self._own(where), start=start, with_vector=with_vector
        )

    def count(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """Count the tenant's points that meet the conditions."""
        return self.store.count(collection, self._own(where), deadline)

    def facet(
        self, collection: str, field: str, where: tuple[Condition, ...], deadline: Deadline, *, limit: int
    ) -> Mapping[str, int] | None:
        """Count the values of the tenant's points."""
        return self.store.facet(collection, field, self._own(where), deadline, limit=limit)

    def _own(self, where: tuple[Condition, ...]) -> tuple[Condition, ...]:
        return (AnyOf(self.field, (self.tenant,)), *where)


def _without_text_score(point: Point) -> Point:
    return replace(point, scores=replace(point.scores, text=None)) if point.scores else point
