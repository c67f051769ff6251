"""What is known of a collection, and how it is found out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import TYPE_CHECKING

from chunkproof.base.errors import InvalidParameterError, UnsupportedDistanceError
from chunkproof.collection.payload_map import PayloadMap
from chunkproof.stores.store_port import TextLeg, VectorConfig

if TYPE_CHECKING:
    from chunkproof.collection.embedding import QueryEmbedder
    from chunkproof.collection.payload_map import Hashes
    from chunkproof.collection.services import Collection

UNIT_SAMPLE = 100


@dataclass(frozen=True, slots=True)
class Sample:
    """The first payloads of a collection, which show the pipeline that wrote it."""

    payloads: tuple[dict[str, object], ...]
    is_complete: bool = False


@dataclass(slots=True)
class Facts:
    """What is known of a collection; None where nothing needed it yet. `Collection` finds out what is missing.

    `models` are the embedding models in payloads that can be compared with the query's, and those that cannot.
    """

    sample: Sample | None = None
    payloads: PayloadMap | None = None
    hashes: "Hashes | None" = None
    text_leg: TextLeg | None = None
    queries: "QueryEmbedder | None" = None
    models: dict[str, bool] = field(default_factory=dict)
    vector: VectorConfig | None = None


def choose_vector(vectors: Sequence[VectorConfig], wanted: str | None, collection: str) -> VectorConfig:
    """Choose the setting's vector, else the unnamed one, else the only one; otherwise an error lists the names."""
    by_name = {vector.name: vector for vector in vectors}
    if wanted in by_name:
        return by_name[wanted]
    if "" in by_name:
        return by_name[""]
    if len(vectors) == 1:
        return vectors[0]
    if not vectors:
        raise InvalidParameterError(
            f"Collection {collection} has no dense vector: only mode text, without diversity, can search it"
        )
    raise InvalidParameterError(
        f"Collection {collection} has several vectors: set CHUNKPROOF_VECTOR_NAME to one of {', '.join(by_name)}"
    )


def has_cosine_scores(config: VectorConfig, collection: "Collection") -> bool:
    """Whether scores are cosines; False while that cannot be known, `UnsupportedDistanceError` when not."""
    if config.distance == "Cosine":
        return True
    if config.distance != "Dot":
        raise UnsupportedDistanceError(
            f"Collection {collection.name} measures {config.distance}; "
            "scores from 0 to 1 need Cosine, or Dot with unit vectors"
        )
    points = collection.first_points(UNIT_SAMPLE, with_vector=config.name).points
    lengths = [(p.id, fsum(v * v for v in p.vector) ** 0.5) for p in points if p.vector]
    odd = next(((point, length) for point, length in lengths if abs(length - 1.0) > 1e-2), None)
    if odd is not None:
        raise UnsupportedDistanceError(
            f"Collection {collection.name} measures Dot, and its vectors are not of length 1 "
            f"(point {odd[0]}: {odd[1]:.3f}); scores from 0 to 1 need unit vectors or Cosine"
        )
    return bool(lengths)
