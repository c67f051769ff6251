"""The backend of a suite that tests a retriever, with the collection behind it where one is given."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Protocol

from chunkproof.deadline import Stopwatch
from chunkproof.errors import ChunkproofError, InvalidParameterError
from chunkproof.models import CollectionInfo, ExecutionMetadata, RetrievalResponse, ValidationResult
from chunkproof.models.response import ForeignResult
from chunkproof.retrieval.backend import Backend
from chunkproof.suite.cases import TestCase
from chunkproof_cli.retrievers.errors import RetrieverError
from chunkproof_cli.retrievers.mapping import Mapper
from chunkproof_cli.retrievers.results import Found

NO_SHA256 = "0" * 64
NO_COLLECTION = "No collection was given beside the retriever: add --collection NAME"


class Retriever(Protocol):
    """Anything that returns results for a query.

    `jobs` is how many calls at a time it takes by default; `is_live` is false where latency means nothing; `is_served`
    is true of a service, whose latency is judged.
    """

    jobs: int
    is_live: bool
    is_served: bool

    def retrieve(self, request: Mapping[str, Any]) -> Any:
        """Return results for the body of a `POST /search`, in the retriever's own form."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class RetrieverBackend:
    """Searches with a retriever; looks chunks up in `store`, which is None without a collection."""

    def __init__(
        self, name: str, retriever: Retriever, mapper: Mapper, store: Backend | None, cases: Sequence[TestCase] = ()
    ) -> None:
        self.name, self.store = name, store
        self.jobs, self.is_live, self.is_served = retriever.jobs, retriever.is_live, retriever.is_served
        self._retriever, self._mapper = retriever, mapper
        self._lock = Lock()
        self._with_keywords = {case.query_text for case in cases if case.expected_keywords}

    def search(self, request: dict[str, Any]) -> RetrievalResponse:
        """Retrieve, and return the first `top_k` results in the retriever's order."""
        watch = Stopwatch()
        answer = self._retriever.retrieve(request)
        latency_ms = watch.ms()
        found = self._keep(self._mapper.read(answer), request)[: request["top_k"]]
        if self.store is not None and request["query_text"] in self._with_keywords:
            found = [self._add_text(one, request) for one in found]
        return RetrievalResponse(
            query=request["query_text"],
            query_id=None,
            status="success",
            results=tuple(
                ForeignResult(
                    rank=rank,
                    text=one.text or "",
                    similarity_score=one.score or 0.0,
                    metadata=one.metadata,
                    has_text=one.text is not None,
                    has_score=one.score is not None,
                )
                for rank, one in enumerate(found, start=1)
            ),
            execution=ExecutionMetadata(
                latency_ms=round(latency_ms),
                result_count=len(found),
                threshold_applied=request.get("similarity_threshold", 0.0),
                requested_top_k=request["top_k"],
                collection=request.get("collection"),
                timestamp=datetime.now(UTC),
            ),
        )

    def validate(self, request: dict[str, Any]) -> ValidationResult:
        """Validate in the collection."""
        return self._require_store().validate(request)

    def collection(self, name: str | None) -> CollectionInfo:
        """Describe the collection."""
        return self._require_store().collection(name)

    def _require_store(self) -> Backend:
        if self.store is None:
            raise InvalidParameterError(NO_COLLECTION)
        return self.store

    def _keep(self, found: list[Found], request: dict[str, Any]) -> list[Found]:
        """Leave out results below the request's least score, which only cases that expect no results have."""
        least = request.get("similarity_threshold") or 0.0
        if not least or not found:
            return found
        if any(one.score is None for one in found):
            raise RetrieverError("The retriever returns no scores, so relevance_threshold cannot be judged")
        return [one for one in found if one.score is not None and one.score >= least]

    def _add_text(self, found: Found, request: dict[str, Any]) -> Found:
        """Read the text of a result that has none from the collection."""
        if found.text is not None or self.store is None:
            return found
        lookup = {"chunk_id": found.metadata.chunk_id, "original_sha256": NO_SHA256}
        where = {"collection": request["collection"]} if request.get("collection") else {}
        try:
            with self._lock:  # an embedded store serves one thread at a time
                stored = self.store.validate(lookup | where).stored_text
            return Found(found.metadata, stored, found.score)
        except ChunkproofError:
            return found
