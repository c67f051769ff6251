"""How much of an answer is taken in, compressed or not, and what each SDK's caller is told beyond that."""

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

from chunkproof.clients import transport as transport_module
from chunkproof.clients.cohere import CohereEmbedder
from chunkproof.clients.ports import InputType
from chunkproof.clients.qdrant.store import QdrantStore
from chunkproof.clients.resilience import CircuitBreaker, CircuitState
from chunkproof.clients.transport import DeadlineTransport, UpstreamResponseTooLargeError
from chunkproof.deadline import Deadline
from chunkproof.errors import EmbeddingError, ResponseTooLargeError

from support.faults import gzip_bomb
from support.recording_server import CannedResponse, recording_server

MOST = 1_000


@pytest.fixture
def _little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_RESPONSE_BYTES", MOST)


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(transport=DeadlineTransport()) as made:
        yield made


def said(body: bytes, coding: str | None = None) -> CannedResponse:
    return CannedResponse(body=body, headers={"content-encoding": coding} if coding else {})


def got(client: httpx.Client, answer: CannedResponse) -> bytes:
    with recording_server(lambda _: answer) as server:
        return client.get(server.url).content


@pytest.mark.usefixtures("_little")
def test_a_plain_answer_of_the_most_bytes_is_taken_and_one_more_is_not(client: httpx.Client) -> None:
    assert got(client, said(b"x" * MOST)) == b"x" * MOST
    with pytest.raises(UpstreamResponseTooLargeError):
        got(client, said(b"x" * (MOST + 1)))


@pytest.mark.usefixtures("_little")
@pytest.mark.parametrize(("coding", "packed"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_compressed_answer_is_measured_unpacked(
    client: httpx.Client, coding: str, packed: Callable[[bytes], bytes]
) -> None:
    assert got(client, said(packed(b"x" * (MOST - 1)), coding)) == b"x" * (MOST - 1)
    for size in (MOST + 1, 1_000_000):
        with pytest.raises(UpstreamResponseTooLargeError):
            got(client, said(packed(b"x" * size), coding))


@pytest.mark.usefixtures("_little")
def test_a_compressed_answer_of_just_the_most_bytes_is_taken(client: httpx.Client) -> None:
    assert got(client, said(gzip.compress(b"x" * MOST), "gzip")) == b"x" * MOST


def test_an_answer_in_several_members_is_taken_whole_or_refused(client: httpx.Client) -> None:
    try:
        content = got(client, said(gzip.compress(b"[1,") + gzip.compress(b"2]"), "gzip"))
    except httpx.DecodingError:
        return
    assert content == b"[1,2]"


@pytest.mark.parametrize("coding", ["GZIP", " gzip ", "identity"])
def test_a_coding_is_known_however_it_is_written(client: httpx.Client, coding: str) -> None:
    body = b"text" if coding == "identity" else gzip.compress(b"text")
    assert got(client, said(body, coding)) == b"text"


def test_an_unpacked_answer_says_its_own_length_and_no_coding(client: httpx.Client) -> None:
    with recording_server(lambda _: said(gzip.compress(b"x" * 500), "gzip")) as server:
        answer = client.get(server.url)
    assert answer.headers["content-length"] == "500"
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    "answer",
    [
        said(b"no gzip at all", "gzip"),
        said(gzip.compress(b"cut short" * 50)[:-9], "gzip"),
        said(b"", "gzip"),
        said(b"\x0b\x02\x80text\x03", "br"),
        said(b"text", "gzip, gzip"),
    ],
    ids=["garbage", "cut short", "nothing", "never asked for", "twice"],
)
def test_an_answer_that_cannot_be_unpacked_is_an_error(client: httpx.Client, answer: CannedResponse) -> None:
    with pytest.raises(httpx.DecodingError):
        got(client, answer)


def test_only_codings_that_can_be_undone_are_asked_for() -> None:
    with (
        recording_server() as server,
        # What httpx asks for by itself where such packages are installed.
        httpx.Client(
            transport=DeadlineTransport(), headers={"accept-encoding": "gzip, deflate, br, zstd"}
        ) as client,
    ):
        client.get(server.url)
    asked_for = {name.strip() for name in server.requests[0].headers["accept-encoding"].split(",")}
    assert asked_for <= {"gzip", "deflate", "identity"}


# what is left unread


@pytest.mark.usefixtures("_little")
def test_an_answer_without_an_end_is_left_at_the_most_bytes(client: httpx.Client) -> None:
    sent: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pour() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):  # the client leaves, as it should
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
                for _ in range(1_000):
                    sent.append(connection.send(b"x" * 100_000))

        pouring = threading.Thread(target=pour)
        pouring.start()
        with pytest.raises(UpstreamResponseTooLargeError):
            client.get(f"http://127.0.0.1:{listener.getsockname()[1]}")
        pouring.join()
    assert sum(sent) < 20_000_000, "what a socket holds, and no more"


def test_what_would_unpack_to_a_gigabyte_is_left_packed(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "MAX_RESPONSE_BYTES", 2_000_000)
    bomb = said(gzip_bomb(1), "gzip")
    assert len(bomb.body) < 1_100_000
    tracemalloc.start()
    try:
        with pytest.raises(UpstreamResponseTooLargeError):
            got(client, bomb)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


# what callers are told

BOMB = CannedResponse(
    body=gzip_bomb(1), headers={"content-encoding": "gzip", "content-type": "application/json"}
)


def test_too_large_an_answer_of_qdrant_is_a_413_that_says_what_to_do() -> None:
    breaker = CircuitBreaker("qdrant", max_failures=1)
    with recording_server(lambda _: BOMB) as server:
        store = QdrantStore.open_server(server.url, DeadlineTransport(breaker=breaker))
        with pytest.raises(ResponseTooLargeError) as caught:
            store.collections(Deadline(20_000))
        store.close()
    assert (caught.value.code, caught.value.status) == ("RESPONSE_TOO_LARGE", 413)
    assert "more than 67108864 bytes" in caught.value.message
    assert "fewer" in caught.value.message
    assert (len(server.requests), breaker.state) == (1, CircuitState.CLOSED), "not repeated, and no outage"


def test_too_large_an_answer_of_the_embedder_is_a_failure_to_embed() -> None:
    with recording_server(lambda _: BOMB) as server:
        embedder = CohereEmbedder(DeadlineTransport(), model="m", base_url=server.url)
        with pytest.raises(EmbeddingError) as caught:
            embedder.embed(["a"], InputType.QUERY, Deadline(20_000))
        embedder.close()
    host = server.url.removeprefix("http://")
    assert caught.value.message == (f"Failed to embed query: {host} sent more bytes than any embedding has")
    assert len(server.requests) == 1


# the time to wait


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("7", "7"),
        ("2.4", "3"),
        ("0.2", "1"),
        ("0", "0"),
        ("Wed, 21 Oct 2015 07:28:00 GMT", "0"),
        ("soon", None),
    ],
)
def test_the_sdks_get_the_time_to_wait_in_whole_seconds(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, given: str, told: str | None
) -> None:
    monkeypatch.setattr(transport_module, "sleep", lambda _: None)
    with recording_server(lambda _: CannedResponse(429, headers={"retry-after": given})) as server:
        assert client.get(server.url).headers.get("retry-after") == told


def test_the_sdks_get_a_date_to_come_as_seconds(client: httpx.Client) -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(minutes=5), usegmt=True)
    with recording_server(lambda _: CannedResponse(503, headers={"retry-after": at})) as server:
        told = client.get(server.url).headers["retry-after"]
    assert 290 <= int(told) <= 300
