"""Stored and original texts of megabytes that differ in a way that is slow to explain, under a short deadline.

The request is accepted, so its processor time is bounded by the deadline; whether the texts are equal is exact.
"""

import unicodedata
from random import Random
from time import thread_time
from typing import Any

from chunkproof.base.request import Deadline
from chunkproof.proof.integrity import digest
from chunkproof.service import container
from chunkproof.stores.store_port import Point

from support.api import invoke, post
from support.chunks import make_services
from support.stores import MemoryStore
from tools.checks.attack.attack import Attack

DEADLINE_MS = 1_000
# Parsing the request, writing and compressing the response: six megabytes each.
MORE_SECONDS = 0.7
LENGTHS = (10_000, 300_000, 2_500_000)
UNITS = (
    "a", "é", "e\u0301", "\u0f71\u0f74", "\ufdfa", "가", "\u1100\u1161\u11a8", "\r", "\r\n", " ", "\u2003", "\u200b",
    "&", "&amp;", "&notit", "&#x41", "Σ.", "ß", "İ", "ΐ", "Ã©", "漢", "\U0001f468\u200d\U0001f469", "a\u0323\u0301",
    "<b>", "\ufeff", "ǆ", "½", "\t", "&CounterClockwiseContourIntegral",
)  # fmt: skip


def run(attack: Attack) -> None:
    """Validate chunks with such texts, alone and many at once."""
    store = MemoryStore()
    services = make_services(store, "docs", None, DEADLINE_MS=str(DEADLINE_MS))
    store.create("docs", 2, Deadline(10_000))
    with container.override(services):
        while attack.goes_on():
            stored, original = make_pair(attack.rng)
            point = Point(1, {"text": stored, "url": "https://docs.example.com"}, vector=(1.0, 0.0))
            store.upsert("docs", [point], "", Deadline(10_000))
            services.forget("docs")
            path, body = _request(attack.rng, original)
            started = thread_time()
            reply = invoke(post(path, body, {"accept-encoding": "gzip"}))
            spent = thread_time() - started
            attack.note(spent, _find_wrong(reply, spent, stored == original))
    store.close()


def make_pair(rng: Random) -> tuple[str, str]:
    """Make a stored text and its original, which are equal, or changed somewhere or everywhere."""
    unit = "".join(rng.choices(UNITS, k=rng.choice((1, 1, 2, 5))))
    room = rng.choice(LENGTHS)
    text = unit * max(1, room // len(unit.encode()))
    place = rng.choice((0, len(text) // 2, len(text) - 1, len(text)))
    changes = (
        lambda: text,
        lambda: text[:place] + "x" + text[place:],
        lambda: text[:place],
        lambda: unicodedata.normalize(rng.choice(("NFC", "NFKD")), text[:300_000]) + text[300_000:] + "y",
        text.upper,
        lambda: text.replace("&", "&amp;")[: 2 * room],
        lambda: text[::-1],
    )
    return text, rng.choice(changes)()


def _request(rng: Random, original: str) -> tuple[str, dict[str, Any]]:
    by_hash = {"chunk_id": "1", "original_sha256": digest(original)}
    by_text = {"chunk_id": "1", "original_text": original}
    if rng.random() < 0.2:
        many = 100 if len(original.encode()) < 20_000 else 1
        return "/validate-chunks", {"chunks": [by_text] * many}
    return "/validate-chunk", by_hash if rng.random() < 0.3 else by_text


def _find_wrong(reply: Any, spent: float, equal: bool) -> str | None:
    if spent > DEADLINE_MS / 1000 + MORE_SECONDS:
        return f"{reply.status} after {spent:.2f} s of processor time"
    if reply.status in (413, 503):  # too large to be sent, or no time is left after reading it
        return None
    if reply.status != 200:
        return f"{reply.status}: {reply.text[:200]}"
    results = [one["result"] for one in reply.json["results"]] if "results" in reply.json else [reply.json]
    wrong = [result for result in results if result["matches"] is not equal]
    return f"matches is {not equal}" if wrong else None
