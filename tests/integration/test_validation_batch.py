"""Validation of several chunks at once: each as if it had been asked for alone."""

from time import process_time
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest

from chunkproof.base.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    InvalidParameterError,
    ResponseTooLargeError,
)
from chunkproof.base.request import Deadline
from chunkproof.collection.services import Services
from chunkproof.contract import ChunkValidations, ErrorDetail, ValidationResult, ValidationResults
from chunkproof.proof.chunk_checks import validate_chunks
from chunkproof.stores.store_port import Point, PointId, WritableStore

from support.chunks import check, fill, make_services

UUID = "550e8400-e29b-41d4-a716-446655440000"


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.server)])
def either(request: pytest.FixtureRequest) -> WritableStore:
    chosen: WritableStore = request.getfixturevalue(f"{request.param}_store")
    return chosen


def chunk(id_: PointId, text: object = "a text", **payload: Any) -> Point:
    return Point(id_, {"text": text, "url": "https://docs.example.com", **payload}, vector=(1.0, 0.0))


def checks(services: Services, *chunks: dict[str, Any], **request: Any) -> ValidationResults:
    asked = ChunkValidations.parse({"chunks": list(chunks), **request})
    return validate_chunks(asked, services.collection(asked.collection, Deadline(60_000)))


def alone_or_error(services: Services, item: dict[str, Any]) -> ValidationResult | ChunkproofError:
    try:
        return check(services, **item)
    except ChunkproofError as error:
        return error


def test_each_verdict_is_the_one_that_a_single_validation_gives(either: WritableStore, collection: str) -> None:
    fill(
        either,
        collection,
        chunk(1),
        chunk(UUID, "another"),
        chunk(2, chunk_id="named"),
        chunk(3, chunk_id="twice"),
        chunk(4, chunk_id="twice"),
        chunk(5, text=None),
        chunk(6, chunk_id="7"),
        chunk(7),
        chunk(8),
    )
    services = make_services(either, collection)
    asked: list[dict[str, Any]] = [
        {"chunk_id": "1", "original_text": "a text"},
        {"chunk_id": UUID.upper(), "original_text": "anoth"},
        {"chunk_id": "named", "original_sha256": "0" * 64},
        {"chunk_id": "twice", "original_text": "a text"},
        {"chunk_id": "5", "original_text": "a text"},
        {"chunk_id": "7", "original_text": "a text"},
        {"chunk_id": "8"},
        {"chunk_id": "nobody", "original_text": "a text"},
        {"chunk_id": "1", "original_text": "once more, and different"},
    ]
    found = checks(services, *asked)
    codes = []
    for item, verdict in zip(asked, found.results, strict=True):
        assert verdict.chunk_id == item["chunk_id"]
        alone = alone_or_error(services, item)
        if isinstance(alone, ChunkproofError):
            assert verdict.error == ErrorDetail(code=alone.code, message=alone.message)
            codes.append(alone.code)
        else:
            assert verdict.result is not None
            timed = {"retrieval_time_ms": alone.retrieval_time_ms}
            assert verdict.result.model_copy(update=timed) == alone
    assert codes == ["AMBIGUOUS_ID", "CORRUPT_CHUNK", "AMBIGUOUS_ID", "INVALID_REQUEST", "CHUNK_NOT_FOUND"]
    assert (found.total, found.passed, found.failed, found.errors) == (9, 1, 3, 5)


def test_a_hundred_are_asked_for_in_one_call_after_the_sample_is_read(
    memory_store: WritableStore, collection: str
) -> None:
    ids = [str(uuid4()) for _ in range(100)]
    fill(memory_store, collection, *(chunk(point_id) for point_id in ids))
    calls: list[str] = []

    class Counted:
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(memory_store, name)

    services = make_services(Counted(), collection)  # type: ignore[arg-type]
    found = checks(services, *({"chunk_id": point_id, "original_text": "a text"} for point_id in ids))
    assert found.passed == 100
    assert calls == ["scroll", "scroll", "fetch"]


def test_ids_of_points_and_of_payloads_are_asked_for_in_one_call(memory_store: WritableStore, collection: str) -> None:
    ids = [str(uuid4()) for _ in range(6)]
    fill(memory_store, collection, *(chunk(point_id, chunk_id=f"own {at}") for at, point_id in enumerate(ids)))
    services = make_services(memory_store, collection)
    named = [{"chunk_id": ids[0], "original_text": "a text"}, {"chunk_id": "own 1", "original_text": "a text"}]
    assert checks(services, *named).passed == 2  # reads the sample
    with patch.object(type(memory_store), "scroll", autospec=True, side_effect=type(memory_store).scroll) as scroll:
        assert checks(services, *named).passed == 2
    assert scroll.call_count == 1


@pytest.mark.parametrize(
    ("request_", "messages"),
    [
        ({}, ["chunks is required"]),
        ({"chunks": "1"}, ["chunks must be a list"]),
        ({"chunks": []}, ["chunks must have 1 to 100 items"]),
        ({"chunks": [{"chunk_id": "1"}] * 101}, ["chunks must have 1 to 100 items"]),
        ({"chunks": [1]}, ["chunks[0] must be a JSON object"]),
        (
            {"chunks": [{"chunk_id": "1"}, {"chunk_id": " ", "colection": "x", "original_sha256": "y"}]},
            [
                "chunks[1].chunk_id cannot be empty",
                "chunks[1].original_sha256 must be 64 hexadecimal digits",
                "chunks[1].colection is not a known field",
            ],
        ),
        (
            {"chunks": [{"chunk_id": "\ud800"}]},
            ["chunks[0].chunk_id has a lone surrogate, which is not valid Unicode"],
        ),
    ],
)
def test_a_request_that_breaks_a_rule_is_refused_with_the_place(request_: dict[str, Any], messages: list[str]) -> None:
    with pytest.raises(InvalidParameterError) as raised:
        ChunkValidations.parse(request_)
    assert list(raised.value.messages) == messages


def test_an_unknown_collection_fails_all_of_them(memory_store: WritableStore, collection: str) -> None:
    with pytest.raises(CollectionNotFoundError):
        checks(make_services(memory_store, collection), {"chunk_id": "1", "original_text": "x"})


def test_more_text_than_a_response_carries_is_refused_before_it_is_compared(
    either: WritableStore, collection: str
) -> None:
    fill(either, collection, chunk(1, "x" * 500_000))
    services = make_services(either, collection)
    started = process_time()
    with pytest.raises(ResponseTooLargeError, match="send fewer chunks at a time"):
        checks(services, *({"chunk_id": "1", "original_text": "y"} for _ in range(100)))
    assert process_time() - started < 0.5
    assert checks(services, *({"chunk_id": "1", "original_text": "y"} for _ in range(10))).failed == 10
