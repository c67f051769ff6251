"""`GET /collections/{name}`: what it says about a collection."""

import json
from typing import Any

import pytest
from qdrant_client import models

from chunkproof.base.errors import CollectionNotFoundError
from chunkproof.base.request import Deadline
from chunkproof.collection.facts import collection_info
from chunkproof.contract import CollectionInfo
from chunkproof.stores.store_port import Point, WritableStore

from support.chunks import fill, make_services
from support.sdk import sdk


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.server)])
def either(request: pytest.FixtureRequest) -> WritableStore:
    """A store in memory and one on a server."""
    chosen: WritableStore = request.getfixturevalue(f"{request.param}_store")
    return chosen


def describe(store: WritableStore, collection: str, **settings: str) -> CollectionInfo:
    return collection_info(make_services(store, collection, **settings).collection(collection, Deadline(60_000)))


def points(*payloads: dict[str, Any]) -> list[Point]:
    return [Point(n, payload, vector=(1.0, 0.0)) for n, payload in enumerate(payloads, start=1)]


def test_vectors_and_counts_are_shown(either: WritableStore, collection: str) -> None:
    fill(either, collection, *points({"text": "a"}, {"text": "b"}))
    info = json.loads(describe(either, collection).to_json())
    assert set(info) == {
        "name",
        "vector_size",
        "distance_metric",
        "points_count",
        "indexed_vectors_count",
        "indexed",
        "status",
        "vectors",
        "payload_fields",
        "payload_map",
    }
    assert (info["name"], info["vector_size"], info["points_count"]) == (collection, 2, 2)
    assert (info["status"], info["distance_metric"]) == ("green", "Cosine")
    # Two vectors are far below the size from which an engine builds an index.
    assert (info["indexed_vectors_count"], info["indexed"]) == (0, False)
    assert info["vectors"] == [{"name": "", "size": 2, "distance_metric": "Cosine"}]


@pytest.mark.parametrize(("distance", "shown"), [("Euclid", "Euclidean"), ("Dot", "Dot"), ("Cosine", "Cosine")])
def test_a_distance_is_named_as_people_write_it(
    either: WritableStore, collection: str, distance: str, shown: str
) -> None:
    params = models.VectorParams(size=2, distance=models.Distance(distance))
    sdk(either).create_collection(collection, vectors_config=params)
    info = describe(either, collection)
    assert info.distance_metric == shown
    assert [vector.distance_metric for vector in info.vectors] == [shown]


def test_payload_fields_have_types_and_shares(either: WritableStore, collection: str) -> None:
    fill(
        either,
        collection,
        *points(
            {
                "text": "a",
                "n": 1,
                "x": 0.5,
                "ok": True,
                "tags": ["a"],
                "meta": {"url": "u", "deep": {"a": 1}},
            },
            {"text": "b", "n": 2.5, "ok": None, "tags": [], "meta": {"url": "v"}},
            {"text": "c", "n": "three", "meta": {}},
            {"text": "d"},
        ),
    )
    fields = {field.name: (field.type, field.share) for field in describe(either, collection).payload_fields}
    assert fields == {
        "text": ("string", 1.0),
        "n": ("integer or number or string", 0.75),
        "x": ("number", 0.25),
        "ok": ("boolean", 0.25),
        "tags": ("list", 0.5),
        "meta.url": ("string", 0.5),
        "meta.deep": ("object", 0.25),
    }


@pytest.mark.server
def test_indexed_fields_are_marked(server_store: WritableStore, collection: str) -> None:
    fill(server_store, collection, *points({"chunk_id": "c", "language": "en", "meta": {"url": "u"}}))
    sdk(server_store).create_payload_index(collection, "meta.url", field_schema="keyword", wait=True)
    marked = {field.name: field.indexed for field in describe(server_store, collection).payload_fields}
    assert marked == {"chunk_id": True, "language": False, "meta.url": True}


def test_the_mapping_in_force_is_shown(either: WritableStore, collection: str) -> None:
    fill(
        either,
        collection,
        *points(
            {"content": "a", "source_url": "u", "chunk_index": 1},
            {"content": "b", "source_url": "u", "metadata": {"title": "T"}},
            {"text": "c", "url": "v"},
        ),
    )
    assert describe(either, collection).payload_map == {
        "text": "content",
        "url": "source_url",
        "position": "chunk_index",
        "document_title": "metadata.title",
    }


def test_a_payload_map_is_part_of_the_mapping(either: WritableStore, collection: str) -> None:
    fill(either, collection, *points({"body": "a", "text": "b"}))
    assert describe(either, collection, PAYLOAD_MAP='{"text": "body"}').payload_map == {"text": "body"}


def test_an_empty_collection_has_no_fields(either: WritableStore, collection: str) -> None:
    fill(either, collection)
    info = describe(either, collection)
    assert (info.points_count, info.indexed, info.payload_fields, info.payload_map) == (0, False, (), {})


def test_several_vectors_are_all_shown_and_the_setting_chooses_the_size(either: WritableStore, collection: str) -> None:
    sdk(either).create_collection(
        collection,
        vectors_config={
            "title": models.VectorParams(size=2, distance=models.Distance.COSINE),
            "body": models.VectorParams(size=3, distance=models.Distance.EUCLID),
        },
        sparse_vectors_config={"words": models.SparseVectorParams()},
    )
    info = describe(either, collection, VECTOR_NAME="body")
    assert (info.vector_size, info.distance_metric) == (3, "Euclidean")
    assert {(v.name, v.size, v.distance_metric) for v in info.vectors} == {
        ("title", 2, "Cosine"),
        ("body", 3, "Euclidean"),
    }


def test_the_counts_are_those_of_now(either: WritableStore, collection: str) -> None:
    fill(either, collection)
    services = make_services(either, collection)
    assert collection_info(services.collection(collection, Deadline(60_000))).points_count == 0
    either.upsert(collection, points({"text": "a"}), "", Deadline(60_000))
    info = collection_info(services.collection(collection, Deadline(60_000)))
    assert (info.points_count, info.payload_map) == (1, {"text": "text"})


def test_an_unknown_or_forbidden_collection_is_not_found(either: WritableStore, collection: str) -> None:
    with pytest.raises(CollectionNotFoundError):
        describe(either, collection)
    fill(either, collection)
    services = make_services(either, "own", ALLOWED_COLLECTIONS="own")
    with pytest.raises(CollectionNotFoundError):
        collection_info(services.collection(collection, Deadline(60_000)))
