"""What is stored is data: it comes back as it is, and nothing in it acts or is fetched."""

from collections.abc import Iterator

import pytest

from chunkproof.service import container
from chunkproof.stores.store_port import Point, WritableStore

from support.api import get, invoke, post
from support.chunks import fill, make_services
from support.recording_server import RecordingServer, recording_server

HTML = "</script><img src=x onerror=alert(1)> & <b>bold</b> \x1b]8;;http://evil.example\x07"


@pytest.fixture
def stored_url() -> Iterator[RecordingServer]:
    with recording_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _deployed(memory_store: WritableStore, stored_url: RecordingServer) -> Iterator[None]:
    payload = {"text": HTML, "url": f"{stored_url.url}/page", "document_title": HTML}
    fill(memory_store, "docs", Point(1, payload, vector=(1.0, 0.0)))
    fill(memory_store, "private", Point(7, {"text": "hidden"}, vector=(1.0, 0.0)))
    with container.override(make_services(memory_store, "docs", ALLOWED_COLLECTIONS="docs")):
        yield


def test_markup_in_a_chunk_comes_back_as_the_same_characters_in_json() -> None:
    found = invoke(post("/search", {"query_vector": [1.0, 0.0]}))
    compared = invoke(post("/validate-chunk", {"chunk_id": "1", "original_text": HTML}))
    assert {found.headers["content-type"], compared.headers["content-type"]} == {"application/json"}
    assert found.json["results"][0]["text"] == found.json["results"][0]["metadata"]["document_title"] == HTML
    assert (compared.json["stored_text"], compared.json["matches"]) == (HTML, True)


def test_a_stored_address_is_never_asked(stored_url: RecordingServer) -> None:
    for event in (
        post("/search", {"query_vector": [1.0, 0.0], "with_payload": True}),
        post("/validate-chunk", {"chunk_id": "1", "original_text": HTML}),
        get("/collections/docs"),
    ):
        assert invoke(event).status == 200
    assert stored_url.requests == []


def test_a_chunk_of_a_collection_that_is_not_allowed_cannot_be_validated() -> None:
    reply = invoke(post("/validate-chunk", {"chunk_id": "7", "original_text": "x", "collection": "private"}))
    assert (reply.status, reply.code) == (404, "COLLECTION_NOT_FOUND")
