"""Searches that are accepted, with every option, on chunks whose texts and payloads are slow to look at.

Their processor time is bounded by the deadline, and no option fails on an odd payload.
"""

import random
import time
from typing import Any

from chunkproof.clients.ports import Point
from chunkproof.clients.qdrant.store import QdrantStore
from chunkproof.models import SearchQuery
from chunkproof.runtime import container

from checks.attack.attack import Attack
from checks.attack.originals import UNITS
from support.api import invoke, post
from support.chunks import fill, make_services
from support.cohere_server import hashed

DEADLINE_MS = 1_000
# Reading the store's points, and writing and compressing some megabytes of response.
MORE_SECONDS = 1.0
SIZE = 8
LENGTHS = (10, 1_000, 30_000, 400_000)
ODD = (None, 0, -1, 1.5, 10**30, True, "", "x" * 5_000, [], ["a"], {}, {"a": {"b": 1}}, "\x1b[31m", "2020-01-01")
OPTIONS: dict[str, tuple[Any, ...]] = {
    "mode": ("dense", "text", "hybrid"),
    "fusion": ({"method": "rrf", "k": 1}, {"method": "dbsf"}, {"weights": {"dense": 0.0, "text": 1_000.0}}),
    "params": ({"exact": True}, {"hnsw_ef": 1}),
    "group_by": ("document_id", "position", "metadata.a", "text"),
    "group_size": (1, 10),
    "diversity": (0.0, 0.5, 1.0),
    "cursor": ("start", "x"),
    "highlight": (True,),
    "neighbours": (1, 3),
    "explain": (True,),
    "with_payload": (True,),
    "with_vectors": (True,),
    "top_k": (1, 100, 1_000),
    "similarity_threshold": (0.0, 0.9),
    "filters": ({"position": {"gte": 0}}, {"not": {"document_id": "d1"}}, {"n.o": [1, "a"]}),
}


def run(attack: Attack) -> None:
    """Search new collections, some times each."""
    while attack.goes_on():
        store = QdrantStore.open_local(None)
        fill(store, "docs", *_make_points(attack.rng), size=SIZE)
        services = make_services(store, "docs", None, DEADLINE_MS=str(DEADLINE_MS))
        with container.override(services):
            for _ in range(10):
                if attack.goes_on():
                    _try(attack)
        store.close()


def _make_points(rng: random.Random) -> list[Point]:
    embed = hashed(SIZE)
    unit = "".join(rng.choices(UNITS, k=rng.choice((1, 2, 5)))) + rng.choice(("", " ", ". ", "。", "\n- "))
    length = rng.choice(LENGTHS)
    text = unit * max(1, length // len(unit))
    count = max(2, min(60, 3_000_000 // max(1, len(text.encode()))))
    points = []
    for number in range(count):
        payload: dict[str, Any] = {"text": f"{number}{text}", "document_id": f"d{number % 3}", "position": number}
        for name in rng.sample(("document_id", "position", "url", "metadata", "chunk_id", "title"), rng.randrange(3)):
            payload[name] = rng.choice(ODD)
        points.append(Point(number, payload, vector=tuple(embed(str(number)))))
    return points


def _try(attack: Attack) -> None:
    rng = attack.rng
    body = _search(rng)
    if "queries" in SearchQuery.model_fields and rng.random() < 0.3:
        body = {"queries": [_search(rng) for _ in range(rng.choice((1, 5, 32)))]}
    started = time.thread_time()
    reply = invoke(post("/search", body, {"accept-encoding": "gzip"}))
    spent = time.thread_time() - started
    wrong = None
    if spent > DEADLINE_MS / 1000 + MORE_SECONDS:
        wrong = f"{reply.status} after {spent:.2f} s of processor time: {str(body)[:600]}"
    elif reply.status == 500 and reply.code == "INTERNAL":
        wrong = f"500: {str(body)[:600]}"
    attack.note(spent, wrong)


def _search(rng: random.Random) -> dict[str, Any]:
    known = [name for name in OPTIONS if name in SearchQuery.model_fields]
    options = {name: rng.choice(OPTIONS[name]) for name in rng.sample(known, rng.randrange(6))}
    if options.get("mode") == "text" or rng.random() < 0.2:
        return {"query_text": rng.choice(("a b", "é " * 500, "漢字", "the and of", "&amp; <b>")), **options}
    return {"query_vector": [rng.uniform(-1, 1) for _ in range(SIZE)], **options}
