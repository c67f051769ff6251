"""The fault proxy, seen by a plain HTTP client: faithful until told otherwise, and then as bad as its word."""

import gc
import json
import os
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import pytest

from support.cohere_server import KEY, CohereServer, cohere_server
from support.fault_proxy import Exchange, Fault, FaultProxy, fault_proxy
from support.faults import (
    FAULTS,
    STATUSES,
    Cut,
    Drip,
    GzipBomb,
    Latency,
    NeverReads,
    Refused,
    Says,
    Silence,
    Transformed,
    cohere_error,
    qdrant_error,
)
from support.listeners import refusing_address
from support.qdrant_server import QdrantServer
from support.recording_server import CannedResponse, RecordedRequest, recording_server

ASKED = {"model": "m", "texts": ["one", "two"], "input_type": "search_query", "embedding_types": ["float"]}
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
    with plain(proxy.url) as made:
        yield made


def plain(url: str) -> httpx.Client:
    """A client as anyone has it, without the certificates that take long to load."""
    return httpx.Client(
        base_url=url, headers={"authorization": f"Bearer {KEY}"}, verify=False, trust_env=False, timeout=5
    )


def embed(client: httpx.Client, timeout: float = 5) -> httpx.Response:
    return client.post("/v2/embed", json=ASKED, timeout=timeout)


@contextmanager
def scripted(request_size: int, answer: bytes, connections: int = 1) -> Iterator[tuple[str, list[bytes]]]:
    """A server that keeps the bytes of one request per connection, answers with these, and closes."""
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(connections):
                connection, _ = listener.accept()
                with connection:
                    got.append(exactly(connection, request_size))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", got
        thread.join()


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data


def connected(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2])), timeout=5)


def comes_true(condition: Callable[[], bool]) -> None:
    give_up = monotonic() + 5
    while not condition():
        assert monotonic() < give_up
        sleep(0.005)


def logged(proxy: FaultProxy, requests: int) -> None:
    """Wait until so many arrived: a client may give up before the proxy has its turn."""
    comes_true(lambda: len(proxy.log) == requests)


# without a fault

GET = b"GET /a%20b?c=%C3%A9&c HTTP/1.1\r\nHOST: somewhere\r\nx-Odd:  two blanks \r\nAccept-Encoding: gzip\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\nContent-LENGTH: 5\r\n\r\n\x00\xff\r\n\n"
CHUNKED = (
    b"PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"
)
ANSWERS = {
    "with a length": (
        GET,
        b"HTTP/1.1 200 Fine By Me\r\nX-Case: Kept\r\nContent-Length: 4\r\n\r\n\x00\r\n\xff",
    ),
    "in chunks": (
        POST,
        b"HTTP/1.1 404 \r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\x00\r\n02;x\r\nab\r\n0\r\n\r\n",
    ),
    "until the end": (CHUNKED, b"HTTP/1.1 200 OK\r\nserver: old\r\n\r\nall of it"),
    "until an end at once": (GET, b"HTTP/1.1 200 OK\r\nserver: old\r\n\r\n"),
    "with no content": (POST, b"HTTP/1.1 204 No Content\r\n\r\n"),
    "to HEAD": (b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n"),
    "that closes": (GET, b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_without_a_fault_every_byte_passes_as_it_came(name: str) -> None:
    request, answer = ANSWERS[name]
    with scripted(len(request), answer) as (url, got), fault_proxy(url) as proxy, connected(proxy) as raw:
        raw.sendall(request)
        assert exactly(raw, len(answer)) == answer
        if name in ("until the end", "until an end at once", "that closes"):
            assert raw.recv(1) == b""
    assert got == [request]


def test_large_bodies_pass_both_ways() -> None:
    sent, said = os.urandom(20_000_000), os.urandom(20_000_000)
    with recording_server(lambda _: CannedResponse(body=said)) as server, fault_proxy(server.url) as proxy:
        with plain(proxy.url) as client:
            assert client.post("/", content=sent).content == said
        assert server.requests[0].body == sent


def test_one_connection_serves_many_requests_on_both_sides() -> None:
    with (
        recording_server() as server,
        fault_proxy(server.url) as proxy,
        plain(proxy.url) as client,
    ):
        client.get("/1")
        client.post("/2?x=1", content=b"abc")
        client.put("/3")
    assert proxy.connections == 1
    assert len({request.connection for request in server.requests}) == 1
    assert proxy.log == [
        Exchange("GET", "/1", 1, None),
        Exchange("POST", "/2?x=1", 1, None),
        Exchange("PUT", "/3", 1, None),
    ]


def test_a_server_that_closed_its_idle_connection_is_connected_to_anew() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    with (
        scripted(len(POST), answer, connections=2) as (url, got),
        fault_proxy(url) as proxy,
        connected(proxy) as raw,
    ):
        for _ in range(2):
            raw.sendall(POST)
            assert exactly(raw, len(answer)) == answer
            sleep(0.05)  # the server's goodbye takes a moment
    assert got == [POST, POST]
    assert proxy.connections == 1


def test_a_server_that_cannot_be_reached_is_a_connection_without_an_answer() -> None:
    silence = pytest.raises(httpx.RemoteProtocolError, match="without sending a response")
    with fault_proxy(refusing_address()) as astray, plain(astray.url) as client, silence:
        client.get("/")


def test_many_clients_at_once_get_their_own_answers() -> None:
    def echo(request: RecordedRequest) -> CannedResponse:
        return CannedResponse(body=request.body)

    with recording_server(echo) as server, fault_proxy(server.url) as between, ThreadPoolExecutor(8) as pool:

        def ask(number: int) -> bool:
            bodies = [f"{number}-{turn}".encode() * 1000 for turn in range(5)]
            with plain(between.url) as client:
                return [client.post("/", content=body).content for body in bodies] == bodies

        assert all(pool.map(ask, range(16)))
        assert between.connections == 16
        assert len(between.log) == 80


# how often


def test_a_fault_strikes_as_often_as_told_and_is_gone(client: httpx.Client, proxy: FaultProxy) -> None:
    fault = Says(cohere_error(503))
    proxy.inject(fault, times=2)
    assert [embed(client).status_code for _ in range(3)] == [503, 503, 200]
    assert [exchange.fault for exchange in proxy.log] == [fault, fault, None]


def test_a_fault_strikes_until_healed(client: httpx.Client, proxy: FaultProxy) -> None:
    proxy.inject(Says(cohere_error(500)))
    assert [embed(client).status_code for _ in range(3)] == [500, 500, 500]
    proxy.inject(None)
    assert embed(client).status_code == 200
    assert proxy.connections == 1


def test_only_requests_that_a_fault_concerns_are_counted(client: httpx.Client, proxy: FaultProxy) -> None:
    proxy.inject(COHERE["stale keep-alive, reset"], times=1)
    assert embed(client).status_code == 200
    with pytest.raises(httpx.ReadError):
        embed(client)
    assert [embed(client).status_code for _ in range(2)] == [200, 200]


@pytest.mark.parametrize(("fault", "times"), [(Refused(), 1), (None, 1), (Silence(), 0)])
def test_what_cannot_be_counted_is_refused(proxy: FaultProxy, fault: Fault | None, times: int) -> None:
    with pytest.raises(ValueError, match="times"):
        proxy.inject(fault, times=times)


@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "127.0.0.1:1", "http://x", "http://x:1/path"])
def test_an_upstream_that_is_no_plain_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not of the form"), fault_proxy(url):
        pass


# the faults of the catalogue, by name

RAISED: dict[str, tuple[type[httpx.TransportError], str]] = {
    "connection refused": (httpx.ConnectError, "refused"),
    "reset before any answer": (httpx.ReadError, "reset"),
    "closed before any answer": (httpx.RemoteProtocolError, "without sending a response"),
    "reset in mid-body": (httpx.ReadError, "reset"),
    "truncated body": (httpx.RemoteProtocolError, r"received \d+ bytes, expected \d+"),
    "truncated headers": (httpx.RemoteProtocolError, "without sending a response"),
    "stale keep-alive, reset": (httpx.ReadError, "reset"),
    "stale keep-alive, closed": (httpx.RemoteProtocolError, "without sending a response"),
    "half-open silence": (httpx.ReadTimeout, "timed out"),
    "never reads": (httpx.ReadTimeout, "timed out"),
    "garbage": (httpx.RemoteProtocolError, "illegal request line"),
}
ANSWERED = {
    "latency",
    "slow drip",
    "a web page",
    "another service's JSON",
    "JSON nested without end",
    "a gzip bomb",
}
RETRY = {f"status {status}, retry {when}" for status in (429, 503) for when in ("in 7 s", "at a date")}
COHERE_CHANGES = {
    "no embeddings": "[]",
    "wrong dimension": "[[0.6], [0.6]]",
    "an embedding with NaN": "[[NaN, 0.8], [0.6, 0.8]]",
    "an embedding without values": "[[], [0.6, 0.8]]",
    "an embedding of nulls": "[[null, null], [0.6, 0.8]]",
    "an embedding of zeros": "[[0.0, 0.0], [0.6, 0.8]]",
}
POINT = {"id": 1, "version": 1, "score": 1.0, "payload": {"text": "a"}}
BARE = {"id": 1, "version": 1, "payload": {"text": "a"}}
QDRANT_CHANGES: dict[str, dict[str, Any]] = {
    "result missing": {},
    "result null": {"result": None},
    "result of the wrong type": {"result": "five points"},
    "points without score": {"result": {"points": [BARE]}},
    "score NaN": {"result": {"points": [POINT | {"score": "NaN"}]}},
    "score null": {"result": {"points": [POINT | {"score": None}]}},
    "payload null": {"result": {"points": [POINT | {"payload": None}]}},
    "payload a string": {"result": {"points": [POINT | {"payload": "text"}]}},
}


def test_no_fault_of_the_catalogue_goes_unseen_below() -> None:
    shared = {*RAISED, *ANSWERED, *RETRY, *(f"status {status}" for status in STATUSES)}
    assert set(COHERE) == shared | {"embeddings missing"} | set(COHERE_CHANGES)
    assert set(QDRANT) == shared | set(QDRANT_CHANGES)


@pytest.mark.parametrize("name", RAISED)
def test_a_broken_connection_breaks_as_its_name_says(
    name: str, client: httpx.Client, proxy: FaultProxy
) -> None:
    embed(client)
    proxy.inject(COHERE[name])
    kind, message = RAISED[name]
    with pytest.raises(kind, match=message) as raised:
        embed(client, timeout=0.1)
    assert type(raised.value) is kind
    proxy.inject(None)
    assert embed(client).status_code == 200


def test_refused_again_and_again_the_port_stays_the_same(client: httpx.Client, proxy: FaultProxy) -> None:
    for _ in range(5):
        assert embed(client).status_code == 200
        proxy.inject(Refused())
        for _ in range(2):
            with pytest.raises(httpx.ConnectError):
                embed(client)
        proxy.inject(None)
    assert proxy.connections == len(proxy.log) == 5


def test_a_reset_in_mid_body_comes_after_status_and_half_the_body(
    client: httpx.Client, proxy: FaultProxy
) -> None:
    whole = embed(client).content
    proxy.inject(COHERE["reset in mid-body"])
    got: list[bytes] = []
    with client.stream("POST", "/v2/embed", json=ASKED) as answer:
        assert (answer.status_code, int(answer.headers["content-length"])) == (200, len(whole))
        with pytest.raises(httpx.ReadError):
            got.extend(answer.iter_raw())
    assert b"".join(got) == whole[: len(whole) // 2]


def test_truncated_headers_end_in_the_middle_of_one(proxy: FaultProxy) -> None:
    proxy.inject(COHERE["truncated headers"])
    with connected(proxy) as raw:
        raw.sendall(b"POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        got = exactly(raw, 10_000)
    assert got.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert b"\r\n\r\n" not in got


def test_a_stale_connection_answers_once_and_a_fresh_one_always(proxy: FaultProxy) -> None:
    stale = COHERE["stale keep-alive, reset"]
    proxy.inject(stale)
    for _ in range(2):
        with plain(proxy.url) as client:
            assert client.post("/", json={}).status_code == 404
            with pytest.raises(httpx.ReadError):
                client.post("/", json={})
    assert [(exchange.connection, exchange.fault) for exchange in proxy.log] == [
        (1, None),
        (1, stale),
        (2, None),
        (2, stale),
    ]


def test_silence_has_read_the_request(client: httpx.Client, proxy: FaultProxy) -> None:
    proxy.inject(Silence())
    with pytest.raises(httpx.ReadTimeout):
        client.post("/", content=b"x" * 20_000_000, timeout=httpx.Timeout(5, read=0.05))
    logged(proxy, 1)
    assert proxy.log == [Exchange("POST", "/", 1, Silence())]


def test_what_never_reads_lets_a_long_request_get_stuck(client: httpx.Client, proxy: FaultProxy) -> None:
    proxy.inject(NeverReads())
    with pytest.raises(httpx.WriteTimeout):
        client.post("/", content=b"x" * 20_000_000, timeout=httpx.Timeout(5, write=0.05))
    logged(proxy, 1)
    assert proxy.log == [Exchange("", "", 1, NeverReads())]


def test_latency_comes_before_the_servers_answer(client: httpx.Client, proxy: FaultProxy) -> None:
    proxy.inject(COHERE["latency"])
    started = monotonic()
    assert embed(client).status_code == 200
    assert monotonic() - started >= 0.05


def test_jitter_adds_up_to_its_size() -> None:
    drawn = [Latency(50, jitter_ms=20).seconds() for _ in range(200)]
    assert min(drawn) >= 0.05
    assert 0.06 < max(drawn) <= 0.07
    assert Latency(50).seconds() == 0.05


def test_a_drip_is_the_whole_answer_in_single_bytes(client: httpx.Client, proxy: FaultProxy) -> None:
    proxy.inject(Drip(every_ms=1))
    with client.stream("POST", "/nowhere", json={}) as answer:
        parts = list(answer.iter_raw())
    assert b"".join(parts) == b'{"message": "not found"}'
    assert len(parts) > 1
    assert embed(client, timeout=0.5).json()["embeddings"] == {"float": [[0.6, 0.8], [0.6, 0.8]]}


def test_the_catalogues_drip_begins_and_goes_on_too_long_to_wait_for(
    client: httpx.Client, proxy: FaultProxy
) -> None:
    proxy.inject(COHERE["slow drip"])
    with client.stream("POST", "/v2/embed", json=ASKED) as answer:
        assert answer.status_code == 200
        assert next(answer.iter_raw()) == b"{"


def test_a_web_page_is_html_with_200(client: httpx.Client, proxy: FaultProxy) -> None:
    proxy.inject(COHERE["a web page"])
    answer = embed(client)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html")
    assert answer.text.startswith("<!doctype html>")


def test_another_services_json_is_json_with_200(client: httpx.Client, proxy: FaultProxy) -> None:
    proxy.inject(COHERE["another service's JSON"])
    answer = embed(client)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json().keys().isdisjoint({"embeddings", "result", "status", "message"})


def test_json_can_be_nested_deeper_than_pythons_own_reader_goes(
    client: httpx.Client, proxy: FaultProxy
) -> None:
    proxy.inject(COHERE["JSON nested without end"])
    answer = embed(client)
    assert (answer.status_code, answer.content) == (200, b"[" * 100_000 + b"]" * 100_000)


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_comes_in_the_services_own_words(
    status: int, client: httpx.Client, proxy: FaultProxy
) -> None:
    proxy.inject(COHERE[f"status {status}"])
    answer = embed(client)
    assert (answer.status_code, "retry-after" in answer.headers) == (status, False)
    assert answer.json().keys() == {"id", "message"}
    proxy.inject(QDRANT[f"status {status}"])
    answer = embed(client)
    assert answer.status_code == status
    assert answer.content == qdrant_error(status).body


@pytest.mark.parametrize("status", [429, 503])
def test_a_time_to_wait_is_in_seconds_or_a_date_to_come(
    status: int, client: httpx.Client, proxy: FaultProxy
) -> None:
    proxy.inject(COHERE[f"status {status}, retry in 7 s"])
    answer = embed(client)
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "7")
    proxy.inject(COHERE[f"status {status}, retry at a date"])
    answer = embed(client)
    to_wait = parsedate_to_datetime(answer.headers["retry-after"]) - datetime.now(UTC)
    assert (answer.status_code, 0 < to_wait.total_seconds() <= 7) == (status, True)


def test_a_gzip_bomb_is_a_megabyte_that_unpacks_to_a_gigabyte(
    client: httpx.Client, proxy: FaultProxy
) -> None:
    proxy.inject(COHERE["a gzip bomb"])
    with client.stream("POST", "/v2/embed", json=ASKED) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        body = b"".join(answer.iter_raw())
    assert 990_000 < len(body) <= 1_000_010
    part = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body[: len(body) // 20])
    assert len(part) * 20 > 900_000_000
    assert part.isspace()


# what the server said, changed


def test_embeddings_can_be_missing(client: httpx.Client, proxy: FaultProxy) -> None:
    proxy.inject(COHERE["embeddings missing"])
    answer = embed(client)
    assert answer.status_code == 200
    assert answer.json().keys() == {"id", "texts", "meta", "response_type"}


@pytest.mark.parametrize("name", COHERE_CHANGES)
def test_embeddings_change_as_named_and_nothing_else(
    name: str, client: httpx.Client, proxy: FaultProxy
) -> None:
    healthy = embed(client).text
    proxy.inject(COHERE[name])
    assert embed(client).text == healthy.replace("[[0.6, 0.8], [0.6, 0.8]]", COHERE_CHANGES[name])


def test_an_error_of_the_server_is_not_changed(client: httpx.Client, proxy: FaultProxy) -> None:
    proxy.inject(COHERE["wrong dimension"])
    answer = client.post("/v2/embed", json=ASKED, headers={"authorization": "Bearer wrong"})
    assert (answer.status_code, answer.json()) == (401, {"message": "invalid api token"})


@pytest.fixture
def points(served_qdrant: QdrantServer, collection: str) -> Iterator[str]:
    """The path to the points of a collection with one point."""
    with plain(f"{served_qdrant.url}/collections/{collection}") as client:
        client.put("", json={"vectors": {"size": 2, "distance": "Cosine"}})
        point = {"id": 1, "vector": [1.0, 0.0], "payload": {"text": "a"}}
        client.put("/points?wait=true", json={"points": [point]}).raise_for_status()
        yield f"/collections/{collection}/points"
        client.delete("")


@pytest.mark.server
def test_qdrants_answers_change_as_named_and_nothing_else(served_qdrant: QdrantServer, points: str) -> None:
    query = {"query": [1.0, 0.0], "with_payload": True}
    with fault_proxy(served_qdrant.url) as proxy, plain(proxy.url) as client:

        def result() -> dict[str, Any]:
            answer = client.post(f"{points}/query", json=query)
            said = json.loads(answer.content, parse_constant=str)
            assert (answer.status_code, said.pop("status"), said.pop("time") > 0) == (200, "ok", True)
            return dict(said)

        assert result() == {"result": {"points": [POINT]}}
        changed = {}
        for name in QDRANT_CHANGES:
            proxy.inject(QDRANT[name])
            changed[name] = result()
    assert changed == QDRANT_CHANGES


@pytest.mark.server
def test_points_by_id_change_too_and_answers_without_points_stay(
    served_qdrant: QdrantServer, points: str
) -> None:
    with fault_proxy(served_qdrant.url) as proxy, plain(proxy.url) as client:
        proxy.inject(QDRANT["payload null"])
        assert client.post(points, json={"ids": [1]}).json()["result"] == [{"id": 1, "payload": None}]
        assert client.get(points.removesuffix("/points")).json()["result"]["points_count"] == 1
        assert client.get("/readyz").text == "all shards are ready"
        proxy.inject(QDRANT["score NaN"])
        by_id = client.post(points, json={"ids": [1], "with_payload": True}).json()["result"]
        assert by_id == [{"id": 1, "payload": {"text": "a"}}]


@pytest.mark.server
def test_qdrants_compressed_chunks_pass_and_can_be_cut(served_qdrant: QdrantServer, points: str) -> None:
    with fault_proxy(served_qdrant.url) as proxy, plain(proxy.url) as client:
        answer = client.get("/collections")
        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.headers["content-encoding"] == "gzip"
        assert points.split("/")[2] in [found["name"] for found in answer.json()["result"]["collections"]]
        proxy.inject(QDRANT["truncated body"])
        with pytest.raises(httpx.RemoteProtocolError, match=r"received \d+ bytes, expected \d+"):
            client.get("/collections")


# the end


HELD = (
    Silence(),
    NeverReads(),
    Latency(60_000),
    Drip(every_ms=60_000),
    GzipBomb(),
    Cut("nothing", reset=True),
)


def test_nothing_is_left_when_it_ends_in_the_middle_of_every_fault(cohere: CohereServer) -> None:
    def held() -> tuple[int, int]:
        gc.collect()
        return threading.active_count(), len(list(Path("/dev/fd").iterdir()))

    before = held()
    with fault_proxy(cohere.url) as proxy, ExitStack() as clients:
        for number, fault in enumerate(HELD, start=1):
            proxy.inject(fault)
            raw = clients.enter_context(connected(proxy))
            raw.sendall(b"POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
            logged(proxy, number)
        clients.enter_context(connected(proxy)).sendall(b"POST / HT")
        clients.enter_context(connected(proxy))
        left_open = clients.pop_all()
    with left_open:
        assert "fault-proxy" not in [thread.name for thread in threading.enumerate()]
    comes_true(lambda: held() == before)  # the server behind it needs a moment


def test_nothing_listens_after_its_end(cohere: CohereServer) -> None:
    with fault_proxy(cohere.url) as proxy:
        connected(proxy).close()
    with pytest.raises(ConnectionRefusedError):
        connected(proxy)


def test_a_mistake_in_a_change_is_raised_at_the_end(cohere: CohereServer) -> None:
    def ask() -> None:
        with fault_proxy(cohere.url) as proxy:
            proxy.inject(Transformed(lambda answer: answer["nothing of that name"]))
            with plain(proxy.url) as client, pytest.raises(httpx.RemoteProtocolError):
                embed(client)

    with pytest.raises(KeyError, match="nothing of that name"):
        ask()
