"""Failed calls through both real SDKs: what is repeated, what is not, and when the circuit is open."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from time import monotonic
from typing import Any
from uuid import UUID

import pytest

from chunkproof.base.errors import (
    ChunkproofError,
    EmbeddingError,
    RateLimitedError,
    RequestTooLargeError,
    VectorStoreUnavailableError,
)
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import AnyOf
from chunkproof.embedders.cohere import CohereEmbedder
from chunkproof.embedders.embedder_port import InputType
from chunkproof.net import resilience as breaker_module
from chunkproof.net import transport as transport_module
from chunkproof.net.resilience import CircuitBreaker, CircuitState
from chunkproof.net.transport import DeadlineTransport
from chunkproof.service.api import Api
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import Point, WritableStore
from chunkproof_cli.local.gateway import LambdaContext

from support.api import Reply, get, invoke, new_process
from support.clock import Clock, replace_clock
from support.cohere_server import KEY, CohereServer
from support.fault_proxy import FaultProxy, fault_proxy
from support.faults import Cut, Refused
from support.log_lines import capture_records
from support.recording_server import CannedResponse, RecordedRequest, RecordingServer, listening, recording_server

JSON = {"content-type": "application/json"}
BUDGET_MS = 5_000.0
NO_COLLECTIONS = CannedResponse(
    body=json.dumps({"result": {"collections": []}, "status": "ok", "time": 0}).encode(), headers=JSON
)
WRITTEN = CannedResponse(
    body=json.dumps({"result": {"operation_id": 1, "status": "completed"}, "status": "ok", "time": 0}).encode(),
    headers=JSON,
)
POINT = Point(1, {"text": "one"}, vector=(1.0, 0.0))
CUT = Cut("nothing", reset=False, only_reused=True)


class Script:
    """A Qdrant that sends these responses one after the other, and is healthy afterwards."""

    def __init__(self, *responses: CannedResponse) -> None:
        self.responses = list(responses)

    def __call__(self, request: RecordedRequest) -> CannedResponse:
        if self.responses:
            return self.responses.pop(0)
        return WRITTEN if request.method == "PUT" else NO_COLLECTIONS


def qdrant_error(status: int, **headers: str) -> CannedResponse:
    return CannedResponse(status, b'{"status": {"error": "no"}}', {**JSON, **headers})


def cohere_error(status: int, **headers: str) -> CannedResponse:
    return CannedResponse(status, b'{"message": "no"}', {**JSON, **headers})


Stores = Callable[..., WritableStore]
Embedders = Callable[..., CohereEmbedder]


@pytest.fixture
def store_at() -> Iterator[Stores]:
    """Makes stores, and closes them at the end."""
    made: list[WritableStore] = []

    def make(url: str, breaker: CircuitBreaker | None = None) -> WritableStore:
        made.append(ServerStore(url, DeadlineTransport(breaker=breaker)))
        return made[-1]

    yield make
    for store in made:
        store.close()


@pytest.fixture
def embedder_at() -> Iterator[Embedders]:
    """Makes embedders, and closes them at the end."""
    made: list[CohereEmbedder] = []

    def make(url: str, breaker: CircuitBreaker | None = None) -> CohereEmbedder:
        transport = DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"}, breaker=breaker)
        made.append(CohereEmbedder(transport, model="embed-english-v3.0", base_url=url))
        return made[-1]

    yield make
    for embedder in made:
        embedder.close()


def embed(embedder: CohereEmbedder, budget_ms: float = BUDGET_MS) -> int:
    """The size of an embedding."""
    return len(embedder.embed(["What is ROS 2?"], InputType.QUERY, Deadline(budget_ms))[0])


def read(store: WritableStore, budget_ms: float = BUDGET_MS) -> list[str]:
    return store.collections(Deadline(budget_ms))


def write(store: WritableStore, budget_ms: float = BUDGET_MS) -> None:
    store.upsert("docs", [POINT], "", Deadline(budget_ms))


def error_of(kind: type[ChunkproofError], call: Callable[..., object], *given: Any) -> ChunkproofError:
    with pytest.raises(kind) as caught:
        call(*given)
    return caught.value


# responses


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_an_embedding_that_failed_once_is_requested_again(
    embedder_at: Embedders, cohere_api: CohereServer, status: int
) -> None:
    cohere_api.responses.append(cohere_error(status))
    assert embed(embedder_at(cohere_api.url)) == 1024
    first, second = cohere_api.requests
    assert first == second, "the same request"


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_read_of_qdrant_that_failed_once_is_repeated(store_at: Stores, status: int) -> None:
    with recording_server(Script(qdrant_error(status))) as server:
        assert read(store_at(server.url)) == []
    assert [(request.method, request.path) for request in server.requests] == [("GET", "/collections")] * 2


def test_a_search_is_a_read_although_it_is_a_post(store_at: Stores) -> None:
    pages = CannedResponse(
        body=json.dumps({"result": {"points": [], "next_page_offset": None}, "status": "ok", "time": 0}).encode(),
        headers=JSON,
    )
    with recording_server(Script(qdrant_error(503), pages)) as server:
        assert store_at(server.url).scroll("docs", Deadline(BUDGET_MS), limit=1).points == ()
    assert [(request.method, request.path) for request in server.requests] == [
        ("POST", "/collections/docs/points/scroll")
    ] * 2
    assert server.requests[0].body == server.requests[1].body


def test_a_call_is_never_made_a_third_time(embedder_at: Embedders, store_at: Stores, cohere_api: CohereServer) -> None:
    cohere_api.responses += [cohere_error(503)] * 5
    error_of(EmbeddingError, embed, embedder_at(cohere_api.url))
    assert len(cohere_api.requests) == 2
    with recording_server(lambda _: qdrant_error(503)) as server:
        error_of(VectorStoreUnavailableError, read, store_at(server.url))
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 422, 501, 505])
def test_a_status_that_would_not_change_is_not_retried(store_at: Stores, status: int) -> None:
    with recording_server(lambda _: qdrant_error(status)) as server:
        error_of(ChunkproofError, read, store_at(server.url))
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_write_that_got_a_response_is_not_repeated(store_at: Stores, status: int) -> None:
    with recording_server(lambda _: qdrant_error(status)) as server:
        error_of(ChunkproofError, write, store_at(server.url))
    assert [request.method for request in server.requests] == ["PUT"]


def test_a_repeated_call_is_logged_with_the_name_of_the_service(store_at: Stores) -> None:
    with (
        recording_server(Script(qdrant_error(503))) as server,
        capture_records("chunkproof.net.transport") as records,
    ):
        read(store_at(server.url, CircuitBreaker("qdrant")))
    (record,) = records
    assert record.getMessage() == "call repeated"
    assert (record.__dict__["dependency"], record.__dict__["status"]) == ("qdrant", 503)


# time


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before a repetition, in seconds; the test does not sleep."""
    made: list[float] = []
    monkeypatch.setattr(transport_module, "sleep", made.append)
    return made


def test_retry_after_in_seconds_is_respected(
    embedder_at: Embedders, cohere_api: CohereServer, pauses: list[float]
) -> None:
    cohere_api.responses.append(cohere_error(429, **{"retry-after": "3"}))
    assert embed(embedder_at(cohere_api.url)) == 1024
    assert len(cohere_api.requests) == 2
    (pause,) = pauses
    assert 3.0 <= pause <= 3.2


def test_retry_after_as_a_date_is_respected(store_at: Stores, pauses: list[float]) -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=4), usegmt=True)
    with recording_server(Script(qdrant_error(503, **{"retry-after": at}))) as server:
        assert read(store_at(server.url), 20_000) == []
    (pause,) = pauses
    assert 2.0 <= pause <= 4.2, "a date has no fractions of a second"


def test_without_retry_after_the_pause_is_at_most_a_fifth_of_a_second(store_at: Stores, pauses: list[float]) -> None:
    with recording_server(Script(qdrant_error(503))) as server:
        started = monotonic()
        read(store_at(server.url))
        assert monotonic() - started < 2.0
    (pause,) = pauses
    assert 0.0 <= pause <= 0.2


@pytest.mark.parametrize("status", [429, 503])
def test_a_retry_after_beyond_the_deadline_is_passed_on_at_once(
    embedder_at: Embedders, store_at: Stores, cohere_api: CohereServer, status: int
) -> None:
    cohere_api.responses.append(cohere_error(status, **{"retry-after": "7"}))
    started = monotonic()
    error = error_of(ChunkproofError, embed, embedder_at(cohere_api.url), 2_000)
    assert (error.retry_after, len(cohere_api.requests)) == (7.0, 1)
    with recording_server(lambda _: qdrant_error(status, **{"retry-after": "7"})) as server:
        error = error_of(ChunkproofError, read, store_at(server.url), 2_000)
    assert (error.retry_after, len(server.requests)) == (7.0, 1)
    assert monotonic() - started < 1.5


def test_a_retry_after_of_less_than_a_second_is_not_rounded_up(
    embedder_at: Embedders, cohere_api: CohereServer, pauses: list[float]
) -> None:
    cohere_api.responses.append(cohere_error(429, **{"retry-after": "0.2"}))
    assert embed(embedder_at(cohere_api.url)) == 1024
    (pause,) = pauses
    assert 0.2 <= pause <= 0.4


def test_a_call_that_took_most_of_the_time_is_not_repeated(store_at: Stores) -> None:
    def slow(_: RecordedRequest) -> CannedResponse:
        time.sleep(0.2)
        return qdrant_error(503)

    with recording_server(slow) as server:
        error_of(VectorStoreUnavailableError, read, store_at(server.url), 390)
    assert len(server.requests) == 1


# connections


@pytest.fixture
def qdrant() -> Iterator[RecordingServer]:
    """A stub of Qdrant for these calls."""
    with recording_server(Script()) as server:
        yield server


@pytest.fixture
def proxy(qdrant: RecordingServer) -> Iterator[FaultProxy]:
    """A proxy in front of Qdrant that fails on purpose."""
    with fault_proxy(qdrant.url) as made:
        yield made


def over_connections(proxy: FaultProxy) -> list[tuple[str, int, bool]]:
    """Each request: its method, its connection, and whether a fault applied to it."""
    return [(exchange.method, exchange.connection, exchange.fault is not None) for exchange in proxy.log]


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_read_on_a_stale_connection_is_repeated_on_a_new_one(
    store_at: Stores, proxy: FaultProxy, reset: bool
) -> None:
    store = store_at(proxy.url)
    read(store)
    proxy.inject(Cut("nothing", reset=reset, only_reused=True))
    started = monotonic()
    assert read(store) == []
    assert monotonic() - started < 1.0
    assert over_connections(proxy) == [("GET", 1, False), ("GET", 1, True), ("GET", 2, False)]


def test_an_embedding_on_a_stale_connection_is_repeated_on_a_new_one(
    embedder_at: Embedders, cohere_api: CohereServer
) -> None:
    with fault_proxy(cohere_api.url) as proxy:
        embedder = embedder_at(proxy.url)
        embed(embedder)
        proxy.inject(CUT)
        assert embed(embedder) == 1024
        assert over_connections(proxy) == [("POST", 1, False), ("POST", 1, True), ("POST", 2, False)]


def test_a_write_on_a_stale_connection_is_not_repeated(store_at: Stores, proxy: FaultProxy) -> None:
    store = store_at(proxy.url)
    read(store)
    proxy.inject(CUT)
    error_of(VectorStoreUnavailableError, write, store)
    assert over_connections(proxy) == [("GET", 1, False), ("PUT", 1, True)]
    write(store)
    assert over_connections(proxy)[2:] == [("PUT", 2, False)], "the next call uses a new connection"


@pytest.mark.parametrize("call", [read, write], ids=["read", "write"])
def test_a_call_that_failed_on_a_new_connection_is_not_repeated(
    store_at: Stores, proxy: FaultProxy, call: Callable[..., object]
) -> None:
    proxy.inject(Cut("nothing", reset=False))
    error_of(VectorStoreUnavailableError, call, store_at(proxy.url))
    assert len(proxy.log) == 1


def test_a_call_whose_response_was_cut_off_is_not_repeated(store_at: Stores, proxy: FaultProxy) -> None:
    store = store_at(proxy.url)
    read(store)
    proxy.inject(Cut("half the body", reset=False))
    error_of(VectorStoreUnavailableError, read, store)
    assert over_connections(proxy) == [("GET", 1, False), ("GET", 1, True)]


@pytest.mark.parametrize("call", [read, write], ids=["read", "write"])
def test_a_connection_that_is_refused_is_tried_twice_even_for_a_write(
    store_at: Stores, proxy: FaultProxy, call: Callable[..., object]
) -> None:
    proxy.inject(Refused())
    two, three = CircuitBreaker("qdrant", max_failures=2), CircuitBreaker("qdrant", max_failures=3)
    for breaker in (two, three):
        error_of(VectorStoreUnavailableError, call, store_at(proxy.url, breaker))
    assert (two.state, three.state) == (CircuitState.OPEN, CircuitState.CLOSED)


def test_a_service_that_starts_during_the_pause_is_reached(store_at: Stores, proxy: FaultProxy) -> None:
    proxy.inject(Refused())

    class Opening(CircuitBreaker):
        """Starts the service when the first attempt has failed."""

        def record(self, *, failed: bool | None, is_probe: bool = False) -> None:
            proxy.inject(None)
            super().record(failed=failed, is_probe=is_probe)

    write(store_at(proxy.url, Opening("qdrant")))
    assert over_connections(proxy) == [("PUT", 1, False)]


# the circuit


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of circuits."""
    return replace_clock(breaker_module, monkeypatch)


def test_an_open_circuit_makes_no_request_and_closes_after_five_seconds(
    store_at: Stores, clock: Clock, pauses: list[float]
) -> None:
    breaker = CircuitBreaker("qdrant", open_s=5.0)
    with recording_server(Script(*[qdrant_error(503)] * 5)) as server:
        store = store_at(server.url, breaker)
        for _ in range(3):  # two requests, two, and the one that opens it
            error_of(VectorStoreUnavailableError, read, store)
        assert (len(server.requests), breaker.state) == (5, CircuitState.OPEN)
        pauses.clear()
        clock.now += 1.5
        error = error_of(VectorStoreUnavailableError, read, store)
        assert (len(server.requests), pauses) == (5, []), "no request and no pause"
        assert error.messages == (
            f"Qdrant service unavailable at {server.url.removeprefix('http://')}",
            "Qdrant failed repeatedly; calls to it are paused for a moment",
        )
        assert (error.code, error.retry_after) == ("QDRANT_UNAVAILABLE", 3.5)
        clock.now += 3.5
        assert read(store) == []
        assert (len(server.requests), breaker.state) == (6, CircuitState.CLOSED)


def test_an_open_circuit_of_the_embedder_behaves_the_same(
    embedder_at: Embedders, cohere_api: CohereServer, clock: Clock, pauses: list[float]
) -> None:
    cohere_api.responses += [cohere_error(500)] * 6
    breaker = CircuitBreaker("cohere", open_s=5.0)
    embedder = embedder_at(cohere_api.url, breaker)
    for _ in range(3):
        error_of(EmbeddingError, embed, embedder)
    pauses.clear()
    error = error_of(EmbeddingError, embed, embedder)
    host = cohere_api.url.removeprefix("http://")
    assert error.messages == (f"Failed to embed query: {host} failed repeatedly; calls to it are paused for a moment",)
    assert (error.code, error.retry_after) == ("EMBEDDING_FAILED", 5.0)
    assert (len(cohere_api.requests), pauses) == (5, [])
    clock.now += 5.0
    error_of(EmbeddingError, embed, embedder)
    assert (len(cohere_api.requests), breaker.state) == (6, CircuitState.OPEN), "one probe, not repeated"
    clock.now += 5.0
    assert embed(embedder) == 1024
    assert breaker.state is CircuitState.CLOSED


def test_the_call_that_opens_the_circuit_does_not_pause(store_at: Stores, pauses: list[float]) -> None:
    with recording_server(lambda _: qdrant_error(503, **{"retry-after": "2"})) as server:
        error_of(VectorStoreUnavailableError, read, store_at(server.url, CircuitBreaker("qdrant", max_failures=1)))
    assert (len(server.requests), pauses) == (1, [])


@pytest.mark.parametrize("status", [400, 401, 404, 408, 409, 422])
def test_a_status_below_500_does_not_open_the_circuit(store_at: Stores, status: int) -> None:
    breaker = CircuitBreaker("qdrant")
    with recording_server(lambda _: qdrant_error(status)) as server:
        store = store_at(server.url, breaker)
        for _ in range(6):
            error_of(ChunkproofError, read, store)
    assert (len(server.requests), breaker.state) == (6, CircuitState.CLOSED)


def test_a_rate_limit_does_not_open_the_circuit(store_at: Stores) -> None:
    breaker = CircuitBreaker("qdrant")
    with recording_server(lambda _: qdrant_error(429, **{"retry-after": "9"})) as server:
        store = store_at(server.url, breaker)
        for _ in range(6):
            error_of(RateLimitedError, read, store)
    assert (len(server.requests), breaker.state) == (6, CircuitState.CLOSED)


def test_a_success_in_between_keeps_the_circuit_closed(store_at: Stores) -> None:
    breaker = CircuitBreaker("qdrant", max_failures=3)
    with recording_server(Script(qdrant_error(503), NO_COLLECTIONS, qdrant_error(503), NO_COLLECTIONS)) as server:
        store = store_at(server.url, breaker)
        read(store)
        read(store)
    assert (len(server.requests), breaker.state) == (4, CircuitState.CLOSED)


class _Overwhelmed(BaseHTTPRequestHandler):
    """A Qdrant that cannot take a large request: it drops the connection, stays silent or fails."""

    trouble = "drop"

    def do_GET(self) -> None:
        self._respond(200, b'{"result": {"collections": []}, "status": "ok", "time": 0}')

    def do_POST(self) -> None:
        if int(self.headers["content-length"]) < 500_000:
            self._respond(200, b'{"result": [], "status": "ok", "time": 0}')
        elif self.trouble == "silence":
            time.sleep(0.6)
        elif self.trouble == "failure":
            self.rfile.read(int(self.headers["content-length"]))
            self._respond(502, b"{}")
        self.close_connection = True

    def _respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.mark.parametrize("trouble", ["drop", "silence", "failure"])
def test_large_requests_of_one_caller_do_not_open_the_circuit_for_others(store_at: Stores, trouble: str) -> None:
    breaker = CircuitBreaker("qdrant")
    with listening(type("Handler", (_Overwhelmed,), {"trouble": trouble})) as url:
        store = store_at(url, breaker)
        for _ in range(6):
            many = [str(UUID(int=number)) for number in range(50_000)]
            error_of(VectorStoreUnavailableError, store.fetch, "docs", many, Deadline(500))
        assert breaker.state is CircuitState.CLOSED
        assert read(store) == []


def test_a_request_that_qdrant_would_drop_for_its_size_is_refused_before_it_is_sent(store_at: Stores) -> None:
    with recording_server(lambda _: NO_COLLECTIONS) as server:
        many = (AnyOf("topic", tuple("x" * 1_000_000 for _ in range(34))),)
        error = error_of(RequestTooLargeError, store_at(server.url).count, "docs", many, Deadline(BUDGET_MS))
    assert error.message.startswith("The request to Qdrant has 32 MB, and Qdrant takes 32: send fewer queries")
    assert server.requests == []


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, cohere_api: CohereServer) -> Iterator[RecordingServer]:
    """The handlers with a Qdrant that is down and a healthy Cohere."""
    with recording_server(lambda _: qdrant_error(503)) as server:
        monkeypatch.setenv("QDRANT_URL", server.url)
        monkeypatch.setenv("COHERE_BASE_URL", cohere_api.url)
        monkeypatch.setenv("COHERE_API_KEY", KEY)
        with new_process():
            yield server


def test_with_an_open_circuit_the_api_sends_retry_after_and_health_names_the_circuit(
    deployed: RecordingServer,
) -> None:
    event = get("/collections/docs")
    for _ in range(3):
        assert invoke(event).code == "QDRANT_UNAVAILABLE"
    assert len(deployed.requests) == 5
    reply = invoke(event)
    assert (reply.status, reply.code) == (503, "QDRANT_UNAVAILABLE")
    assert reply.headers["retry-after"] in ("4", "5")
    health = invoke(get("/health", deep="true"))
    assert (health.status, health.json["qdrant"]["circuit"]) == (503, "open")
    assert (health.json["embedder"]["status"], health.json["embedder"]["circuit"]) == ("ok", "closed")
    assert len(deployed.requests) == 5


def test_each_service_has_a_circuit_of_its_own(deployed: RecordingServer, cohere_api: CohereServer) -> None:
    for _ in range(6):
        invoke(get("/health", deep="true"))
    assert (len(deployed.requests), len(cohere_api.requests)) == (5, 6)


def test_retry_after_is_never_rounded_down() -> None:
    app = Api()

    @app.get("/limited")
    def _limited() -> dict[str, str]:
        raise RateLimitedError("Slow down", retry_after=2.4)

    assert Reply(app.handler(get("/limited"), LambdaContext())).headers["retry-after"] == "3"
