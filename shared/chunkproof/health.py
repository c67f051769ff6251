"""Asking the dependencies how they are."""

from collections.abc import Callable

from chunkproof import CONTRACT_VERSION
from chunkproof.clients import InputType
from chunkproof.deadline import Deadline, Stopwatch
from chunkproof.errors import ChunkproofError
from chunkproof.models.health import DependencyHealth, Health
from chunkproof.services import Services


def health(*, using: Services | None = None, deadline: Deadline) -> Health:
    """That this process answers; with services, whether Qdrant and the embedder do."""
    if using is None:
        return Health(status="ok", contract_version=CONTRACT_VERSION)
    embedder = using.query_embedder().embedder
    # Half of the time each: one that is silent must not keep the other from being asked.
    half = Deadline(deadline.remaining_ms() / 2)
    qdrant = _asked(lambda: using.store.collections(half))
    embedding = _asked(lambda: embedder.embed(["ping"], InputType.QUERY, deadline))
    is_well = qdrant.status == embedding.status == "ok"
    return Health(
        status="ok" if is_well else "down",
        contract_version=CONTRACT_VERSION,
        qdrant=qdrant,
        embedder=embedding,
    )


def _asked(ask: Callable[[], object]) -> DependencyHealth:
    watch = Stopwatch()
    try:
        ask()
    except ChunkproofError as error:
        return DependencyHealth(status="down", latency_ms=watch.ms(), message=error.message)
    return DependencyHealth(status="ok", latency_ms=watch.ms())
