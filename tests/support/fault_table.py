"""Run every fault of every dependency through the real handlers: the response, its time and the number of calls.

Nothing is patched: the proxies count the calls, and the times are those that the handlers report.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, cast

from chunkproof.base.request import Deadline
from chunkproof.net.transport import DeadlineTransport
from chunkproof.service import container
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import TEXT_VECTOR, Point, WritableStore

from support.api import Reply, invoke, new_process, post
from support.bedrock_server import CREDENTIALS, REGION, bedrock_server
from support.chunks import SECONDS_60, fill
from support.cohere_server import KEY, cohere_server, hashed
from support.fault_proxy import FaultProxy, fault_proxy
from support.faults import FAULTS, Dependency
from support.openai_server import KEY as OPENAI_KEY
from support.openai_server import openai_server
from support.qdrant_server import QdrantServer, qdrant_server
from support.sdk import sdk

SIZE = 8
COLLECTION = "faults"
# Collections whose queries another service embeds.
COLLECTIONS = {"openai": "faults-openai", "bedrock": "faults-bedrock"}
DEADLINE_MS = 1_000
MARGIN_MS = 300
QUERY = "What breaks next?"
ROUTES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "cohere": ("/search", {"query_text": QUERY}),
    "openai": ("/search", {"query_text": QUERY, "collection": COLLECTIONS["openai"]}),
    "bedrock": ("/search", {"query_text": QUERY, "collection": COLLECTIONS["bedrock"]}),
    "rerank": ("/search", {"query_text": QUERY, "rerank": True}),
    "rerank, required": ("/search", {"query_text": QUERY, "rerank": {"required": True}}),
    "qdrant": ("/search", {"query_text": QUERY}),
    "qdrant, hybrid": ("/search", {"query_text": QUERY, "mode": "hybrid"}),
    "qdrant by id": ("/validate-chunk", {"chunk_id": "1", "original_text": "one"}),
}


# Of a required reranking; the others differ only in that they do not fail the request.
REQUIRED = (
    "connection refused",
    "half-open silence",
    "garbage",
    "status 429, retry in 7 s",
    "status 500",
    "a score of NaN",
)
# Of a search with two legs, whose request and response have another form.
HYBRID = (
    "connection refused",
    "half-open silence",
    "slow drip",
    "status 400",
    "status 404",
    "status 429, retry in 7 s",
    "result missing",
    "result of the wrong type",
    "points without score",
    "score NaN",
    "payload null",
)
MARKED = "marked "


@dataclass(frozen=True)
class Row:
    """The outcome of a request with a fault in force, and whether the next one succeeded."""

    code: str
    status: int
    ms: float
    calls: int
    recovered: bool
    reply: Reply

    @property
    def is_in_time(self) -> bool:
        return self.ms <= DEADLINE_MS + MARGIN_MS


@dataclass
class Setup:
    """A real Qdrant server and the APIs of embedders, each behind a proxy that the handlers' settings point to."""

    server: QdrantServer
    store: WritableStore
    proxies: Mapping[str, FaultProxy]

    def make_collection(self) -> None:
        embed = hashed(SIZE)
        texts = ("one", "two", "three")
        points = [Point(n, {"text": t}, vector=tuple(embed(t))) for n, t in enumerate(texts, start=1)]
        self.store.create(COLLECTION, SIZE, Deadline(SECONDS_60), text_search=True)
        self.store.upsert(COLLECTION, points, "", Deadline(SECONDS_60), text_vector=TEXT_VECTOR)

    def make_other_collections(self) -> None:
        for name in COLLECTIONS.values():
            fill(self.store, name, Point(1, {"text": "one"}, vector=tuple(hashed(SIZE)("one"))), size=SIZE)


@contextmanager
def fault_setup() -> Iterator[Setup]:
    with ExitStack() as stack:
        server = stack.enter_context(qdrant_server())
        api = stack.enter_context(cohere_server(hashed(SIZE)))
        openai = stack.enter_context(openai_server(hashed(SIZE)))
        bedrock = stack.enter_context(bedrock_server(hashed(SIZE)))
        addresses = {"qdrant": server.url, "cohere": api.url, "bedrock": bedrock.url}
        addresses["openai"] = openai.url.removesuffix("/v1")
        proxies = {name: stack.enter_context(fault_proxy(url)) for name, url in addresses.items()}
        store = ServerStore(server.url, DeadlineTransport())
        stack.callback(store.close)
        setup = Setup(server, store, proxies)
        setup.make_collection()
        setup.make_other_collections()
        models = {
            COLLECTIONS["openai"]: {
                "provider": "openai",
                "model": "text-embedding-3-small",
                "base_url": f"{proxies['openai'].url}/v1",
                "key": "OPENAI_API_KEY",
            },
            COLLECTIONS["bedrock"]: {
                "provider": "bedrock",
                "model": "cohere.embed-english-v3",
                "base_url": proxies["bedrock"].url,
                "region": REGION,
            },
        }
        stack.enter_context(
            _environment(
                **CREDENTIALS,
                QDRANT_URL=proxies["qdrant"].url,
                COHERE_BASE_URL=proxies["cohere"].url,
                COHERE_API_KEY=KEY,
                OPENAI_API_KEY=OPENAI_KEY,
                CHUNKPROOF_MODELS=json.dumps(models),
                CHUNKPROOF_COLLECTION=COLLECTION,
                CHUNKPROOF_DEADLINE_MS=str(DEADLINE_MS),
            )
        )
        yield setup


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def fault_names() -> Iterator[tuple[str, str]]:
    """Every dependency and fault, in the table's order."""
    for dependency in ROUTES:
        names = SELECTED.get(dependency, tuple(FAULTS[_service(dependency)]))
        yield from ((dependency, name) for name in names)
        if _service(dependency) == "qdrant":
            yield from ((dependency, name) for name in EVENTS)


SELECTED = {"rerank, required": REQUIRED, "qdrant, hybrid": HYBRID}


def _service(dependency: str) -> Dependency:
    """The service behind a row's dependency: Qdrant and the reranker have two."""
    return cast(Dependency, re.split(r"\W", dependency)[0])


def run_fault(setup: Setup, dependency: str, name: str) -> Row:
    """Send a healthy request in a new process, one with the fault in force, and one after it."""
    path, body = ROUTES[dependency]
    service = _service(dependency)
    # Reranking has the same address as embedding: of the same query, the embedding is cached.
    proxy = setup.proxies["cohere" if service == "rerank" else service]
    is_same = path != "/search" or service == "rerank"
    with new_process():
        container.services()  # as a function builds them, before its first request
        warm = invoke(post(path, body if is_same else {**body, "query_text": "Is all well?"}))
        assert warm.status == 200, warm.text
        start, end = _actions(setup, proxy, dependency, name)
        start()
        before = len(proxy.log)
        reply = invoke(post(path, body))
        calls = len(proxy.log) - before
        end()
        after = invoke(post(path, body))
    content = reply.json
    ms = content["execution"]["latency_ms"] if "execution" in content else content["retrieval_time_ms"]
    code = content["error"]["code"] if "error" in content else _mark(reply) or "-"
    return Row(code, reply.status, ms, calls, after.status == 200 and _mark(after) is None, reply)


def _mark(reply: Reply) -> str | None:
    """Return why an answer was not reranked, if it should have been."""
    rerank = reply.json.get("execution", {}).get("rerank") or {}
    return MARKED + rerank["reason"] if rerank.get("status") == "skipped" else None


Action = Callable[[], object]


def _actions(setup: Setup, proxy: FaultProxy, dependency: str, name: str) -> tuple[Action, Action]:
    if name in EVENTS:
        start, end = EVENTS[name]
        return lambda: start(setup), lambda: end(setup)
    fault = FAULTS[_service(dependency)][name]
    return lambda: proxy.inject(fault), lambda: proxy.inject(None)


def _restart(setup: Setup) -> None:
    setup.server.stop()
    setup.server.start()


def _drop(setup: Setup) -> None:
    sdk(setup.store).delete_collection(COLLECTION)


def _nothing(_setup: Setup) -> None:
    pass


# What happens to the server itself between two calls, and how it is undone.
EVENTS: Mapping[str, tuple[Callable[[Setup], None], Callable[[Setup], None]]] = {
    "collection dropped": (_drop, Setup.make_collection),
    "collection made anew": (lambda s: (_drop(s), s.make_collection())[0], _nothing),
    "server killed": (lambda s: s.server.stop(), lambda s: s.server.start()),
    "server killed and restarted": (_restart, _nothing),
}
