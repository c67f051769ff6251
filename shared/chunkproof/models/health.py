"""The response to `GET /health`."""

from typing import Literal

from pydantic import Field

from chunkproof.models.base import Milliseconds, Model, is_none


class DependencyHealth(Model):
    """The state of one dependency."""

    status: Literal["ok", "down"]
    latency_ms: Milliseconds
    message: str | None = Field(None, description="Why it is down")
    circuit: Literal["closed", "open", "half-open"] | None = Field(
        None, description="The circuit breaker: open after repeated failures, when no calls are made"
    )


class Health(Model):
    """The state of the service; the dependencies are included only with `deep=true`."""

    status: Literal["ok", "down"]
    contract_version: str
    qdrant: DependencyHealth | None = Field(None, exclude_if=is_none)
    embedder: DependencyHealth | None = Field(None, exclude_if=is_none)
