"""Looking an id up where the server filters by indexed fields alone."""

import pytest
from qdrant_client import models

from chunkproof.base.errors import ChunkNotFoundError, IndexRequiredError
from chunkproof.base.request import Deadline
from chunkproof.collection.services import Services
from chunkproof.stores.store_port import Point, WritableStore

from support.chunks import ask, check, make_services
from support.sdk import sdk

pytestmark = pytest.mark.server


@pytest.fixture
def strict(server_store: WritableStore, collection: str) -> Services:
    """Two chunks, one with an id of its own in `chunk_id`, one in `id`."""
    sdk(server_store).create_collection(
        collection,
        vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE),
        strict_mode_config=models.StrictModeConfig(enabled=True, unindexed_filtering_retrieve=False),
    )
    points = [
        Point(1, {"text": "one", "chunk_id": "c-1"}, vector=(1.0, 0.0)),
        Point(2, {"text": "two", "id": "c-2"}, vector=(1.0, 0.0)),
    ]
    server_store.upsert(collection, points, "", Deadline(60_000))
    return make_services(server_store, collection)


def index(services: Services, *fields: str) -> None:
    assert isinstance(services.store, WritableStore)
    for field in fields:
        sdk(services.store).create_payload_index(services.settings.collection, field, field_schema="keyword", wait=True)


def test_a_point_id_needs_no_index(strict: Services) -> None:
    assert check(strict, "1", original_text="one").matches


def test_an_id_in_an_indexed_field_is_found(strict: Services) -> None:
    index(strict, "chunk_id")
    assert check(strict, "c-1", original_text="one").matches


def test_all_ids_are_found_once_all_fields_are_indexed(strict: Services) -> None:
    index(strict, "chunk_id", "id", "metadata.chunk_id")
    assert check(strict, "c-1", original_text="one").matches
    assert check(strict, "c-2", original_text="two").matches
    with pytest.raises(ChunkNotFoundError):
        check(strict, "c-3", original_text="two")


def test_without_an_index_the_error_says_which_one_to_make(strict: Services) -> None:
    with pytest.raises(IndexRequiredError) as caught:
        check(strict, "c-1", original_text="one")
    name = strict.settings.collection
    assert f'create_payload_index("{name}", field_name="chunk_id", field_schema="keyword")' in str(caught.value)


def test_an_id_in_a_field_without_an_index_is_not_called_unknown(strict: Services) -> None:
    index(strict, "chunk_id")
    assert "c-2" in {r.metadata.chunk_id for r in ask(strict, query_vector=[1.0, 0.0]).results}
    with pytest.raises(IndexRequiredError):
        check(strict, "c-2", original_text="two")


def test_an_unknown_id_is_unknown_when_every_field_in_use_is_indexed(strict: Services) -> None:
    index(strict, "chunk_id", "id")
    with pytest.raises(ChunkNotFoundError):
        check(strict, "c-3", original_text="three")


def test_a_search_can_filter_by_an_indexed_chunk_id(strict: Services) -> None:
    index(strict, "chunk_id")
    assert isinstance(strict.store, WritableStore)
    sdk(strict.store).delete(strict.settings.collection, [2])  # the one that keeps its id elsewhere
    found = ask(strict, query_vector=[1.0, 0.0], filters={"chunk_id": "c-1"}).results
    assert [result.text for result in found] == ["one"]
