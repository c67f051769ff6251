"""The response to `GET /collections/{name}`."""

from typing import Literal

from pydantic import Field

from chunkproof.models.base import Model


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

    name: str
    vector_size: int
    distance_metric: str
    points_count: int
    indexed_vectors_count: int
    indexed: bool
    status: Literal["green", "yellow", "red", "grey"]
    vectors: tuple[VectorInfo, ...]
    payload_fields: tuple[PayloadField, ...]
    payload_map: dict[str, str] = Field(description="Canonical field → the payload path it is read from")
