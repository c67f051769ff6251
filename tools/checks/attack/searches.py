"""Searches that are accepted, with every option, on chunks whose texts and payloads are slow to look at.

Their processor time is bounded by the deadline, and no option fails on an odd payload.
"""

import random
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from chunkproof.service import container
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.store_port import Point

from support.api import invoke, post
from support.chunks import fill, make_services
from support.cohere_server import hashed
from support.words import Words
from tools.checks.attack.attack import Attack
from tools.checks.attack.options import make_search
from tools.checks.attack.originals import UNITS

DEADLINE_MS = 1_000
# Reading the store's points, and writing and compressing some megabytes of response.
MORE_SECONDS = 1.0
LENGTHS = (10, 1_000, 30_000, 400_000)
ODD = (None, 0, -1, 1.5, 10**30, True, "", "x" * 5_000, [], ["a"], {}, {"a": {"b": 1}}, "\x1b[31m", "2020-01-01")
FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"position": {"gte": 0}},
    {"not": {"document_id": "d1"}},
    {"n.o": [1, "a"]},
)


def run(attack: Attack) -> None:
    """Search new collections, some times each."""
    while attack.goes_on():
        with tempfile.TemporaryDirectory() as name, closing(EdgeStore(Path(name))) as store:
            fill(store, "docs", *_make_points(attack.rng), size=Words.dimension)
            services = make_services(store, "docs", Words(), DEADLINE_MS=str(DEADLINE_MS))
            with container.override(services):
                for _ in range(10):
                    if attack.goes_on():
                        _try(attack)


def _make_points(rng: random.Random) -> list[Point]:
    embed = hashed(Words.dimension)
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
    body = make_search(rng, rng.choice(FILTERS))
    if rng.random() < 0.3:
        several = [make_search(rng, rng.choice(FILTERS)) for _ in range(rng.choice((1, 5, 32)))]
        body = {"queries": [{**one, "top_k": 10} for one in several]}
    started = time.thread_time()
    reply = invoke(post("/search", body, {"accept-encoding": "gzip"}))
    spent = time.thread_time() - started
    wrong = None
    if spent > DEADLINE_MS / 1000 + MORE_SECONDS:
        wrong = f"{reply.status} after {spent:.2f} s of processor time: {str(body)[:600]}"
    elif reply.status == 500 and reply.code == "INTERNAL":
        wrong = f"500: {str(body)[:600]}"
    attack.note(spent, wrong)
