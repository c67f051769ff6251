"""Errors of a Qdrant server that is down, silent, protected by a key, or another server."""

from collections.abc import Callable, Iterator
from time import monotonic

import pytest

from chunkproof.base.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    RateLimitedError,
    VectorStoreTimeoutError,
    VectorStoreUnavailableError,
)
from chunkproof.base.request import Deadline
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import Point, WritableStore

from support.chunks import fill, nearest
from support.listeners import dripping_server, refusing_address, silent_server, web_server
from support.qdrant_server import NoServerError, QdrantServer, qdrant_server

Call = Callable[[WritableStore, Deadline], object]
CALLS: dict[str, Call] = {
    "collections": lambda store, deadline: store.collections(deadline),
    "describe": lambda store, deadline: store.describe("docs", deadline),
    "search": lambda store, deadline: nearest(store, "docs", (1.0, 0.0), deadline=deadline),
    "features": lambda store, deadline: store.features(deadline),
    "fetch": lambda store, deadline: store.fetch("docs", [1], deadline),
    "scroll": lambda store, deadline: store.scroll("docs", deadline, limit=5),
    "create": lambda store, deadline: store.create("docs", 2, deadline),
    "upsert": lambda store, deadline: store.upsert("docs", [Point(1, {}, vector=(1.0, 0.0))], "", deadline),
}
JSON = {"content-type": "application/json"}


def store_at(url: str, key: str | None = None) -> WritableStore:
    return ServerStore(url, DeadlineTransport(lambda: {"api-key": key} if key else {}))


def host_of(url: str) -> str:
    return url.removeprefix("http://")


def failures_at(url: str, *calls: str, budget_ms: float = 5_000) -> list[ChunkproofError]:
    """The errors of these calls, or of all calls."""
    store = store_at(url)
    found: list[ChunkproofError] = []
    try:
        for name in calls or CALLS:
            with pytest.raises(ChunkproofError) as caught:
                CALLS[name](store, Deadline(budget_ms))
            found.append(caught.value)
    finally:
        store.close()
    return found


@pytest.fixture
def own_server() -> Iterator[QdrantServer]:
    """A server that a test may stop."""
    try:
        with qdrant_server() as server:
            if not server.command:
                pytest.skip("the server at TEST_QDRANT_URL is not ours to stop")
            yield server
    except NoServerError as reason:
        pytest.skip(f"no Qdrant server: {reason}")


@pytest.mark.server
def test_a_stopped_server_is_unavailable_and_is_used_again_after_a_restart(
    own_server: QdrantServer, deadline: Deadline
) -> None:
    store = store_at(own_server.url)
    fill(store, "docs", Point(1, {"text": "kept"}, vector=(1.0, 0.0)))
    own_server.stop()
    for call in CALLS.values():
        with pytest.raises(VectorStoreUnavailableError) as caught:
            call(store, deadline)
        assert (caught.value.code, caught.value.status) == ("QDRANT_UNAVAILABLE", 503)
        assert caught.value.message == f"Qdrant service unavailable at {host_of(own_server.url)}"
        assert caught.value.messages[1] == "The connection failed; check QDRANT_URL"
    own_server.start()
    assert [point.payload for point in store.fetch("docs", [1], deadline)] == [{"text": "kept"}]
    store.close()


@pytest.mark.server
@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
def test_a_wrong_key_is_named_and_not_shown(own_server: QdrantServer, deadline: Deadline) -> None:
    own_server.stop()
    own_server.env["QDRANT__SERVICE__API_KEY"] = "open-s3cr3t-77"
    own_server.start()
    for key in (None, "wrong-s3cr3t-12"):
        store = store_at(own_server.url, key)
        for name, call in CALLS.items():
            if name == "features":  # a server states its version without a key
                continue
            with pytest.raises(VectorStoreUnavailableError) as caught:
                call(store, deadline)
            assert caught.value.messages == (
                f"Qdrant service unavailable at {host_of(own_server.url)}",
                "Qdrant refused the key; check QDRANT_API_KEY",
            )
        store.close()
    store = store_at(own_server.url, "open-s3cr3t-77")
    assert store.collections(deadline) == []
    store.close()


def test_a_refused_connection_means_unavailable() -> None:
    url = refusing_address()
    for error in failures_at(url):
        assert type(error) is VectorStoreUnavailableError
        assert error.message == f"Qdrant service unavailable at {host_of(url)}"


def test_a_silent_server_times_out_within_the_deadline() -> None:
    with silent_server() as url:
        started = monotonic()
        errors = failures_at(url, budget_ms=100)
        assert monotonic() - started < len(CALLS) * 0.1 + 0.6
    for error in errors:
        assert isinstance(error, VectorStoreTimeoutError)
        assert (error.code, error.status) == ("QDRANT_TIMEOUT", 503)
        assert error.messages == (
            f"Qdrant service unavailable at {host_of(url)}",
            "Qdrant did not answer in time",
        )


def test_no_request_is_sent_when_no_time_is_left() -> None:
    for error in failures_at(refusing_address(), budget_ms=0):
        assert isinstance(error, VectorStoreTimeoutError)


def test_a_server_that_sends_byte_by_byte_times_out_within_the_deadline() -> None:
    with dripping_server(every_seconds=0.05, times=20) as url:
        started = monotonic()
        failures_at(url, "collections", budget_ms=150)
        assert monotonic() - started < 0.6


NOT_QDRANT = {
    "a web page": (200, b"<html>Welcome</html>", {"content-type": "text/html"}),
    "other JSON": (200, b'{"result": {"collections": 5, "points": 5, "config": 5}}', JSON),
    "null": (200, b"null", JSON),
    "no UTF-8": (200, b"\xff\xfe", JSON),
    "a broken encoding": (200, b"this is no gzip", {**JSON, "content-encoding": "gzip"}),
}


@pytest.mark.parametrize("response", NOT_QDRANT.values(), ids=NOT_QDRANT.keys())
def test_another_server_at_the_address_is_reported_as_not_qdrant(
    response: tuple[int, bytes, dict[str, str]],
) -> None:
    with web_server(*response) as url:
        for error in failures_at(url):
            assert error.code == "QDRANT_UNAVAILABLE"
            assert error.messages == (
                f"Qdrant service unavailable at {host_of(url)}",
                "The server at this address does not speak Qdrant's API",
            )


def test_json_without_a_result_is_reported_as_not_qdrant() -> None:
    with web_server(200, b'{"ok": true}', JSON) as url:
        assert {error.code for error in failures_at(url)} == {"QDRANT_UNAVAILABLE"}


def test_a_404_of_another_server_does_not_mean_that_the_collection_is_missing() -> None:
    with web_server(404, b"<html>Not found</html>", {"content-type": "text/html"}) as url:
        errors = failures_at(url)
    assert not any(isinstance(error, CollectionNotFoundError) for error in errors)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (500, "QDRANT_UNAVAILABLE"),
        (302, "QDRANT_UNAVAILABLE"),
        (408, "QDRANT_TIMEOUT"),
        (504, "QDRANT_TIMEOUT"),
    ],
)
def test_the_error_of_a_failing_server_has_its_status_and_no_upstream_text(status: int, code: str) -> None:
    headers = {"location": "https://elsewhere.example/secret", "x-secret": "s3cr3t"}
    with web_server(status, b'{"status": {"error": "s3cr3t"}}', {**JSON, **headers}) as url:
        for error in failures_at(url):
            assert (error.code, error.status) == (code, 503)
            assert str(status) in error.messages[1]
            assert not any(word in str(error) for word in ("s3cr3t", "secret", "/collections"))


@pytest.mark.parametrize(("header", "seconds"), [("4", 4.0), (None, None)])
def test_a_rate_limit_of_a_gateway_is_a_429(header: str | None, seconds: float | None) -> None:
    headers = {**JSON, **({"retry-after": header} if header else {})}
    with web_server(429, b"{}", headers) as url:
        (error,) = failures_at(url, "search")
    assert isinstance(error, RateLimitedError)
    assert error.retry_after == seconds


def test_retry_after_as_a_date_is_read() -> None:
    headers = {**JSON, "retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}
    with web_server(429, b"{}", headers) as url:
        assert isinstance(failures_at(url, "search")[0], RateLimitedError)


def test_credentials_in_the_address_are_not_shown() -> None:
    url = refusing_address().replace("http://", "http://user:s3cr3t@")
    assert not any("s3cr3t" in str(error) for error in failures_at(url))
