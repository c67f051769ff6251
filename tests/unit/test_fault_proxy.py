"""The fault proxy with a plain HTTP client: unchanged bytes without a fault, and each fault as its name says."""

import json
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

import httpx
import pytest

from support.cohere_server import KEY, CohereServer, cohere_server
from support.fault_proxy import Exchange, FaultProxy, fault_proxy
from support.faults import FAULTS, Drip, NeverReads, Responds, Silence, Transformed, cohere_error
from support.qdrant_server import QdrantServer
from support.recording_server import recording_server

BODY = {"model": "m", "texts": ["one", "two"], "input_type": "search_query", "embedding_types": ["float"]}
COHERE, QDRANT = FAULTS["cohere"], FAULTS["qdrant"]


@pytest.fixture
def cohere() -> Iterator[CohereServer]:
    with cohere_server(lambda _: [0.6, 0.8]) as server:
        yield server


@pytest.fixture
def proxy(cohere: CohereServer) -> Iterator[FaultProxy]:
    with fault_proxy(cohere.url) as made:
        yield made


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[httpx.Client]:
    with plain_client(proxy.url) as made:
        yield made


def plain_client(url: str) -> httpx.Client:
    """A client without TLS certificates, which take long to load."""
    headers = {"authorization": f"Bearer {KEY}"}
    return httpx.Client(base_url=url, headers=headers, verify=False, trust_env=False, timeout=5)


def embed(client: httpx.Client, timeout: float = 5) -> httpx.Response:
    return client.post("/v2/embed", json=BODY, timeout=timeout)


def wait_for_requests(proxy: FaultProxy, count: int) -> None:
    """Wait until so many requests are logged: a client may give up before the proxy runs."""
    give_up = monotonic() + 5
    while len(proxy.log) != count:
        assert monotonic() < give_up
        sleep(0.005)


# without a fault

GET = b"GET /a%20b?c=%C3%A9&c HTTP/1.1\r\nHOST: somewhere\r\nx-Odd:  two blanks \r\nAccept-Encoding: gzip\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\nContent-LENGTH: 5\r\n\r\n\x00\xff\r\n\n"
CHUNKED = b"PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"
EXCHANGES = {
    "with a length": (GET, b"HTTP/1.1 200 Fine\r\nX-Case: Kept\r\nContent-Length: 4\r\n\r\n\x00\r\n\xff"),
    "chunked": (POST, b"HTTP/1.1 404 \r\nTransfer-Encoding: chunked\r\n\r\n02;x\r\nab\r\n0\r\n\r\n"),
    "until the connection ends": (CHUNKED, b"HTTP/1.1 200 OK\r\nserver: old\r\n\r\nall of it"),
    "without a body": (POST, b"HTTP/1.1 204 No Content\r\n\r\n"),
}


@contextmanager
def scripted_server(request_size: int, response: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that records the bytes of one request, sends these bytes, and closes."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                received.append(read_exactly(connection, request_size))
                connection.sendall(response)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", received
        thread.join()


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2])), timeout=5)


@pytest.mark.parametrize("name", EXCHANGES)
def test_without_a_fault_bytes_pass_unchanged(name: str) -> None:
    request, response = EXCHANGES[name]
    with (
        scripted_server(len(request), response) as (url, received),
        fault_proxy(url) as proxy,
        connect(proxy) as connection,
    ):
        connection.sendall(request)
        assert read_exactly(connection, len(response)) == response
    assert received == [request]


def test_one_connection_serves_many_requests_on_both_sides() -> None:
    with recording_server() as server, fault_proxy(server.url) as proxy, plain_client(proxy.url) as client:
        client.get("/1")
        client.post("/2?x=1", content=b"abc")
    assert proxy.connections == len({request.connection for request in server.requests}) == 1
    assert proxy.log == [Exchange("GET", "/1", 1, None), Exchange("POST", "/2?x=1", 1, None)]


# faults


def test_a_fault_applies_as_often_as_requested(client: httpx.Client, proxy: FaultProxy) -> None:
    fault = Responds(cohere_error(503))
    proxy.inject(fault, times=2)
    assert [embed(client).status_code for _ in range(3)] == [503, 503, 200]
    assert [exchange.fault for exchange in proxy.log] == [fault, fault, None]


def test_a_fault_without_a_count_applies_until_it_is_removed(client: httpx.Client, proxy: FaultProxy) -> None:
    proxy.inject(Responds(cohere_error(500)))
    assert [embed(client).status_code for _ in range(3)] == [500, 500, 500]
    proxy.inject(None)
    assert embed(client).status_code == 200


RAISED: dict[str, tuple[type[httpx.TransportError], str]] = {
    "connection refused": (httpx.ConnectError, "refused"),
    "reset before any response": (httpx.ReadError, "reset"),
    "closed before any response": (httpx.RemoteProtocolError, "without sending a response"),
    "reset in mid-body": (httpx.ReadError, "reset"),
    "truncated body": (httpx.RemoteProtocolError, r"received \d+ bytes, expected \d+"),
    "truncated headers": (httpx.RemoteProtocolError, "without sending a response"),
    "stale keep-alive, reset": (httpx.ReadError, "reset"),
    "stale keep-alive, closed": (httpx.RemoteProtocolError, "without sending a response"),
    "half-open silence": (httpx.ReadTimeout, "timed out"),
    "never reads": (httpx.ReadTimeout, "timed out"),
    "garbage": (httpx.RemoteProtocolError, "illegal request line"),
}


@pytest.mark.parametrize("name", RAISED)
def test_a_broken_connection_breaks_as_its_name_says(name: str, client: httpx.Client, proxy: FaultProxy) -> None:
    embed(client)
    proxy.inject(COHERE[name])
    kind, message = RAISED[name]
    with pytest.raises(kind, match=message):
        embed(client, timeout=0.1)
    proxy.inject(None)
    assert embed(client).status_code == 200


def test_a_stale_connection_serves_only_its_first_request(proxy: FaultProxy) -> None:
    proxy.inject(COHERE["stale keep-alive, reset"])
    for _ in range(2):
        with plain_client(proxy.url) as client:
            assert client.post("/", json={}).status_code == 404
            with pytest.raises(httpx.ReadError):
                client.post("/", json={})
    applied = [(exchange.connection, exchange.fault is not None) for exchange in proxy.log]
    assert applied == [(1, False), (1, True), (2, False), (2, True)]


def test_silence_reads_a_long_request_and_never_reads_blocks_it(client: httpx.Client, proxy: FaultProxy) -> None:
    proxy.inject(Silence())
    with pytest.raises(httpx.ReadTimeout):
        client.post("/", content=b"x" * 20_000_000, timeout=httpx.Timeout(5, read=0.05))
    wait_for_requests(proxy, 1)
    proxy.inject(NeverReads())
    with pytest.raises(httpx.WriteTimeout):
        client.post("/", content=b"x" * 20_000_000, timeout=httpx.Timeout(5, write=0.05))
    wait_for_requests(proxy, 2)
    assert [exchange.method for exchange in proxy.log] == ["POST", ""]


def test_a_drip_sends_the_whole_response_byte_by_byte(client: httpx.Client, proxy: FaultProxy) -> None:
    proxy.inject(Drip(every_ms=1))
    with client.stream("POST", "/nowhere", json={}) as response:
        parts = list(response.iter_raw())
    assert b"".join(parts) == b'{"message": "not found"}'
    assert len(parts) > 1


def test_a_gzip_bomb_is_a_megabyte_that_decompresses_to_a_gigabyte(client: httpx.Client, proxy: FaultProxy) -> None:
    proxy.inject(COHERE["a gzip bomb"])
    with client.stream("POST", "/v2/embed", json=BODY) as response:
        assert response.headers["content-encoding"] == "gzip"
        body = b"".join(response.iter_raw())
    assert 990_000 < len(body) <= 1_000_010
    part = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body[: len(body) // 20])
    assert len(part) * 20 > 900_000_000


# changed responses

COHERE_CHANGES = {
    "no embeddings": "[]",
    "wrong dimension": "[[0.6], [0.6]]",
    "an embedding with NaN": "[[NaN, 0.8], [0.6, 0.8]]",
    "an embedding without values": "[[], [0.6, 0.8]]",
    "an embedding of nulls": "[[null, null], [0.6, 0.8]]",
    "an embedding of zeros": "[[0.0, 0.0], [0.6, 0.8]]",
}
POINT = {"id": 1, "version": 1, "score": 1.0, "payload": {"text": "a"}}
QDRANT_CHANGES: dict[str, dict[str, Any]] = {
    "result missing": {},
    "result null": {"result": None},
    "result of the wrong type": {"result": "five points"},
    "points without score": {"result": {"points": [{"id": 1, "version": 1, "payload": {"text": "a"}}]}},
    "score NaN": {"result": {"points": [POINT | {"score": "NaN"}]}},
    "score null": {"result": {"points": [POINT | {"score": None}]}},
    "payload null": {"result": {"points": [POINT | {"payload": None}]}},
    "payload a string": {"result": {"points": [POINT | {"payload": "text"}]}},
}


@pytest.mark.parametrize("name", COHERE_CHANGES)
def test_embeddings_change_as_named_and_nothing_else(name: str, client: httpx.Client, proxy: FaultProxy) -> None:
    healthy = embed(client).text
    proxy.inject(COHERE[name])
    assert embed(client).text == healthy.replace("[[0.6, 0.8], [0.6, 0.8]]", COHERE_CHANGES[name])


@pytest.mark.server
def test_qdrant_responses_change_as_named_and_nothing_else(served_qdrant: QdrantServer, collection: str) -> None:
    path = f"/collections/{collection}"
    query = {"query": [1.0, 0.0], "with_payload": True}
    with fault_proxy(served_qdrant.url) as proxy, plain_client(proxy.url) as client:
        client.put(path, json={"vectors": {"size": 2, "distance": "Cosine"}})
        point = {"id": 1, "vector": [1.0, 0.0], "payload": {"text": "a"}}
        client.put(f"{path}/points?wait=true", json={"points": [point]}).raise_for_status()

        def result() -> dict[str, Any]:
            response = client.post(f"{path}/points/query", json=query)
            content = json.loads(response.content, parse_constant=str)
            return {name: value for name, value in content.items() if name == "result"}

        assert result() == {"result": {"points": [POINT]}}
        changed = {}
        for name in QDRANT_CHANGES:
            proxy.inject(QDRANT[name])
            changed[name] = result()
        proxy.inject(None)
        client.delete(path)
    assert changed == QDRANT_CHANGES


# the end


def test_nothing_listens_after_the_end(cohere: CohereServer) -> None:
    with fault_proxy(cohere.url) as proxy:
        connect(proxy).close()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)


def test_an_error_in_a_change_is_raised_at_the_end(cohere: CohereServer) -> None:
    def run() -> None:
        with fault_proxy(cohere.url) as proxy:
            proxy.inject(Transformed(lambda content: content["nothing of that name"]))
            with plain_client(proxy.url) as client, pytest.raises(httpx.RemoteProtocolError):
                embed(client)

    with pytest.raises(KeyError, match="nothing of that name"):
        run()
