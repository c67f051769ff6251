"""Size limits of responses, compressed or not, and the errors beyond them."""

import gzip
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from chunkproof.base.errors import EmbeddingError, ResponseTooLargeError
from chunkproof.base.request import Deadline
from chunkproof.embedders.cohere import CohereEmbedder
from chunkproof.embedders.embedder_port import InputType
from chunkproof.net import transport as transport_module
from chunkproof.net.resilience import CircuitBreaker, CircuitState, UpstreamResponseTooLargeError
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import ServerStore

from support.faults import gzip_bomb
from support.recording_server import CannedResponse, recording_server

LIMIT = 1_000


@pytest.fixture
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_RESPONSE_BYTES", LIMIT)


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(transport=DeadlineTransport()) as made:
        yield made


def canned(body: bytes, coding: str | None = None) -> CannedResponse:
    return CannedResponse(body=body, headers={"content-encoding": coding} if coding else {})


def fetch(client: httpx.Client, response: CannedResponse) -> bytes:
    with recording_server(lambda _: response) as server:
        return client.get(server.url).content


@pytest.mark.usefixtures("_small_limit")
def test_a_response_of_the_limit_is_read_and_one_byte_more_is_an_error(client: httpx.Client) -> None:
    assert fetch(client, canned(b"x" * LIMIT)) == b"x" * LIMIT
    with pytest.raises(UpstreamResponseTooLargeError):
        fetch(client, canned(b"x" * (LIMIT + 1)))


@pytest.mark.usefixtures("_small_limit")
@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_the_limit_applies_to_the_decompressed_response(
    client: httpx.Client, coding: str, compress: Callable[[bytes], bytes]
) -> None:
    assert fetch(client, canned(compress(b"x" * (LIMIT - 1)), coding)) == b"x" * (LIMIT - 1)
    for size in (LIMIT + 1, 1_000_000):
        with pytest.raises(UpstreamResponseTooLargeError):
            fetch(client, canned(compress(b"x" * size), coding))


@pytest.mark.usefixtures("_small_limit")
def test_a_compressed_response_of_exactly_the_limit_is_read(client: httpx.Client) -> None:
    assert fetch(client, canned(gzip.compress(b"x" * LIMIT), "gzip")) == b"x" * LIMIT


def test_a_response_of_several_gzip_members_is_read_in_full_or_refused(client: httpx.Client) -> None:
    try:
        content = fetch(client, canned(gzip.compress(b"[1,") + gzip.compress(b"2]"), "gzip"))
    except httpx.DecodingError:
        return
    assert content == b"[1,2]"


@pytest.mark.parametrize("coding", ["GZIP", " gzip ", "identity"])
def test_content_encodings_ignore_case_and_spaces(client: httpx.Client, coding: str) -> None:
    body = b"text" if coding == "identity" else gzip.compress(b"text")
    assert fetch(client, canned(body, coding)) == b"text"


def test_a_decompressed_response_has_its_own_length_and_no_content_encoding(client: httpx.Client) -> None:
    with recording_server(lambda _: canned(gzip.compress(b"x" * 500), "gzip")) as server:
        response = client.get(server.url)
    assert response.headers["content-length"] == "500"
    assert "content-encoding" not in response.headers


@pytest.mark.parametrize(
    "response",
    [
        canned(b"no gzip at all", "gzip"),
        canned(gzip.compress(b"cut short" * 50)[:-9], "gzip"),
        canned(b"", "gzip"),
        canned(b"\x0b\x02\x80text\x03", "br"),
        canned(b"text", "gzip, gzip"),
    ],
    ids=["garbage", "cut short", "nothing", "not requested", "twice"],
)
def test_a_response_that_cannot_be_decompressed_is_an_error(client: httpx.Client, response: CannedResponse) -> None:
    with pytest.raises(httpx.DecodingError):
        fetch(client, response)


def test_only_supported_content_encodings_are_requested() -> None:
    with (
        recording_server() as server,
        # The header that httpx sends where such packages are installed.
        httpx.Client(transport=DeadlineTransport(), headers={"accept-encoding": "gzip, deflate, br, zstd"}) as client,
    ):
        client.get(server.url)
    requested = {name.strip() for name in server.requests[0].headers["accept-encoding"].split(",")}
    assert requested <= {"gzip", "deflate", "identity"}


# what is not read


@pytest.mark.usefixtures("_small_limit")
def test_an_endless_response_is_read_up_to_the_limit_only(client: httpx.Client) -> None:
    sent: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pour() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):  # the client disconnects, as it should
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
                for _ in range(1_000):
                    sent.append(connection.send(b"x" * 100_000))

        pouring = threading.Thread(target=pour)
        pouring.start()
        with pytest.raises(UpstreamResponseTooLargeError):
            client.get(f"http://127.0.0.1:{listener.getsockname()[1]}")
        pouring.join()
    assert sum(sent) < 20_000_000, "no more than the socket buffers hold"


def test_a_gzip_bomb_is_decompressed_up_to_the_limit_only(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "MAX_RESPONSE_BYTES", 2_000_000)
    bomb = canned(gzip_bomb(1), "gzip")
    assert len(bomb.body) < 1_100_000
    tracemalloc.start()
    try:
        with pytest.raises(UpstreamResponseTooLargeError):
            fetch(client, bomb)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


# the errors

BOMB = CannedResponse(body=gzip_bomb(1), headers={"content-encoding": "gzip", "content-type": "application/json"})


def test_a_response_of_qdrant_over_the_limit_is_a_413_that_says_what_to_do() -> None:
    breaker = CircuitBreaker("qdrant", max_failures=1)
    with recording_server(lambda _: BOMB) as server:
        store = ServerStore(server.url, DeadlineTransport(breaker=breaker))
        with pytest.raises(ResponseTooLargeError) as caught:
            store.collections(Deadline(20_000))
        store.close()
    assert (caught.value.code, caught.value.status) == ("RESPONSE_TOO_LARGE", 413)
    assert "more than 67108864 bytes" in caught.value.message
    assert "fewer" in caught.value.message
    assert (len(server.requests), breaker.state) == (1, CircuitState.CLOSED), (
        "not repeated, and not a failure of the service"
    )


def test_a_response_of_cohere_over_the_limit_is_an_embedding_error() -> None:
    with recording_server(lambda _: BOMB) as server:
        embedder = CohereEmbedder(DeadlineTransport(), model="m", base_url=server.url)
        with pytest.raises(EmbeddingError) as caught:
            embedder.embed(["a"], InputType.QUERY, Deadline(20_000))
        embedder.close()
    host = server.url.removeprefix("http://")
    assert caught.value.message == (f"Failed to embed query: {host} sent more bytes than any embedding has")
    assert len(server.requests) == 1


# retry-after


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ("7", "7"),
        ("2.4", "3"),
        ("0.2", "1"),
        ("0", "0"),
        ("Wed, 21 Oct 2015 07:28:00 GMT", "0"),
        ("soon", None),
    ],
)
def test_the_sdks_get_retry_after_in_whole_seconds(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, sent: str, received: str | None
) -> None:
    monkeypatch.setattr(transport_module, "sleep", lambda _: None)
    with recording_server(lambda _: CannedResponse(429, headers={"retry-after": sent})) as server:
        assert client.get(server.url).headers.get("retry-after") == received


def test_the_sdks_get_a_date_in_retry_after_as_seconds(client: httpx.Client) -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(minutes=5), usegmt=True)
    with recording_server(lambda _: CannedResponse(503, headers={"retry-after": at})) as server:
        received = client.get(server.url).headers["retry-after"]
    assert 290 <= int(received) <= 300
