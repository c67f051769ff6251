"""The transport of both SDKs on real sockets: deadlines, connections, headers and bodies."""

import gzip
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

import httpx
import pytest
import trustme

from chunkproof.base.errors import EmbeddingError, VectorStoreUnavailableError
from chunkproof.base.request import Deadline
from chunkproof.embedders.cohere import CohereEmbedder
from chunkproof.embedders.embedder_port import InputType
from chunkproof.net.transport import DeadlineTransport, DirectClient
from chunkproof.stores.server import ServerStore

from support.listeners import dripping_server, refusing_address, silent_server
from support.recording_server import CannedResponse, RecordedRequest, recording_server


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(transport=DeadlineTransport(), timeout=60) as made:
        yield made


@contextmanager
def full_backlog() -> Iterator[str]:
    """A URL where a connection is neither accepted nor refused, because the backlog is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
            waiting.append(one)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for one in waiting:
                one.close()


def seconds_until(kind: type[Exception], client: httpx.Client, url: str, budget_ms: float, **request: Any) -> float:
    """How long a call with this deadline takes to fail with this error."""
    started = monotonic()
    with Deadline(budget_ms).enforced(), pytest.raises(kind):
        client.request("POST" if request else "GET", url, **request)
    return monotonic() - started


# deadlines


def test_a_silent_server_times_out_at_the_deadline(client: httpx.Client) -> None:
    with silent_server() as url:
        assert 0.3 <= seconds_until(httpx.ReadTimeout, client, url, 300) < 2


def test_a_server_that_sends_byte_by_byte_times_out_at_the_deadline(client: httpx.Client) -> None:
    with dripping_server(0.05, 1000) as url:
        assert 0.3 <= seconds_until(httpx.ReadTimeout, client, url, 300) < 2


def test_a_connection_that_is_not_accepted_times_out_at_the_deadline(client: httpx.Client) -> None:
    with full_backlog() as url:
        assert 0.3 <= seconds_until(httpx.ConnectTimeout, client, url, 300) < 2


def test_all_addresses_of_a_host_share_one_deadline(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with full_backlog() as url:
        port = int(url.rpartition(":")[2])
        address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
        look_up = socket.getaddrinfo
        monkeypatch.setattr(
            socket,
            "getaddrinfo",
            lambda host, *a, **k: [address] * 6 if host == "several.example" else look_up(host, *a, **k),
        )
        assert seconds_until(httpx.ConnectTimeout, client, f"http://several.example:{port}", 400) < 1.5


def test_a_dns_lookup_times_out_at_the_deadline(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: released.wait(20) and [])
    try:
        assert 0.3 <= seconds_until(httpx.ConnectTimeout, client, "http://silent.example", 300) < 2
    finally:
        released.set()


def test_an_unknown_host_fails_at_once(client: httpx.Client) -> None:
    assert seconds_until(httpx.ConnectError, client, "http://a..b", 60_000) < 5


def test_a_server_that_reads_slowly_times_out_at_the_deadline(client: httpx.Client) -> None:
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def read_slowly() -> None:
            connection, _ = listener.accept()
            with connection:
                while not stopped.wait(0.01) and connection.recv(100_000):
                    pass

        reader = threading.Thread(target=read_slowly, daemon=True)
        reader.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            took = seconds_until(httpx.TimeoutException, client, url, 400, content=b"x" * 30_000_000)
        finally:
            stopped.set()
            reader.join()
    assert took < 1.5


def test_with_no_time_left_no_connection_is_opened(client: httpx.Client) -> None:
    with recording_server() as server:
        assert seconds_until(httpx.ConnectTimeout, client, server.url, 0) < 1
        assert server.requests == []


def test_without_a_deadline_the_timeout_of_the_client_applies(client: httpx.Client) -> None:
    with recording_server() as server:
        assert client.get(server.url).status_code == 200


def test_a_refused_connection_fails_at_once(client: httpx.Client) -> None:
    assert seconds_until(httpx.ConnectError, client, refusing_address(), 60_000) < 5


def test_a_connection_that_closes_during_the_response_is_a_transport_error(client: httpx.Client) -> None:
    with recording_server(lambda _: CannedResponse(headers={"connection": "close"})) as server:
        client.get(server.url)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def cut() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")

        thread = threading.Thread(target=cut)
        thread.start()
        with pytest.raises(httpx.RemoteProtocolError):
            client.get(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


def test_a_timeout_leaves_the_transport_usable(client: httpx.Client) -> None:
    with silent_server() as silent, recording_server() as server:
        for _ in range(12):  # more than the connections of the pool
            seconds_until(httpx.TimeoutException, client, silent, 20)
        with Deadline(20_000).enforced():
            assert client.get(server.url).status_code == 200


# connections


def test_two_requests_share_a_connection(client: httpx.Client) -> None:
    with recording_server() as server:
        for number in range(3):
            with Deadline(20_000).enforced():
                client.post(server.url, content=f"{number}".encode())
    assert [request.body for request in server.requests] == [b"0", b"1", b"2"]
    assert len({request.connection for request in server.requests}) == 1


def test_a_connection_that_the_server_closed_is_replaced(client: httpx.Client) -> None:
    with recording_server(lambda _: CannedResponse(headers={"connection": "close"})) as server:
        assert [client.get(server.url).status_code for _ in range(2)] == [200, 200]
    assert len({request.connection for request in server.requests}) == 2


def test_a_connection_that_was_closed_while_idle_is_replaced(client: httpx.Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                connection.close()  # without notice, as a load balancer does

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert client.get(url).status_code == 200
        time.sleep(0.05)
        assert client.get(url).status_code == 200
        thread.join()


def test_a_second_request_on_a_kept_connection_has_its_own_deadline(client: httpx.Client) -> None:
    def slow(request: RecordedRequest) -> CannedResponse:
        time.sleep(0.2 if request.path == "/first" else 0.0)
        return CannedResponse()

    with recording_server(slow) as server:
        for path in ("/first", "/second"):
            with Deadline(2_000).enforced():
                assert client.get(f"{server.url}{path}").status_code == 200


# headers and bodies


def test_headers_are_computed_for_every_call() -> None:
    count = itertools.count(1)
    with (
        recording_server() as server,
        httpx.Client(
            transport=DeadlineTransport(lambda: {"api-key": f"key-{next(count)}"}),
            headers={"api-key": "unset"},
        ) as client,
    ):
        client.get(server.url)
        client.get(server.url)
    assert [request.headers["api-key"] for request in server.requests] == ["key-1", "key-2"]


def test_headers_are_not_computed_before_the_first_call() -> None:
    def never() -> dict[str, str]:
        raise AssertionError("called too early")

    transport = DeadlineTransport(never)
    store = ServerStore("http://127.0.0.1:1", transport)
    embedder = CohereEmbedder(DeadlineTransport(never), model="m")
    store.close()
    embedder.close()


def test_method_path_query_and_body_arrive_as_sent(client: httpx.Client) -> None:
    with recording_server() as server:
        client.put(f"{server.url}/a%20b/c?x=%C3%A9&y=1&y=2", content=b"\x00\xff")
    (request,) = server.requests
    assert (request.method, request.path, request.body) == ("PUT", "/a%20b/c?x=%C3%A9&y=1&y=2", b"\x00\xff")


def test_a_kept_head_has_the_length_and_the_headers_of_each_request() -> None:
    """Heads are written once for the same headers: what differs must not stay."""
    keys = iter(["one", "one", "two"])
    with (
        recording_server() as server,
        DirectClient(DeadlineTransport(lambda: {"api-key": next(keys)}), headers={"own": "1"}) as direct,
    ):
        for content in (b"a", b"a longer body", b""):
            direct.request("POST", server.url, content=content)
        requests = list(server.requests)
    assert [request.body for request in requests] == [b"a", b"a longer body", b""]
    assert [request.headers["api-key"] for request in requests] == ["one", "one", "two"]
    assert [request.headers["content-length"] for request in requests] == ["1", "13", "0"]
    assert all(request.headers["own"] == "1" for request in requests)


def test_a_compressed_response_is_read(client: httpx.Client) -> None:
    response = CannedResponse(body=gzip.compress(b'{"a": "\xc3\xa9"}'), headers={"content-encoding": "gzip"})
    with recording_server(lambda _: response) as server:
        assert client.get(server.url).json() == {"a": "é"}


def test_an_invalid_compressed_response_of_cohere_is_an_embedding_error() -> None:
    response = CannedResponse(
        body=b"not gzip", headers={"content-encoding": "gzip", "content-type": "application/json"}
    )
    with recording_server(lambda _: response) as server:
        embedder = CohereEmbedder(DeadlineTransport(), model="m", base_url=server.url)
        with pytest.raises(EmbeddingError):
            embedder.embed(["a"], InputType.QUERY, Deadline(20_000))
        embedder.close()


def test_an_invalid_compressed_response_of_qdrant_is_an_error_of_the_store() -> None:
    response = CannedResponse(
        body=b"not gzip", headers={"content-encoding": "gzip", "content-type": "application/json"}
    )
    with recording_server(lambda _: response) as server:
        store = ServerStore(server.url, DeadlineTransport())
        with pytest.raises(VectorStoreUnavailableError):
            store.collections(Deadline(20_000))
        store.close()


# redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_so_no_key_goes_elsewhere(status: int) -> None:
    with recording_server() as elsewhere:
        with recording_server(lambda _: CannedResponse(status, headers={"location": elsewhere.url})) as server:
            embedder = CohereEmbedder(
                DeadlineTransport(lambda: {"authorization": "Bearer k"}), model="m", base_url=server.url
            )
            with pytest.raises(EmbeddingError):
                embedder.embed(["a"], InputType.QUERY, Deadline(20_000))
            embedder.close()
            store = ServerStore(server.url, DeadlineTransport(lambda: {"api-key": "k"}))
            with pytest.raises(VectorStoreUnavailableError):
                store.collections(Deadline(20_000))
            store.close()
        assert len(server.requests) == 2
    assert elsewhere.requests == []


# connections that are opened early


@contextmanager
def counting_server(tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[str]]]:
    """A URL that answers one request on each connection, and what was done on them in order."""
    done: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # the end of the test
                    return
                connection = tls.wrap_socket(connection, server_side=True) if tls else connection
                done.append("opened")
                with connection:
                    if connection.recv(65_536):
                        done.append("asked")
                        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")

        thread = threading.Thread(target=serve)
        thread.start()
        scheme = "https" if tls else "http"
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}", done
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def wait_for(done: list[str], count: int) -> None:
    until = monotonic() + 10
    while len(done) < count and monotonic() < until:
        time.sleep(0.005)


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_a_connection_that_was_opened_early_serves_the_first_request(
    is_tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = None
    if is_tls:
        authority = trustme.CA()
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(tls)
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        monkeypatch.setattr("chunkproof.net.transport.tls_context", lambda: trusting)
    with counting_server(tls) as (url, done):
        transport = DeadlineTransport()
        transport.open_early(url)
        wait_for(done, 1)
        assert done == ["opened"]
        with httpx.Client(transport=transport) as client, Deadline(20_000).enforced():
            assert client.get(url).status_code == 200
        assert done == ["opened", "asked"]


def test_a_connection_is_opened_while_the_key_is_read() -> None:
    with counting_server() as (url, done):

        def read_key() -> dict[str, str]:
            wait_for(done, 1)
            done.append("key read")
            return {"api-key": "k"}

        with httpx.Client(transport=DeadlineTransport(read_key)) as client, Deadline(20_000).enforced():
            assert client.get(url).status_code == 200
        assert done == ["opened", "key read", "asked"]


def test_an_early_connection_that_failed_or_waits_costs_a_request_no_more_than_half_of_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with counting_server() as (url, done):
        transport = DeadlineTransport()
        look_up, released = socket.getaddrinfo, threading.Event()

        def hang(*given: Any, **named: Any) -> Any:
            released.wait(20)
            return look_up(*given, **named)

        monkeypatch.setattr(socket, "getaddrinfo", hang)
        transport.open_early(url)
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        started = monotonic()
        with httpx.Client(transport=transport) as client:
            with Deadline(1_000).enforced():
                assert client.get(url).status_code == 200
            assert monotonic() - started < 1.0
            released.set()
            wait_for(done, 3)
            assert done == ["opened", "asked", "opened"]  # the late one, which is closed unused
            transport.open_early(refusing_address())
            with Deadline(20_000).enforced():
                assert client.get(url).status_code == 200


def test_an_early_connection_that_no_request_took_is_closed_with_the_transport() -> None:
    with counting_server() as (url, done):
        transport = DeadlineTransport()
        transport.open_early(url)
        wait_for(done, 1)
        transport.close()
        assert done == ["opened"]  # `counting_server` would wait for ever if it stayed open


def test_threads_that_open_early_at_once_open_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkproof.net.transport.monotonic", lambda: time.sleep(0.05) or monotonic())
    with counting_server() as (url, done):
        transport = DeadlineTransport()
        threads = [threading.Thread(target=transport.open_early, args=(url,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        transport.close()
        time.sleep(0.2)  # for a second one to arrive
    assert done == ["opened"]


# responses as bytes


@contextmanager
def raw_server(response: bytes, *, closes: bool = False) -> Iterator[tuple[str, list[int]]]:
    """A URL where each request gets these bytes, a few at a time, and the number of requests on each connection."""
    counts: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(connection: socket.socket, number: int) -> None:
            size = max(7, len(response) // 20)
            with connection, suppress(OSError):  # the client disconnects, as it may
                while connection.recv(65_536):
                    counts[number] += 1
                    for begin in range(0, len(response), size):
                        connection.sendall(response[begin : begin + size])
                    if closes:
                        return

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # the end of the test
                    return
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                counts.append(0)
                threading.Thread(target=serve, args=(connection, len(counts) - 1), daemon=True).start()

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", counts
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("response", "body", "stays_open"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello, world", b"hello, world", True),
        (b"HTTP/1.1 200\r\ncontent-length:0\r\nx-empty:\r\n\r\n", b"", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ok", True),
        (CHUNKED + b"5\r\nhello\r\n07;name=value\r\n, world\r\n0\r\n\r\n", b"hello, world", True),
        (CHUNKED + b"C \r\nhello, world\r\n0\r\nx-sum: 1\r\n\r\n", b"hello, world", True),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ok", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nConnection: close\r\n\r\nok", b"ok", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok, and more", b"ok", False),
    ],
)
def test_a_response_is_read_to_its_end_and_no_further(
    client: httpx.Client, response: bytes, body: bytes, stays_open: bool
) -> None:
    with raw_server(response) as (url, counts):
        assert [client.get(url).content for _ in range(2)] == [body, body]
        client.close()
    assert counts == ([2] if stays_open else [1, 1])


def test_a_response_without_a_length_ends_with_the_connection(client: httpx.Client) -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\n\r\nhello, world", closes=True) as (url, _):
        assert client.get(url).content == b"hello, world"


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/2 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"SSH-2.0-server\r\n\r\n",
        b"HTTP/1.1 99 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na name: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: 1\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        CHUNKED + b"-1\r\n\r\n",
        CHUNKED + b"0x2\r\nok\r\n0\r\n\r\n",
        CHUNKED + b"5\r\nhel",
        CHUNKED + b"2\r\nok\r\n",
        CHUNKED + b"2\r\nok and more\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * 200_000,
    ],
)
def test_what_is_no_response_of_http_is_a_protocol_error(client: httpx.Client, response: bytes) -> None:
    with (
        raw_server(response, closes=True) as (url, _),
        Deadline(10_000).enforced(),
        pytest.raises(httpx.RemoteProtocolError),
    ):
        client.get(url)


@pytest.mark.parametrize("key", ["k\r\nx-injected: 1", "k\n", "k\x00", "k\r"])
def test_a_key_adds_no_header(key: str) -> None:
    with recording_server() as server:
        transport = DeadlineTransport(lambda: {"api-key": key})
        with httpx.Client(transport=transport) as client, pytest.raises(httpx.LocalProtocolError):
            client.get(server.url)
    assert server.requests == []


def test_requests_at_once_have_connections_of_their_own_which_are_kept(client: httpx.Client) -> None:
    everyone = threading.Barrier(8)

    def together(request: RecordedRequest) -> CannedResponse:
        everyone.wait(20)
        return CannedResponse(body=request.body)

    with recording_server(together) as server, ThreadPoolExecutor(8) as pool:
        for _ in range(2):
            texts = [b"%d" % number for number in range(8)]
            sent = pool.map(lambda text: client.post(server.url, content=text).content, texts)
            assert list(sent) == texts
    assert len({request.connection for request in server.requests}) == 8


def test_a_connection_that_was_kept_for_too_long_is_replaced(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording_server() as server:
        client.get(server.url)
        monkeypatch.setattr("chunkproof.net.transport.monotonic", lambda: monotonic() + 31)
        client.get(server.url)
    assert len({request.connection for request in server.requests}) == 2
