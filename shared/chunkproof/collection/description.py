"""`GET /collections/{name}`: what a collection holds and how its payloads are read."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, cast

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.request import State
from chunkproof.collection.facts import choose_vector
from chunkproof.collection.payload_map import PayloadMap, flatten, lies_in_json_string
from chunkproof.collection.services import Collection
from chunkproof.contract import CollectionInfo, PayloadField, VectorInfo
from chunkproof.stores.store_port import Description

_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "list", dict: "object"}
_METRICS = {"Euclid": "Euclidean"}


def collection_info(collection: Collection) -> CollectionInfo:
    """Describe a collection: vectors, counts, payload fields of the first points, the payload mapping in force."""
    collection.forget()
    with collection.trace.stage("search", State.SEARCHED):
        description = collection.describe()
        payloads = collection.sample.payloads
    # A collection with several vectors is not an error here: this is where their names are looked up.
    config = description.vectors[0] if len(description.vectors) > 1 else None
    with suppress(InvalidParameterError):
        config = choose_vector(description.vectors, collection.settings.vector_name, collection.name)
    if config is None:
        raise InvalidParameterError(f"Collection {collection.name} has no dense vector")
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


def find_mapping(payloads: Sequence[dict[str, Any]], payload_map: PayloadMap) -> dict[str, str]:
    """Map each canonical field to the path that most of these payloads keep it under; leave out absent fields."""
    paths = {field: payload_map.usual_path(field, payloads) for field in payload_map.fields}
    return {field: path for field, path in paths.items() if path}


def find_text_fields(payloads: Sequence[dict[str, Any]], payload_map: PayloadMap) -> list[str]:
    """Return the payload field of the text, if an index can reach it: not if it is inside a JSON string."""
    path = find_mapping(payloads, payload_map).get("text")
    return [path] if path and not all(lies_in_json_string(path, payload) for payload in payloads) else []


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
