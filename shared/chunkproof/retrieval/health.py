"""Asking the dependencies how they are."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from chunkproof import CONTRACT_VERSION
from chunkproof.clients.ports import InputType
from chunkproof.deadline import Deadline, Stopwatch
from chunkproof.errors import ChunkproofError
from chunkproof.models.health import DependencyHealth, Health
from chunkproof.retrieval.services import Services

if TYPE_CHECKING:
    from chunkproof.clients.resilience import CircuitBreaker


def health(*, services: Services | None = None, deadline: Deadline) -> Health:
    """That this process answers; with services, whether Qdrant and the embedder do."""
    if services is None:
        return Health(status="ok", contract_version=CONTRACT_VERSION)
    embedder = services.query_embedder().embedder
    # Half of the time each: one that is silent must not keep the other from being asked.
    half = Deadline(deadline.remaining_ms() / 2)
    qdrant = _asked(lambda: services.store.collections(half), services.circuits.get("qdrant"))
    embedding = _asked(
        lambda: embedder.embed(["ping"], InputType.QUERY, deadline), services.circuits.get("cohere")
    )
    is_well = qdrant.status == embedding.status == "ok"
    return Health(
        status="ok" if is_well else "down",
        contract_version=CONTRACT_VERSION,
        qdrant=qdrant,
        embedder=embedding,
    )


def _asked(ask: Callable[[], object], breaker: "CircuitBreaker | None") -> DependencyHealth:
    watch = Stopwatch()
    why: str | None = None
    try:
        ask()
    except ChunkproofError as error:
        why = str(error)
    return DependencyHealth(
        status="down" if why else "ok",
        latency_ms=watch.ms(),
        message=why,
        circuit=breaker.state.value if breaker else None,
    )
