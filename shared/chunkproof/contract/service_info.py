"""The response to `GET /collections/{name}`."""

from typing import Literal

from pydantic import ConfigDict, Field

from chunkproof.contract.model import Count, Items, Milliseconds, Model, is_none, require_all


class VectorInfo(Model):
    """One dense vector of the collection; the unnamed one has an empty name."""

    name: str
    size: int
    distance_metric: str


class PayloadField(Model):
    """A payload field as the sampled points have it."""

    name: str
    type: str
    share: float = Field(ge=0.0, le=1.0, description="Share of the sampled points that have it")
    indexed: bool


class CollectionInfo(Model):
    """A collection's vectors and counts, and how its payloads are read."""

    model_config = ConfigDict(json_schema_extra=require_all)

    name: str
    vector_size: Count
    distance_metric: str
    points_count: Count
    indexed_vectors_count: Count
    indexed: bool = Field(default_factory=lambda known: is_indexed(**known))
    status: Literal["green", "yellow", "red", "grey"]
    vectors: Items[VectorInfo] = ()
    payload_fields: Items[PayloadField] = ()
    payload_map: dict[str, str] = Field(
        default_factory=dict, description="Canonical field → the payload path it is read from"
    )


def is_indexed(*, points_count: int, indexed_vectors_count: int, **_: object) -> bool:
    """Whether a collection has points, and each is in the index."""
    return 0 < points_count <= indexed_vectors_count


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
