"""Requests of one tenant with filters, ids, options and claims made to reach another tenant's chunks."""

import random
import time
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

from chunkproof.clients.ports import Point
from chunkproof.clients.qdrant.store import QdrantStore
from chunkproof.clients.transport import DeadlineTransport
from chunkproof.models import SearchQuery
from chunkproof.runtime import container

from checks.attack.attack import Attack
from support.api import get, invoke, post
from support.chunks import fill, make_services
from support.qdrant_server import qdrant_server

CLAIM, FIELD = "custom:org", "tenant"
TENANTS = ("a", "b", "a ", "A", "a*", '"a"')
MARK = "belongs-to-"
# Values for the options of a search, as far as it has them: each takes another way through the store.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "mode": ("dense", "text", "hybrid"),
    "fusion": ({"method": "rrf"}, {"method": "dbsf"}, "rrf", "dbsf"),
    "group_by": (FIELD, "n", "chunk_id", "document_id", "text"),
    "group_size": (1, 3),
    "diversity": (0.5, {"lambda": 0.5}),
    "neighbours": (1, 2),
    "highlight": (True,),
    "explain": (True,),
    "strict": (True,),
    "with_payload": (True,),
    "with_vectors": (True,),
    "include_metadata": (False,),
    "rerank": ({"candidates": 50}, True),
    "query_text": (f"{MARK}a", "belongs to b"),
}


def run(attack: Attack) -> None:
    """Send requests; a response may show no chunk of another tenant. On a server when there is time for one."""
    with ExitStack() as stack:
        stores = [(QdrantStore.open_local(None), "docs")]
        if attack.is_counted or attack.seed % 2:
            server = stack.enter_context(qdrant_server())
            stores.append((QdrantStore.open_server(server.url, DeadlineTransport()), f"docs-{uuid4().hex[:8]}"))
        for store, collection in stores:
            stack.callback(store.close)
            fill(store, collection, *_points(attack.rng))
        while attack.goes_on():
            store, collection = attack.rng.choice(stores)
            settings = {"TENANT_CLAIM": CLAIM, "TENANT_FIELD": FIELD, "DEADLINE_MS": "60000"}
            with container.override(make_services(store, collection, None, **settings)):
                for _ in range(20):
                    _try(attack, collection)


def _points(rng: random.Random) -> list[Point]:
    return [
        Point(
            number,
            {
                "text": f"{MARK}{tenant!r}.",
                FIELD: tenant,
                "chunk_id": rng.choice(("same", f"own-{number}")),
                "document_id": rng.choice(("one", "two")),
                "position": number,
                "n": number,
            },
            vector=(1.0, number / 50),
        )
        for number, tenant in enumerate(TENANTS * 8, 1)
    ]


def _try(attack: Attack, collection: str) -> None:
    rng = attack.rng
    tenant = rng.choice((*TENANTS, "", None, ["a"], {"a": 1}, "nobody"))
    event = _request(rng, collection)
    event["requestContext"]["authorizer"] = {"jwt": {"claims": {CLAIM: tenant}}}
    started = time.thread_time()
    reply = invoke(event)
    spent = time.thread_time() - started
    others = [other for other in TENANTS if other != tenant and f"{MARK}{other!r}." in str(reply.json)]
    wrong = f"{tenant!r} got {reply.status} with {others}: {event['rawPath']} {event.get('body')}"
    attack.note(spent, wrong if others or _is_internal(reply) else None)


def _is_internal(reply: Any) -> bool:
    return reply.status == 500 and reply.code == "INTERNAL"


def _request(rng: random.Random, collection: str) -> dict[str, Any]:
    kind = rng.randrange(5)
    if kind == 0:
        return get(f"/collections/{collection}")
    if kind == 1:
        chunk = rng.choice(("same", str(rng.randrange(1, 60)), f"own-{rng.randrange(1, 60)}"))
        one = {"chunk_id": chunk, "original_text": "x"}
        return post("/validate-chunk", one) if rng.random() < 0.7 else post("/validate-chunks", {"chunks": [one] * 2})
    if kind == 2 and "queries" in SearchQuery.model_fields:
        return post("/search", {"queries": [_search(rng) for _ in range(3)]})
    return post("/search", _search(rng))


def _search(rng: random.Random) -> dict[str, Any]:
    known = [name for name in OPTIONS if name in SearchQuery.model_fields]
    options = {name: rng.choice(OPTIONS[name]) for name in rng.sample(known, rng.randrange(len(known)))}
    vector = {} if "query_text" in options else {"query_vector": [1.0, rng.random()]}
    return {"top_k": 100, "filters": _filters(rng, 2), **vector, **options}


def _filters(rng: random.Random, depth: int) -> dict[str, Any]:
    filters: dict[str, Any] = {}
    for _ in range(rng.randrange(3)):
        name = rng.choice((FIELD, "n", "chunk_id", "text", f"{FIELD}[]", "not"))
        if name == "not":
            filters[name] = (_filters(rng, depth - 1) if depth else {}) or {FIELD: "a"}
        elif name == "n":
            filters[name] = {"gte": rng.randrange(50)}
        else:
            filters[name] = rng.choice((rng.choice(TENANTS), list(rng.sample(TENANTS, 2)), "same"))
    return filters
