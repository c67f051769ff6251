"""Whether the service, and what it depends on, answers."""

from typing import Literal

from pydantic import Field

from chunkproof.models.base import Model


class DependencyHealth(Model):
    """One dependency, asked now."""

    status: Literal["ok", "down"]
    latency_ms: float
    message: str | None = Field(None, description="Why it is down")


class Health(Model):
    """`GET /health`; the dependencies are there only for `?deep=true`."""

    status: Literal["ok", "down"]
    contract_version: str
    qdrant: DependencyHealth | None = Field(None, exclude_if=lambda value: value is None)
    embedder: DependencyHealth | None = Field(None, exclude_if=lambda value: value is None)
