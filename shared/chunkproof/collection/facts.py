"""What is known of a collection, how it is found out, and how `GET /collections/{name}` shows it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import TYPE_CHECKING, Any, Literal, cast

from chunkproof.base.errors import InvalidParameterError, TextIndexRequiredError, UnsupportedDistanceError
from chunkproof.base.request import State
from chunkproof.collection.payload_map import PayloadMap, flatten, lies_in_json_string
from chunkproof.contract import CollectionInfo, PayloadField, VectorInfo
from chunkproof.stores.store_port import Description, Features, TextLeg, VectorConfig

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


def find_text_leg(collection: "Collection") -> TextLeg:
    """Return how the collection is searched by words: a leg without a text yet.

    `TextIndexRequiredError` names the call that makes an index.
    """
    description = collection.describe()
    features = collection.ask(collection.store.features)
    payloads = collection.sample.payloads
    if payloads:
        return choose_text_leg(description, features, find_text_paths(payloads, collection.services.payloads))
    # It may be filled any moment, in any way.
    return choose_text_leg(description, features, [*map(_unquote, description.text_fields)] or ["text"])


def choose_text_leg(description: Description, features: Features, text_paths: list[str]) -> TextLeg:
    """Choose a sparse vector, else a text index."""
    name = description.name
    bm25 = [vector for vector, modifier in description.sparse_vectors.items() if modifier == "idf"]
    named = [vector for vector in bm25 if "bm25" in vector.lower()]
    if features.bm25 and (len(bm25) == 1 or len(named) == 1):
        return TextLeg("", sparse_vector=(named or bm25)[0])
    if features.text_index:
        indexed = {*map(_unquote, description.text_fields)}
        for path in text_paths:
            if path in indexed:
                return TextLeg("", field=path)
    if features.bm25 and bm25:
        raise TextIndexRequiredError(
            f"Collection {name} has several sparse vectors with the IDF modifier ({', '.join(sorted(bm25))}): "
            "the one to search by words must have bm25 in its name"
        )
    raise TextIndexRequiredError(_advice(name, features, description, text_paths))


def _advice(name: str, features: Features, description: Description, text_paths: list[str]) -> str:
    """Return what is missing, and which call makes it."""
    lacks = f"Collection {name} cannot be searched by words"
    if not (features.bm25 or features.text_index):
        return f"{lacks}: {explain_missing_bm25(features)}"
    others = [vector for vector, modifier in description.sparse_vectors.items() if modifier != "idf"]
    has = (
        f"its sparse vector {others[0]} has no IDF modifier, so it is not BM25" if others else "it has no BM25 vectors"
    )
    lacks = f"{lacks}: {has}"
    if features.text_index and text_paths:
        return (
            f"{lacks} and its texts have no index that ranks. Make one: "
            f'create_payload_index("{name}", field_name="{text_paths[0]}", '
            'field_schema=TextIndexParams(type="text", scoring=True))'
        )
    return (
        f"{lacks}. Make a collection with create_collection(…, "
        'sparse_vectors_config={"bm25": SparseVectorParams(modifier="idf")}) and write each point with '
        '"bm25": Document(text=…, model="qdrant/bm25"), or run chunkproof load --hybrid'
    )


def explain_missing_bm25(features: Features) -> str:
    """Say that neither the store nor this process makes BM25 vectors, and what does."""
    return (
        f"{features.store} makes no BM25 vectors. Update it to 1.15.3 or later, or run Chunkproof where "
        "qdrant-edge-py is installed, which makes them"
    )


def find_text_paths(payloads: Sequence[Mapping[str, Any]], payload_map: PayloadMap) -> list[str]:
    """Return where the payloads keep their text, as far as the store can read it: no index reaches into a string."""
    paths = payload_map.paths_in("text", payloads)
    return [p for p in paths if not any(lies_in_json_string(p, payload) for payload in payloads)]


def _unquote(key: str) -> str:
    return key.replace('"', "")


_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "list", dict: "object"}
_METRICS = {"Euclid": "Euclidean"}


def collection_info(collection: "Collection") -> CollectionInfo:
    """Describe a collection: vectors, counts, payload fields of the first points, the payload mapping in force."""
    collection.forget()
    with collection.trace.stage("search", State.SEARCHED):
        description = collection.describe()
        payloads = collection.sample.payloads
    try:
        config = choose_vector(description.vectors, collection.settings.vector_name, collection.name)
    except InvalidParameterError:
        if not description.vectors:
            raise
        config = description.vectors[0]  # this is where the names of several are looked up
    return CollectionInfo(
        name=collection.name,
        vector_size=config.size,
        distance_metric=_METRICS.get(config.distance, config.distance),
        points_count=description.points_count,
        indexed_vectors_count=description.indexed_vectors_count,
        status=cast(Literal["green", "yellow", "red", "grey"], description.status),
        vectors=tuple(
            VectorInfo(name=v.name, size=v.size, distance_metric=_METRICS.get(v.distance, v.distance))
            for v in description.vectors
        ),
        payload_fields=tuple(_fields(payloads, description)),
        payload_map=find_mapping(payloads, collection.services.payloads),
    )


def find_mapping(payloads: Sequence[Mapping[str, Any]], payload_map: PayloadMap) -> dict[str, str]:
    """Map each canonical field to the path that most of these payloads keep it under; leave out absent fields."""
    return {field: path for field in payload_map.fields if (path := payload_map.usual_path(field, payloads))}


def _fields(payloads: Sequence[dict[str, Any]], description: Description) -> list[PayloadField]:
    seen: Counter[str] = Counter()
    types: dict[str, set[str]] = {}
    for payload in payloads:
        for name, value in flatten(payload):
            if value is not None:
                seen[name] += 1
                types.setdefault(name, set()).add(_TYPES.get(type(value), type(value).__name__))
    return [
        PayloadField(
            name=name,
            type=" or ".join(sorted(types[name])),
            share=count / len(payloads),
            indexed=name in description.indexed_fields,
        )
        for name, count in sorted(seen.items())
    ]
