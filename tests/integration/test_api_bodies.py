"""A body in any wrapping: what is read, what is refused, and what a refusal echoes."""

import base64
import gzip
import json
import zlib
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from chunkproof.service import container
from chunkproof.service.api import MAX_REQUEST_BYTES
from chunkproof.service.oversized import MAX_RESPONSE_BYTES
from chunkproof.stores.store_port import Point, WritableStore

from support import openapi
from support.api import Reply, invoke, post, request
from support.chunks import fill, make_services

COLLECTION = "docs"
GOOD = b'{"query_vector": [1, 0], "query_id": "q-1"}'
GZIP = {"content-encoding": "gzip"}


@pytest.fixture(autouse=True)
def _one_chunk(memory_store: WritableStore) -> Iterator[None]:
    payload = {"text": "text é\u0301 🤖", "url": "https://docs.example.com/a", "document_title": "A"}
    fill(memory_store, COLLECTION, Point(1, payload, vector=(1.0, 0.0)))
    with container.override(make_services(memory_store, COLLECTION)):
        yield


def send(body: str | None, headers: dict[str, str] | None = None, **event: Any) -> Reply:
    reply = invoke(request("POST", "/search", body, headers, **event))
    assert openapi.problems("POST", "/search", reply.status, reply.json) == []
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"]
    return reply


def send_bytes(content: bytes, headers: dict[str, str] | None = None) -> Reply:
    return send(base64.b64encode(content).decode(), headers, isBase64Encoded=True)


def refused(reply: Reply, status: int = 400, code: str = "INVALID_REQUEST") -> list[str]:
    assert (reply.status, reply.code) == (status, code)
    return reply.errors


def found(reply: Reply) -> tuple[int, str, str]:
    return reply.status, reply.json["query_id"], reply.json["results"][0]["text"]


# wrappings


FOUND = (200, "q-1", "text é\u0301 🤖")


def test_a_plain_body_is_read() -> None:
    assert found(send(GOOD.decode())) == FOUND


def test_a_base64_body_is_read() -> None:
    assert found(send_bytes(GOOD)) == FOUND


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", " gzip "])
def test_a_gzip_body_is_unpacked(encoding: str) -> None:
    assert found(send_bytes(gzip.compress(GOOD), {"content-encoding": encoding})) == FOUND


@pytest.mark.parametrize("kind", ["application/json", "application/octet-stream", ""])
def test_a_gzip_body_in_base64_is_unpacked_whatever_its_content_type(kind: str) -> None:
    assert found(send_bytes(gzip.compress(GOOD), {**GZIP, "content-type": kind})) == FOUND


def test_a_gzip_body_that_a_gateway_took_for_text_is_read_if_no_byte_was_lost() -> None:
    packed = gzip.compress(GOOD)
    assert found(send(packed.decode("latin-1"), GZIP)) == FOUND
    (message,) = refused(send(packed.decode("utf-8", "replace"), GZIP))
    assert message.endswith("send it as content-type application/octet-stream")


@pytest.mark.parametrize("encoding", ["identity", ""])
def test_no_encoding_is_an_encoding(encoding: str) -> None:
    assert found(send(GOOD.decode(), {"content-encoding": encoding})) == FOUND


@pytest.mark.parametrize(
    "kind",
    ["application/json; charset=utf-8", "application/x-www-form-urlencoded", "text/plain", "", "nonsense"],
)
def test_any_content_type_is_read_as_json(kind: str) -> None:
    assert found(send(GOOD.decode(), {"content-type": kind})) == FOUND


def test_header_names_in_any_case_are_understood() -> None:
    event = request("POST", "/search", base64.b64encode(gzip.compress(GOOD)).decode(), isBase64Encoded=True)
    event["headers"] = {"Content-Type": "text/plain", "CONTENT-ENCODING": "gzip"}
    assert found(invoke(event)) == FOUND


@pytest.mark.parametrize("headers", [None, {}])
def test_an_event_without_headers_is_read(headers: dict[str, str] | None) -> None:
    event = request("POST", "/search", GOOD.decode())
    event["headers"] = headers
    assert found(invoke(event)) == FOUND


@pytest.mark.parametrize("encoding", ["br", "deflate", "zstd", "gzip, br"])
def test_an_unknown_encoding_is_refused(encoding: str) -> None:
    reply = send_bytes(GOOD, {"content-encoding": encoding})
    assert refused(reply) == ["content-encoding must be gzip or identity"]


@pytest.mark.parametrize("body", ["not base64!", "e30", "e3\u00000"])
def test_bad_base64_is_refused(body: str) -> None:
    assert refused(send(body, isBase64Encoded=True)) == ["The request body is not valid base64 or UTF-8"]


def test_base64_beyond_ascii_is_refused() -> None:
    assert refused(send("é", isBase64Encoded=True)) == ["The request body is not valid base64 or UTF-8"]


@pytest.mark.parametrize("content", [b"not gzip", b"", b"\x1f\x8b", zlib.compress(GOOD)])
def test_bad_gzip_is_refused(content: bytes) -> None:
    assert refused(send_bytes(content, GZIP))[0].startswith("The request body is not valid gzip")


def test_gzip_that_ends_too_early_is_refused() -> None:
    reply = send_bytes(gzip.compress(GOOD)[:-9], GZIP)
    assert refused(reply) == ["The request body is not valid gzip: it ends too early"]


def test_gzip_with_a_wrong_checksum_is_refused() -> None:
    packed = bytearray(gzip.compress(GOOD))
    packed[-5] ^= 0xFF
    assert refused(send_bytes(bytes(packed), GZIP)) == ["The request body is not valid gzip"]


def test_gzip_of_several_members_is_read_whole() -> None:
    assert found(send_bytes(gzip.compress(GOOD[:20]) + gzip.compress(GOOD[20:]), GZIP)) == FOUND


def test_bytes_after_the_gzip_stream_are_refused() -> None:
    assert refused(send_bytes(gzip.compress(GOOD) + b"trailing", GZIP))


# sizes


def test_a_body_of_the_greatest_size_is_read() -> None:
    padded = GOOD + b" " * (MAX_REQUEST_BYTES - len(GOOD))
    assert found(send(padded.decode())) == FOUND
    assert found(send_bytes(gzip.compress(padded), GZIP)) == FOUND


def test_a_byte_more_is_too_large() -> None:
    padded = GOOD + b" " * (MAX_REQUEST_BYTES - len(GOOD) + 1)
    message = ["The request body has more than 6291456 bytes"]
    assert refused(send(padded.decode()), 413, "REQUEST_TOO_LARGE") == message
    assert refused(send_bytes(gzip.compress(padded), GZIP), 413, "REQUEST_TOO_LARGE") == message


def test_a_gzip_bomb_is_too_large_before_it_is_unpacked() -> None:
    packer = zlib.compressobj(1, wbits=31)
    bomb = b"".join(packer.compress(b" " * 2**24) for _ in range(16)) + packer.flush()
    assert len(bomb) < 2**21, "a quarter of a gigabyte in less than two megabytes"
    started = monotonic()
    reply = send_bytes(bomb, GZIP)
    assert refused(reply, 413, "REQUEST_TOO_LARGE") == ["The request body has more than 6291456 bytes"]
    assert monotonic() - started < 2, "unpacking all of it takes longer"


def test_a_refusal_fits_into_lambda_even_if_the_query_it_echoes_does_not() -> None:
    document = json.dumps({"query_text": '"' * 2_500_000}).encode()
    reply = send_bytes(gzip.compress(document), GZIP)
    assert reply.json["status"] == "error"
    assert reply.size <= MAX_RESPONSE_BYTES


# text


@pytest.mark.parametrize(
    ("content", "byte"),
    [(b'{"query_text": "\xff"}', 16), (b"\xfe\xff", 0), ('{"query_text":"é'.encode()[:-1], 15)],
)
def test_bytes_that_are_no_utf8_are_refused_with_their_place(content: bytes, byte: int) -> None:
    message = [f"The request body is not UTF-8 at byte {byte}"]
    assert refused(send_bytes(content)) == message
    assert refused(send_bytes(gzip.compress(content), GZIP)) == message


@pytest.mark.parametrize("body", ["", None])
def test_no_body_is_no_request(body: str | None) -> None:
    assert refused(send(body)) == ["The request body is required"]


def test_an_empty_list_is_no_request() -> None:
    assert refused(send("[]")) == ["queries must have 1 to 32 items, not 0"]


@pytest.mark.parametrize("body", ['"text"', "5", "true", "1.5"])
def test_a_body_that_is_no_object_is_refused(body: str) -> None:
    assert refused(send(body)) == ["The request body must be a JSON object"]


def test_null_is_no_request() -> None:
    assert refused(send("null"))[0].startswith("The request body ")


@pytest.mark.parametrize("body", ["{", "{'a': 1}", '{"query_text": "a",}', "\ufeff{}", "{}{}", "NaN}"])
def test_a_body_that_is_no_json_is_refused(body: str) -> None:
    assert refused(send(body))[0].startswith("The request body is not valid JSON: ")


@pytest.mark.parametrize("body", ["[" * 100_000, '{"a":' * 100_000, '{"filters":' * 40 + "1" + "}" * 40])
def test_a_body_nested_without_end_is_refused(body: str) -> None:
    assert refused(send(body))[0].endswith("nested deeper than 32 levels")


# the echo


def test_the_query_is_echoed_code_point_for_code_point() -> None:
    query = 'cafe\u0301 café \u200b\u00a0 🤖👩‍🚀 \x00\x1f\x7f \u2028 \\ " </script>'
    body = send(json.dumps({"query_text": query, "top_k": 0, "query_id": "q-é"})).json
    assert (body["query"], body["query_id"]) == (query, "q-é")


@pytest.mark.parametrize("name", ["query_text", "text"])
@pytest.mark.parametrize("threshold", ["similarity_threshold", "threshold", "score_threshold"])
def test_the_echo_knows_every_name(name: str, threshold: str) -> None:
    body = send(json.dumps({name: "backups", threshold: 0.25, "top_k": 0})).json
    assert (body["query"], body["execution"]["threshold_applied"]) == ("backups", 0.25)


@pytest.mark.parametrize("query", [5, None, ["a"], {"a": 1}, True])
def test_a_query_that_is_no_text_is_not_echoed(query: Any) -> None:
    body = send(json.dumps({"query_text": query, "query_id": query, "similarity_threshold": "0.5"})).json
    assert (body["query"], body["query_id"], body["execution"]["threshold_applied"]) == (None, None, 0.0)


def test_a_gzip_body_is_echoed_as_well() -> None:
    body = send_bytes(gzip.compress(b'{"query_text": "backups", "top_k": 0}'), GZIP).json
    assert body["query"] == "backups"


def test_a_gzip_body_is_echoed_whatever_the_case_of_its_header() -> None:
    packed = gzip.compress(b'{"query_text": "backups", "top_k": 0}')
    reply = send_bytes(packed, {"Content-Encoding": "gzip"})
    assert refused(reply) == ["top_k must be between 1 and 1000"]
    assert reply.json["query"] == "backups"


@pytest.mark.parametrize("body", ["", "[]", '"backups"', '{"query_text": "backups"'])
def test_an_unreadable_query_is_null(body: str) -> None:
    assert send(body).json["query"] is None


SURROGATE = "it comes out of the handler: the echo cannot be encoded"


@pytest.mark.parametrize("field", ["query_text", "text", "query_id"])
def test_a_lone_surrogate_is_refused_with_its_place(field: str) -> None:
    given = {"query_text": "a"} if field == "query_id" else {}
    reply = send(json.dumps({**given, field: "a\ud800b"}))
    assert refused(reply) == [f"{field} has a lone surrogate, which is not valid Unicode"]


def test_a_lone_surrogate_elsewhere_is_refused_with_its_place() -> None:
    reply = send(json.dumps({"query_text": "a", "collection": "\udfff"}))
    assert refused(reply) == ["collection has a lone surrogate, which is not valid Unicode"]
    assert reply.json["query"] == "a"


def test_a_threshold_beyond_any_float_is_refused() -> None:
    reply = send(f'{{"query_text": "a", "similarity_threshold": {10**350}}}')
    assert refused(reply) == ["similarity_threshold must be between 0.0 and 1.0"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_a_threshold_that_is_no_finite_number_is_refused(number: str) -> None:
    reply = send(f'{{"query_text": "a", "similarity_threshold": {number}}}')
    assert refused(reply)[0].startswith("similarity_threshold must be a finite number")
    assert reply.json["execution"]["threshold_applied"] == 0.0


def test_a_failure_outside_of_any_route_has_one_content_type() -> None:
    reply = send_bytes(b"\xff")
    names = [name.lower() for name in reply.proxy["headers"]]
    assert names.count("content-type") == 1


# limits of the deployment


@pytest.mark.parametrize(
    ("settings", "request_", "message"),
    [
        ({"MAX_TOP_K": "20"}, {"query_text": "a", "top_k": 21}, "top_k must be between 1 and 20"),
        (
            {"MAX_QUERY_CHARS": "10"},
            {"query_text": "a" * 11},
            "query_text must be between 1 and 10 characters",
        ),
        ({"MIN_QUERY_CHARS": "3"}, {"query_text": "ab"}, "query_text must be between 3 and 10000 characters"),
    ],
)
def test_a_limit_is_quoted_as_the_deployment_sets_it(
    memory_store: WritableStore, settings: dict[str, str], request_: dict[str, Any], message: str
) -> None:
    with container.override(make_services(memory_store, COLLECTION, **settings)):
        assert refused(send(json.dumps(request_))) == [message]
    assert refused(send('{"query_text": "a", "top_k": 1001}')) == ["top_k must be between 1 and 1000"]


def test_every_problem_is_reported_at_once() -> None:
    reply = send(json.dumps({"query_text": " ", "top_k": "5", "similarity_threshold": 1.5, "k": 1}))
    assert refused(reply) == [
        "query_text cannot be empty",
        "top_k must be an integer",
        "similarity_threshold must be between 0.0 and 1.0",
        "k is not a known field",
    ]
    assert reply.json["execution"]["threshold_applied"] == 1.5


def test_a_collection_that_is_not_allowed_does_not_exist(memory_store: WritableStore) -> None:
    fill(memory_store, "private")
    with container.override(make_services(memory_store, COLLECTION, ALLOWED_COLLECTIONS="other")):
        reply = invoke(post("/search", {"query_vector": [1, 0], "collection": "private"}))
    assert refused(reply, 404, "COLLECTION_NOT_FOUND") == ["Collection private not found"]
