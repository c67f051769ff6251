"""Whether the service, and what it depends on, answers."""

from typing import Literal

from pydantic import Field

from chunkproof.models.base import Model


class DependencyHealth(Model):
    """One dependency, asked now."""

    status: Literal["ok", "down"]
    latency_ms: float
    message: str | None = Field(None, description="Why it is down")
    circuit: Literal["closed", "open", "half-open"] | None = Field(
        None, description="Whether calls go through; after failures in a row it is open and they do not"
    )


class Health(Model):
    """`GET /health`; the dependencies are there only for `?deep=true`."""

    status: Literal["ok", "down"]
    contract_version: str
    qdrant: DependencyHealth | None = Field(None, exclude_if=lambda value: value is None)
    embedder: DependencyHealth | None = Field(None, exclude_if=lambda value: value is None)
