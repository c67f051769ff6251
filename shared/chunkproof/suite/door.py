"""Who answers a suite's searches: a protocol, and this process itself."""

from collections.abc import Callable
from typing import Any, Protocol

from chunkproof.collection import collection_info
from chunkproof.deadline import Deadline
from chunkproof.models import (
    ChunkValidation,
    CollectionInfo,
    RetrievalResponse,
    SearchQuery,
    ValidationResult,
)
from chunkproof.search import search
from chunkproof.services import Services
from chunkproof.suite.store_witness import StoreWitness
from chunkproof.validation import validate_chunk


class Door(Protocol):
    """The routes that a run asks: use cases of this process, or a deployed stack."""

    def search(self, request: dict[str, Any]) -> RetrievalResponse:
        """`POST /search`."""
        ...

    def validate(self, request: dict[str, Any]) -> ValidationResult:
        """`POST /validate-chunk`."""
        ...

    def collection(self, name: str | None) -> CollectionInfo:
        """`GET /collections/{name}`."""
        ...


class InProcess:
    """This process answers, each request within a deadline of its own."""

    def __init__(self, using: Services, deadline: Callable[[], Deadline]) -> None:
        self._using = using
        self._deadline = deadline

    def search(self, request: dict[str, Any]) -> RetrievalResponse:
        """The same use case as behind the API."""
        return self._search(request, exact=False)

    def search_exactly(self, request: dict[str, Any]) -> RetrievalResponse:
        """The same without the index: every point is compared."""
        return self._search(request, exact=True)

    def _search(self, request: dict[str, Any], *, exact: bool) -> RetrievalResponse:
        query = SearchQuery.parse(request, self._using.settings.limits)
        return search(query, using=self._using, deadline=self._deadline(), exact=exact)

    def witness(self) -> StoreWitness:
        """Looks into the store for what a failed case expects."""
        return StoreWitness(self, self._using, self._deadline)

    def validate(self, request: dict[str, Any]) -> ValidationResult:
        """The same use case as behind the API."""
        asked = ChunkValidation.parse(request)
        return validate_chunk(asked, using=self._using, deadline=self._deadline())

    def collection(self, name: str | None) -> CollectionInfo:
        """The same use case as behind the API."""
        wanted = name or self._using.settings.collection
        return collection_info(wanted, using=self._using, deadline=self._deadline())
