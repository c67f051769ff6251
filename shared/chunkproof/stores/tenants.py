"""The store of one tenant's points in a collection that several tenants share."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import AnyOf, Condition, HasId
from chunkproof.stores.qdrant import QdrantStore
from chunkproof.stores.store_port import Description, Features, Point, PointId, StoreQuery, TextLeg


class TenantStore(QdrantStore):
    """A `VectorStore` that adds its tenant's condition to every request of another store.

    Use cases get this store instead of the real one, so none of them can forget the condition, and a caller's
    filter cannot widen it: Qdrant requires both to hold.
    """

    def __init__(self, store: QdrantStore, field: str, tenant: str) -> None:
        super().__init__(store.host)
        self.tenant = tenant
        self._store, self._condition = store, AnyOf(field, (tenant,))
        self._limits, self.is_embedded = store._limits, store.is_embedded

    def call(self, *arguments: Any, **options: Any) -> Any:
        """Send the request."""
        return self._store.call(*arguments, **options)

    def features(self, deadline: Deadline) -> Features:
        """Return what the store can do."""
        return self._store.features(deadline)

    def makes_vectors(self, deadline: Deadline) -> bool:
        """Whether BM25 vectors are made in this process."""
        return self._store.makes_vectors(deadline)

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Describe the collection, counting only the tenant's points."""
        found = self._store.describe(collection, deadline)
        own = self.count(collection, (), deadline)
        # The store counts indexed vectors of all tenants; unless all are indexed, claim none of this tenant's.
        is_indexed = found.indexed_vectors_count >= found.points_count
        return replace(found, points_count=own, indexed_vectors_count=own if is_indexed else 0)

    def search(self, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        """Search the tenant's points; a word weighs by how many of these have it."""
        found = super().search([self._own_query(query, deadline) for query in queries], deadline)
        return [[replace(p, scores=p.scores and replace(p.scores, text=None)) for p in points] for points in found]

    def _own_query(self, query: StoreQuery, deadline: Deadline) -> StoreQuery:
        text = query.text
        if text is not None:
            check_own_words(text, self.features(deadline))
            text = replace(text, corpus=(self._condition,))
        return replace(query, where=self._own(query.where), text=text)

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """Return the tenant's points among these ids; another tenant's point does not exist."""
        where = (HasId(tuple(ids)),)
        page = self.scroll(collection, deadline, limit=max(1, len(ids)), where=where, with_vector=with_vector)
        return list(page.points)

    def _own(self, where: tuple[Condition, ...]) -> tuple[Condition, ...]:
        return where if self._condition in where else (self._condition, *where)


def check_own_words(leg: TextLeg, features: Features) -> None:
    """Raise `InvalidParameterError` unless words can be weighed by the points of one tenant.

    Weighed by all points, the order of a tenant's own results shows which words the points of others have.
    """
    if leg.sparse_vector is None or not features.idf_corpus:
        weighs = f"{features.store} weighs words" if leg.sparse_vector else "a text index weighs words"
        raise InvalidParameterError(
            f"mode text and mode hybrid are off for tenants: {weighs} by how many chunks of all tenants have them, "
            "which shows the words of others. Use mode dense; or search a BM25 vector, which chunkproof load --hybrid "
            "makes, on Qdrant 1.19 or later or with Store=edge, where words are weighed within each tenant"
        )
