"""Who answers a suite's searches: a protocol, and this process itself."""

from collections.abc import Callable
from typing import Any, Protocol

from chunkproof.deadline import Deadline
from chunkproof.models import (
    ChunkValidation,
    CollectionInfo,
    RetrievalResponse,
    SearchQuery,
    ValidationResult,
)
from chunkproof.retrieval.collection import collection_info
from chunkproof.retrieval.search import search
from chunkproof.retrieval.services import Services
from chunkproof.retrieval.validate import validate_chunk


class Backend(Protocol):
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


class LocalBackend:
    """This process answers, each request within a deadline of its own."""

    def __init__(self, services: Services, deadline: Callable[[], Deadline]) -> None:
        self.services = services
        self.new_deadline = deadline

    def search(self, request: dict[str, Any]) -> RetrievalResponse:
        """The same use case as behind the API."""
        return self._search(request, exact=False)

    def search_exactly(self, request: dict[str, Any]) -> RetrievalResponse:
        """The same without the index: every point is compared."""
        return self._search(request, exact=True)

    def _search(self, request: dict[str, Any], *, exact: bool) -> RetrievalResponse:
        query = SearchQuery.parse(request, self.services.settings.limits)
        return search(query, services=self.services, deadline=self.new_deadline(), exact=exact)

    def validate(self, request: dict[str, Any]) -> ValidationResult:
        """The same use case as behind the API."""
        asked = ChunkValidation.parse(request)
        return validate_chunk(asked, services=self.services, deadline=self.new_deadline())

    def collection(self, name: str | None) -> CollectionInfo:
        """The same use case as behind the API."""
        wanted = name or self.services.settings.collection
        return collection_info(wanted, services=self.services, deadline=self.new_deadline())
