"""Requests of one tenant with filters, ids and claims made to reach another tenant's chunks."""

import random
import time
from typing import Any

from chunkproof.clients.ports import Point
from chunkproof.clients.qdrant.store import QdrantStore
from chunkproof.runtime import container

from checks.attack.result import Result
from support.api import get, invoke, post
from support.chunks import fill, make_services

CLAIM, FIELD, COLLECTION = "custom:org", "tenant", "docs"
TENANTS = ("a", "b", "a ", "A", "a*", '"a"')
MARK = "belongs-to-"


def run(seed: int, seconds: float) -> Result:
    """Send requests until the time is over; a response may show no chunk of another tenant."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    store = QdrantStore.open_local(None)
    points = [
        Point(
            number,
            {
                "text": f"{MARK}{tenant!r}.",
                FIELD: tenant,
                "chunk_id": rng.choice(("same", f"own-{number}")),
                "n": number,
            },
            vector=(1.0, number / 50),
        )
        for number, tenant in enumerate(TENANTS * 8, 1)
    ]
    fill(store, COLLECTION, *points)
    settings = {"TENANT_CLAIM": CLAIM, "TENANT_FIELD": FIELD, "DEADLINE_MS": "60000"}
    tried, slowest, slips = 0, 0.0, []
    with container.override(make_services(store, COLLECTION, None, **settings)):
        while time.monotonic() < end or not tried:
            tenant = rng.choice((*TENANTS, "", None, ["a"], {"a": 1}, "nobody"))
            event = _request(rng)
            event["requestContext"]["authorizer"] = {"jwt": {"claims": {CLAIM: tenant}}}
            started = time.thread_time()
            reply = invoke(event)
            slowest = max(slowest, time.thread_time() - started)
            tried += 1
            others = [other for other in TENANTS if other != tenant and f"{MARK}{other!r}." in str(reply.json)]
            if others or (reply.status >= 500):
                slips.append(f"{tenant!r} got {reply.status} with {others}: {event['rawPath']} {event.get('body')}")
    store.close()
    return Result("tenants", tried, tried - len(slips), slowest, tuple(slips))


def _request(rng: random.Random) -> dict[str, Any]:
    kind = rng.randrange(4)
    if kind == 0:
        return get(f"/collections/{COLLECTION}")
    if kind == 1:
        chunk = rng.choice(("same", str(rng.randrange(1, 60)), f"own-{rng.randrange(1, 60)}"))
        return post("/validate-chunk", {"chunk_id": chunk, "original_text": "x"})
    return post("/search", {"query_vector": [1.0, rng.random()], "top_k": 100, "filters": _filters(rng, 2)})


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
