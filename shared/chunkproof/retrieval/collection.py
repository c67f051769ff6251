"""What a collection holds and how its payloads are read."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, cast

from chunkproof.clients.ports import Description
from chunkproof.deadline import Deadline
from chunkproof.errors import InvalidParameterError
from chunkproof.models import CollectionInfo, PayloadField, VectorInfo
from chunkproof.retrieval.payload import PayloadMap, flatten
from chunkproof.retrieval.services import Services, choose_vector
from chunkproof.trace import State, note, stage

_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "list", dict: "object"}
_METRICS = {"Euclid": "Euclidean"}


def collection_info(name: str, *, services: Services, deadline: Deadline) -> CollectionInfo:
    """Shape, counts, payload fields of the first points and the mapping in force."""
    collection = services.collection(name)
    note(collection=collection)
    services.forget(collection)
    with stage("search", State.SEARCHED):
        description = services.store.describe(collection, deadline)
        payloads = services.sample(collection, deadline).payloads
    # Here one looks up the names to choose from, so that several vectors are no failure.
    space = description.vectors[0] if len(description.vectors) > 1 else None
    with suppress(InvalidParameterError):
        space = choose_vector(description.vectors, services.settings.vector_name, collection)
    if space is None:
        raise InvalidParameterError(f"Collection {collection} has no dense vector")
    return CollectionInfo(
        name=collection,
        vector_size=space.size,
        distance_metric=_METRICS.get(space.distance, space.distance),
        points_count=description.points_count,
        indexed_vectors_count=description.indexed_vectors_count,
        indexed=description.points_count > 0
        and description.indexed_vectors_count >= description.points_count,
        status=cast(Literal["green", "yellow", "red", "grey"], description.status),
        vectors=tuple(
            VectorInfo(name=v.name, size=v.size, distance_metric=_METRICS.get(v.distance, v.distance))
            for v in description.vectors
        ),
        payload_fields=tuple(_fields(payloads, description)),
        payload_map=find_mapping(payloads, services.payloads),
    )


def find_mapping(payloads: Sequence[dict[str, Any]], payload_map: PayloadMap) -> dict[str, str]:
    """Canonical field → the path most of these payloads keep it under; fields that none has are left out."""
    found = {field: payload_map.usual_path(field, payloads) for field in payload_map.fields}
    return {field: path for field, path in found.items() if path}


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
