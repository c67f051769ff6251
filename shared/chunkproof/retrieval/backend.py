"""What a command or a suite runs against: this process, or a deployed stack behind the same protocol."""

from collections.abc import Callable, Mapping
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
    """The contract's routes, called with the JSON of their requests."""

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
    """Runs the use cases in this process, each request with a deadline of its own."""

    def __init__(self, services: Services, new_deadline: Callable[[], Deadline]) -> None:
        self.services = services
        self.new_deadline = new_deadline

    def at(self, versions: Mapping[str, str]) -> "LocalBackend":
        """Return the same backend with exactly these versions of published collections."""
        return LocalBackend(self.services.at(versions), self.new_deadline)

    def search(self, request: dict[str, Any]) -> RetrievalResponse:
        """Run the use case of `POST /search`."""
        return self._search(request, exact=False)

    def search_exactly(self, request: dict[str, Any]) -> RetrievalResponse:
        """Search without the index: every point is compared."""
        return self._search(request, exact=True)

    def _search(self, request: dict[str, Any], *, exact: bool) -> RetrievalResponse:
        query = SearchQuery.parse(request, self.services.settings.limits)
        return search(query, services=self.services, deadline=self.new_deadline(), exact=exact)

    def validate(self, request: dict[str, Any]) -> ValidationResult:
        """Run the use case of `POST /validate-chunk`."""
        return validate_chunk(ChunkValidation.parse(request), services=self.services, deadline=self.new_deadline())

    def collection(self, name: str | None) -> CollectionInfo:
        """Run the use case of `GET /collections/{name}`."""
        wanted = name or self.services.settings.collection
        return collection_info(wanted, services=self.services, deadline=self.new_deadline())
