"""The protocols of embedding models and rerankers.

Only the client that implements a protocol imports the SDK behind it, and it translates the SDK's exceptions into
`chunkproof.base.errors`.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from chunkproof.base.request import Deadline

Item = TypeVar("Item")
Made = TypeVar("Made")


class InputType(StrEnum):
    """Whether a text is embedded as a query or a document, which Cohere's models distinguish."""

    QUERY = "search_query"
    DOCUMENT = "search_document"


class Embedder(Protocol):
    """Turns texts into vectors, one each, in order; raises `QueryTooLongError` instead of truncating a text."""

    @property
    def model(self) -> str:
        """Name of the model of documents, as recorded in payloads; queries may have a `query_model` of their own."""

    @property
    def dimension(self) -> int | None:
        """Size of its vectors; None until the first response."""

    @property
    def max_batch(self) -> int:
        """The most texts that one call may have."""

    def excess(self, text: str) -> str | None:
        """Explain by how much the text is too long for the model; None when it fits or only a call can decide."""

    def embed(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        """Return one vector per text."""


def call_in_batches(
    call: Callable[[Sequence[Item]], Iterable[Made]],
    items: Sequence[Item],
    size: int,
    refused: type[Exception] | tuple[type[Exception], ...],
    if_alone: Callable[[Item], Iterable[Made]] | None = None,
) -> Iterator[Made]:
    """Yield what calls with at most `size` items return, in order.

    A batch that is `refused` is halved until the items at fault are alone. These are raised, unless `if_alone` returns
    what they get instead.
    """
    for start in range(0, len(items), size):
        batch = items[start : start + size]
        try:
            made = call(batch)
        except refused:
            if len(batch) > 1:
                made = call_in_batches(call, batch, -(-len(batch) // 2), refused, if_alone)
            elif if_alone is None:
                raise
            else:
                made = if_alone(batch[0])
        yield from made


def query_model(embedder: Embedder) -> str:
    """Return the model that embeds queries: an embedder may have a `query_model` besides its `model`."""
    return getattr(embedder, "query_model", None) or embedder.model


def prepare_embedder(embedder: Embedder) -> None:
    """Let a model in this process start to load, while its caller goes on: an embedder may have a `prepare`."""
    if prepare := getattr(embedder, "prepare", None):
        prepare()


def embedder_identity(embedder: Embedder) -> Hashable:
    """Return what makes its vectors its own: its `identity` (service, models, size, prefixes), if it has one."""
    named = (type(embedder).__qualname__, embedder.model, query_model(embedder), embedder.dimension)
    return getattr(embedder, "identity", None) or named


@dataclass(frozen=True, slots=True)
class Relevance:
    """A reranker's score for each document, in their order.

    `maybe_cut` counts the documents that may be longer than the model reads, so that their end did not count.
    """

    scores: tuple[float, ...]
    maybe_cut: int = 0


class Reranker(Protocol):
    """Scores how relevant documents are to a query, by reading each together with the query."""

    def rerank(self, query: str, documents: Sequence[str], model: str, deadline: Deadline) -> Relevance:
        """Return one finite score per document, higher for more relevant; otherwise raise a `RerankError`."""
