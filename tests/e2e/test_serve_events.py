"""The event that the local gateway makes of a request: the one that HTTP API makes."""

import base64
from typing import Any

import pytest

from chunkproof_cli.local.gateway import build_event

from support.api import committed_event

# What the gateway has no source for: it authorizes nobody.
OF_AUTHORIZATION = {"authentication"}


def scope(
    method: str,
    path: str,
    *,
    query: str = "",
    raw_path: str | None = None,
    headers: list[tuple[str, str]] | None = None,
) -> dict[str, Any]:
    """What an ASGI server hands over."""
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": (raw_path or path).encode("ascii"),
        "query_string": query.encode("ascii"),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers or []],
        "client": ("203.0.113.17", 40_000),
    }


HOST = [("Host", "localhost:8080"), ("User-Agent", "curl/8.5.0")]
JSON = [*HOST, ("Content-Type", "application/json")]


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("search.200.json", build_event(scope("POST", "/search", headers=JSON), b'{"query_text": "a"}')),
        ("collections.200.json", build_event(scope("GET", "/collections/handbook", headers=HOST), b"")),
        ("health.200.json", build_event(scope("GET", "/health", headers=HOST), b"")),
        ("health.200-deep.json", build_event(scope("GET", "/health", query="deep=true", headers=HOST), b"")),
    ],
)
def test_an_event_has_the_shape_of_the_committed_one(name: str, made: dict[str, Any]) -> None:
    committed = committed_event(name)
    assert set(made) == set(committed)
    assert set(made["requestContext"]) == set(committed["requestContext"]) - OF_AUTHORIZATION
    assert set(made["requestContext"]["http"]) == set(committed["requestContext"]["http"])
    for field in ("version", "routeKey", "rawPath", "rawQueryString", "isBase64Encoded"):
        assert made[field] == committed[field]
    assert made.get("queryStringParameters") == committed.get("queryStringParameters")
    assert made.get("pathParameters") == committed.get("pathParameters")
    for field in ("method", "path", "protocol", "sourceIp", "userAgent"):
        assert made["requestContext"]["http"][field] == committed["requestContext"]["http"][field]
    for part, other in ((made, committed), (made["requestContext"], committed["requestContext"])):
        assert {key: type(value) for key, value in part.items()} == {key: type(other[key]) for key in part}


def test_header_names_are_in_lower_case_and_repeated_ones_joined() -> None:
    headers = [("Accept", "text/html"), ("X-A", "1"), ("accept", "application/json"), ("x-a", "2, 3")]
    event = build_event(scope("GET", "/health", headers=headers), b"")
    assert event["headers"] == {"accept": "text/html,application/json", "x-a": "1,2, 3"}


def test_cookies_have_a_place_of_their_own() -> None:
    headers = [("cookie", "a=1; b=2"), ("Cookie", "c=3")]
    event = build_event(scope("GET", "/health", headers=headers), b"")
    assert event["cookies"] == ["a=1", "b=2", "c=3"]
    assert "cookie" not in event["headers"]
    assert "cookies" not in build_event(scope("GET", "/health"), b"")


def test_repeated_query_parameters_are_joined_and_decoded() -> None:
    event = build_event(scope("GET", "/health", query="a=1&b=x%20y&a=2&c=&d=%C3%A9"), b"")
    assert event["queryStringParameters"] == {"a": "1,2", "b": "x y", "c": "", "d": "é"}
    assert event["rawQueryString"] == "a=1&b=x%20y&a=2&c=&d=%C3%A9"


def test_without_a_body_there_is_no_body() -> None:
    event = build_event(scope("POST", "/search", headers=JSON), b"")
    assert "body" not in event
    assert event["isBase64Encoded"] is False


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "text/plain", "application/xml"]
)
def test_a_text_body_is_text(kind: str) -> None:
    event = build_event(scope("POST", "/search", headers=[("content-type", kind)]), "{é}".encode())
    assert (event["body"], event["isBase64Encoded"]) == ("{é}", False)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ([("content-type", "application/octet-stream")], b"{}"),
        ([], b"{}"),
        ([("content-type", "application/octet-stream"), ("content-encoding", "gzip")], b"\x1f\x8b\x08"),
        ([("content-type", "application/json")], b"\xff\xfe"),
    ],
)
def test_any_other_body_is_base64(headers: list[tuple[str, str]], body: bytes) -> None:
    event = build_event(scope("POST", "/search", headers=headers), body)
    assert event["isBase64Encoded"] is True
    assert base64.b64decode(event["body"], validate=True) == body


def test_gzip_sent_as_json_is_taken_for_text_as_http_api_does() -> None:
    headers = [("content-type", "application/json"), ("content-encoding", "gzip")]
    event = build_event(scope("POST", "/search", headers=headers), b"\x1f\x8b\x08")
    assert (event["body"], event["isBase64Encoded"]) == ("\x1f\ufffd\x08", False)


def test_the_path_is_decoded_as_http_api_does_it() -> None:
    event = build_event(scope("GET", "/collections/my docs", raw_path="/collections/my%20docs"), b"")
    assert event["rawPath"] == "/collections/my docs"
    assert event["requestContext"]["http"]["path"] == "/collections/my docs"
    assert (event["routeKey"], event["pathParameters"]) == ("GET /collections/{name}", {"name": "my docs"})


def test_times_and_ids_are_of_this_request() -> None:
    first, second = (build_event(scope("GET", "/health"), b"")["requestContext"] for _ in range(2))
    assert first["requestId"] != second["requestId"]
    assert 0 <= second["timeEpoch"] - first["timeEpoch"] < 60_000
