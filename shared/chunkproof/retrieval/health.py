"""`GET /health`: whether this process, Qdrant and the embedder respond."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from chunkproof import CONTRACT_VERSION
from chunkproof.clients.ports import InputType
from chunkproof.deadline import Deadline, Stopwatch
from chunkproof.errors import ChunkproofError
from chunkproof.models.health import DependencyHealth, Health
from chunkproof.retrieval.embedding import check_embeddings
from chunkproof.retrieval.services import Services

if TYPE_CHECKING:
    from chunkproof.clients.resilience import CircuitBreaker


def check_health(*, services: Services | None = None, deadline: Deadline) -> Health:
    """Report that this process responds; with services, also whether Qdrant and the embedder do."""
    if services is None:
        return Health(status="ok", contract_version=CONTRACT_VERSION)
    embedder = services.require_embedder(services.settings.collection)
    # Half of the time each, so that both are asked even when one does not respond.
    half = Deadline(deadline.remaining_ms() / 2)
    qdrant = _check(lambda: services.store.collections(half), services.circuits.get("qdrant"))
    embedding = _check(
        lambda: check_embeddings(embedder.embed(["ping"], InputType.QUERY, deadline), 1),
        services.circuits.get(getattr(embedder, "service", "")),
    )
    is_ok = qdrant.status == embedding.status == "ok"
    return Health(
        status="ok" if is_ok else "down",
        contract_version=CONTRACT_VERSION,
        qdrant=qdrant,
        embedder=embedding,
    )


def _check(call: Callable[[], object], breaker: "CircuitBreaker | None") -> DependencyHealth:
    watch = Stopwatch()
    why: str | None = None
    try:
        call()
    except ChunkproofError as error:
        why = str(error)
    return DependencyHealth(
        status="down" if why else "ok",
        latency_ms=watch.ms(),
        message=why,
        circuit=breaker.state.value if breaker else None,
    )
