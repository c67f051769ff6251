"""What a command or a suite runs against: this process, or a deployed stack behind the same protocol."""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import Any, Protocol, TypeVar

from chunkproof.base.errors import ChunkproofError, InternalError
from chunkproof.base.request import Deadline, RequestTrace
from chunkproof.collection.facts import collection_info
from chunkproof.collection.services import PAUSES, Collection, LongRun, Services
from chunkproof.contract import ChunkValidation, CollectionInfo, RetrievalResponse, SearchQuery, ValidationResult
from chunkproof.embedders.embedder_port import InputType
from chunkproof.proof.chunk_checks import validate_chunk
from chunkproof.search.single import search

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


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
    """Runs the use cases in this process, each request with a deadline of its own; all are recorded in `trace`."""

    def __init__(
        self, services: Services, new_deadline: Callable[[], Deadline], trace: RequestTrace | None = None
    ) -> None:
        self.services = services
        self.new_deadline = new_deadline
        self._trace = trace

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
        if self._trace is not None and query.queries is None:
            self._trace.record_query(query, in_full=self.services.settings.log_queries)
        return search(query, self._open(query.collection), exact=exact)

    def embed_ahead(self, requests: Iterable[dict[str, Any]]) -> None:
        """Embed the queries of these searches in as few calls as possible; a request that is wrong is left to `search`.

        A call that fails is repeated once, after the pause that a service asks for.
        """
        together: dict[int, tuple[LongRun, list[str]]] = {}
        for request in requests:
            with suppress(ChunkproofError):
                query = SearchQuery.parse(request, self.services.settings.limits)
                run = LongRun(self.services, self._open(query.collection).name, self.new_deadline, PAUSES[:1])
                together.setdefault(id(run.queries.embedder), (run, []))[1].append(query.query_text or "")
        for run, texts in together.values():
            run.queries.embed_ahead(texts, partial(run.embed, input_type=InputType.QUERY))

    def validate(self, request: dict[str, Any]) -> ValidationResult:
        """Run the use case of `POST /validate-chunk`."""
        wanted = ChunkValidation.parse(request)
        return validate_chunk(wanted, self._open(wanted.collection))

    def collection(self, name: str | None) -> CollectionInfo:
        """Run the use case of `GET /collections/{name}`."""
        return collection_info(self._open(name))

    def collections(self) -> list[str]:
        """List the collections of the store that the deployment allows."""
        settings = self.services.settings
        names = self.services.store.collections(self.new_deadline())
        allowed = {*settings.allowed_collections, settings.collection}
        return [name for name in names if not settings.allowed_collections or name in allowed]

    def _open(self, name: str | None) -> Collection:
        return self.services.collection(name, self.new_deadline(), self._trace)


def call_backend(call: Callable[..., Answer], *arguments: Any) -> Answer:
    """Call the backend; an exception that is not a `ChunkproofError` is raised as `InternalError`.

    Its message names the class and the line, never the exception's own text, which may hold what a report must not.
    """
    try:
        return call(*arguments)
    except ChunkproofError:
        raise
    except Exception as error:
        logger.debug("unexpected failure of the backend", exc_info=True)
        frame = extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}, line {frame.lineno}"
        raise InternalError(f"Unexpected {type(error).__name__} ({where})") from error
