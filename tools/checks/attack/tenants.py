"""Requests of one tenant with filters, ids, options and claims made to reach another tenant's chunks."""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

from chunkproof.base.request import Deadline
from chunkproof.net.transport import DeadlineTransport
from chunkproof.service import container
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import TEXT_VECTOR, Point

from support.api import get, invoke, post
from support.chunks import make_services
from support.qdrant_server import qdrant_server
from support.stores import MemoryStore
from support.words import Words
from tools.checks.attack.attack import Attack
from tools.checks.attack.options import make_search

CLAIM, FIELD = "custom:org", "tenant"
TENANTS = ("a", "b", "a ", "A", "a*", '"a"')
MARK = "belongs-to-"
# Fields of responses that count points: a tenant may know of its own ones.
COUNTS = ("points", "matching", "points_count", "indexed_vectors_count")
POINTS_OF_EACH = 8


def run(attack: Attack) -> None:
    """Send requests; a response may show no chunk of another tenant. On a server when there is time for one."""
    with ExitStack() as stack:
        stores = [(MemoryStore(), "docs")]
        if attack.is_counted or attack.seed % 2:
            server = stack.enter_context(qdrant_server())
            stores.append((ServerStore(server.url, DeadlineTransport()), f"docs-{uuid4().hex[:8]}"))
        for store, collection in stores:
            stack.callback(store.close)
            store.create(collection, Words.dimension, Deadline(10_000), text_search=True)
            store.upsert(collection, _points(attack.rng), "", Deadline(10_000), text_vector=TEXT_VECTOR)
        cursors = ["start"]
        while attack.goes_on():
            store, collection = attack.rng.choice(stores)
            settings = {"TENANT_CLAIM": CLAIM, "TENANT_FIELD": FIELD, "DEADLINE_MS": "60000"}
            with container.override(make_services(store, collection, Words(), **settings)):
                for _ in range(20):
                    _try(attack, collection, cursors)


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
            vector=(1.0, number / 50, *[0.0] * (Words.dimension - 2)),
        )
        for number, tenant in enumerate(TENANTS * POINTS_OF_EACH, 1)
    ]


def _try(attack: Attack, collection: str, cursors: list[str]) -> None:
    rng = attack.rng
    tenant = rng.choice((*TENANTS, "", None, ["a"], {"a": 1}, "nobody"))
    event = _request(rng, collection, cursors)
    event["requestContext"]["authorizer"] = {"jwt": {"claims": {CLAIM: tenant}}}
    started = time.thread_time()
    reply = invoke(event)
    spent = time.thread_time() - started
    others = [other for other in TENANTS if other != tenant and f"{MARK}{other!r}." in str(reply.json)]
    counts = [count for count in _counts(reply.json) if count > POINTS_OF_EACH]
    wrong = f"{tenant!r} got {reply.status} with {others or counts}: {event['rawPath']} {event.get('body')}"
    attack.note(spent, wrong if others or counts or _is_internal(reply) else None)
    if cursor := isinstance(reply.json, dict) and reply.json.get("next_cursor"):
        cursors[:] = ["start", cursor, *cursors[1:4]]  # of this tenant, for any other


def _counts(document: Any) -> Iterator[int]:
    """List the numbers of points that a response has anywhere."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name in COUNTS and isinstance(value, int):
                yield value
            yield from _counts(value)
    elif isinstance(document, list):
        for item in document:
            yield from _counts(item)


def _is_internal(reply: Any) -> bool:
    return reply.status == 500 and reply.code == "INTERNAL"


def _request(rng: random.Random, collection: str, cursors: list[str]) -> dict[str, Any]:
    kind = rng.randrange(5)
    if kind == 0:
        return get(f"/collections/{collection}")
    if kind == 1:
        chunk = rng.choice(("same", str(rng.randrange(1, 60)), f"own-{rng.randrange(1, 60)}"))
        one = {"chunk_id": chunk, "original_text": "x"}
        return post("/validate-chunk", one) if rng.random() < 0.7 else post("/validate-chunks", {"chunks": [one] * 2})
    searches = [make_search(rng, _filters(rng, 2), tuple(cursors)) for _ in range(3)]
    if kind == 2:
        return post("/search", {"queries": [{**one, "top_k": 100} for one in searches]})
    return post("/search", searches[0])


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
