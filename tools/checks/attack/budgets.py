"""Requests that ask for much at once: every option together, for many queries or chunks, on chunks that are large.

Whatever is refused takes at most half a second of processor time, whatever is accepted at most its deadline and what
writing the response takes; no body takes more than 400 MB of memory.
"""

import base64
import gzip
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

from chunkproof.base.request import Deadline
from chunkproof.service import container
from chunkproof.service.api import MAX_REQUEST_BYTES
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.store_port import Point

from support.api import Reply, invoke, request
from support.chunks import fill, make_services
from support.cohere_server import hashed
from support.words import Words
from tools.checks.attack.attack import Attack
from tools.checks.attack.options import make_search

DEADLINE_MS = 1_000
REFUSED_SECONDS = 0.5
# Writing and compressing some megabytes of response.
MORE_SECONDS = 1.0
MAX_MB = 400
# The processor may be slow for a moment: then the request is sent again.
MAX_TRIES = 3
POINTS, LARGE_POINTS = 300, 30
CHARS = ("a", "\x01", "é", "\u0301", "\u00ad", "\u0f71", "漢", " ", "a.", "\U0001f468", "&amp;", "\\", '"', "\u200d")

Body = tuple[str, Any]


def run(attack: Attack) -> None:
    """Send such requests, each to one of a few collections."""
    while attack.goes_on():
        with open_collection(attack.rng):
            for _ in range(12):
                if attack.goes_on():
                    path, body = attack.rng.choice(REQUESTS)(attack.rng)
                    spent, wrong = judge(path, body, packed=attack.rng.random() < 0.3)
                    attack.note(spent, wrong)


@contextmanager
def open_collection(rng: Random) -> Iterator[None]:
    """Let the handlers search chunks of one length, with payloads of one shape."""
    length = rng.choice((20, 2_000, 10_000, 1_000_000))
    embed, text = hashed(Words.dimension), _make_text(rng, length)
    extra: dict[str, Any] = rng.choice(
        ({}, {f"k{n}": n for n in range(100)}, {"tags": ["x"] * 300}, {"a": {"b": {"c": ["d"] * 50}}})
    )
    points = [
        Point(
            number,
            {"text": f"{number} {text}", "document_id": f"d{number % 9}", "position": number // 9, **extra},
            vector=tuple(embed(str(number))),
        )
        for number in range(POINTS if length < 1_000_000 else LARGE_POINTS)
    ]
    points[0] = Point(0, {"text": _make_text(rng, 1_000_000), "url": "u"}, vector=points[0].vector)
    with tempfile.TemporaryDirectory() as name, closing(EdgeStore(Path(name))) as store:
        fill(store, "docs", size=Words.dimension)
        for at in range(0, POINTS, LARGE_POINTS):
            store.upsert("docs", points[at : at + LARGE_POINTS], "", Deadline(60_000))
        with container.override(make_services(store, "docs", Words(), DEADLINE_MS=str(DEADLINE_MS))):
            yield


def judge(path: str, body: Any, *, packed: bool) -> tuple[float, str | None]:
    """Return the seconds of processor time of the quickest attempt, and what is wrong with it."""
    text = json.dumps(body, ensure_ascii=False)
    event = request("POST", path, text, {"accept-encoding": "gzip"})
    if packed:
        content = base64.b64encode(gzip.compress(text.encode())).decode()
        event = request("POST", path, content, {"content-encoding": "gzip"}, isBase64Encoded=True)
    if len(event["body"].encode()) > MAX_REQUEST_BYTES:
        return 0.0, None  # Lambda does not let it through
    spent, limit, megabytes = float("inf"), 0.0, 0.0
    for _ in range(MAX_TRIES):
        if spent > limit or megabytes > MAX_MB:
            reply, spent, megabytes = measure(event)
            limit = REFUSED_SECONDS if _is_refused(reply) else DEADLINE_MS / 1000 + MORE_SECONDS
    if reply.status == 500 and reply.code == "INTERNAL":
        return spent, f"500: {text[:400]}"
    if spent > limit or megabytes > MAX_MB:
        return spent, f"{reply.status} after {spent:.2f} s and {megabytes:.0f} MB: {path} {len(text)} {text[:400]}"
    return spent, None


def measure(event: dict[str, Any]) -> tuple[Reply, float, float]:
    """Return the reply, the seconds of processor time, and by how many megabytes the memory grew at its peak."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _read_memory("VmRSS")
    started = process_time()
    reply = invoke(event)
    return reply, process_time() - started, _read_memory("VmHWM") - before


def _read_memory(name: str) -> float:
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def _is_refused(reply: Reply) -> bool:
    """Whether the request is refused, or each of its queries; a response that does not fit was made all the same."""
    if reply.status == 413 and reply.code == "RESPONSE_TOO_LARGE":
        return False
    responses = reply.json.get("responses") or () if reply.status < 400 else ()
    return reply.status >= 400 or (bool(responses) and all(one["status"] == "error" for one in responses))


def _make_text(rng: Random, length: int) -> str:
    unit = "".join(rng.choices(CHARS, k=rng.choice((1, 2, 7))))
    return (unit * (1 + length // len(unit)))[:length]


def _make_filters(rng: Random) -> dict[str, Any]:
    """Make a filter near a limit: of conditions, of values, of characters, of depth."""
    kind = rng.randrange(5)
    if kind == 0:
        return {f"f{n}": [f"v{n}-{m}" for m in range(rng.choice((1, 10)))] for n in range(rng.choice((99, 100, 101)))}
    if kind == 1:
        return {rng.choice(("f", "chunk_id", "url", "document_id")): [f"{n}" for n in range(rng.choice((999, 10_000)))]}
    if kind == 2:
        return {"f": ["x" * rng.choice((90, 9_000))] * 10, "position": {"gte": 10 ** rng.choice((3, 300))}}
    inner: dict[str, Any] = {"document_id": "d1"}
    for _ in range(rng.choice((3, 29, 31, 500))):
        inner = {"not": inner} if kind == 3 else {"not": {**inner, "url": ["u"] * 3}}
    return inner


def _many_queries(rng: Random) -> Body:
    """Several queries, each with options of its own, or all with the same."""
    count, shared = rng.choice((1, 8, 32, 33)), rng.random() < 0.5
    queries = [make_search(rng, {} if shared else _make_filters(rng)) for _ in range(count)]
    body: dict[str, Any] = {"queries": [{**one, "top_k": rng.choice((1, 10, 31))} for one in queries]}
    return "/search", {**body, "filters": _make_filters(rng)} if shared else body


def _many_results(rng: Random) -> Body:
    """As many results as possible, with everything that can be had with them."""
    body = make_search(rng, rng.choice(({}, _make_filters(rng))))
    body |= {"top_k": rng.choice((100, 101, 1_000)), "with_vectors": True, "with_payload": True, "explain": True}
    return "/search", body | rng.choice(({}, {"highlight": True}, {"neighbours": 5}, {"group_size": 100}))


def _long_questions(rng: Random) -> Body:
    """Texts up to and beyond the limit, of characters that are slow to compare."""
    texts = [_make_text(rng, rng.choice((9_999, 10_000, 10_001, 180_000))) for _ in range(rng.choice((1, 32)))]
    body: dict[str, Any] = {"queries": texts} if len(texts) > 1 else {"query_text": texts[0]}
    return "/search", {**body, "highlight": True, "mode": rng.choice(("dense", "text", "hybrid"))}


def _odd_names(rng: Random) -> Body:
    """Fields that do not exist, in every object of a request."""
    names = {_make_text(rng, rng.choice((5, 99, 3_000))) + str(n): n for n in range(rng.choice((5, 99, 101, 5_000)))}
    places: tuple[Callable[[], Any], ...] = (
        lambda: {"query_text": "a", **names},
        lambda: {"queries": [{"query_text": "a", **names}] * 32},
        lambda: {"query_text": "a", "rerank": names, "fusion": names, "params": names},
        lambda: {"query_text": "a", "mode": "hybrid", "fusion": {"weights": names}},
    )
    if rng.random() < 0.3:
        return "/validate-chunks", {"chunks": [{"chunk_id": "1", **names}] * 100}
    return "/search", rng.choice(places)()


def _odd_vectors(rng: Random) -> Body:
    """Vectors of every size, with numbers that are no 32-bit ones."""
    number = rng.choice((1.0, 0, 1e308, 10**300, -1e-300, "x", None, [], 0.1234567890123456))
    vector = [number] * rng.choice((0, Words.dimension, 65_536, 65_537, 190_000))
    several = {"queries": [{"query_vector": vector[:6_000]}] * 32}
    return "/search", rng.choice(({"query_vector": vector}, several))


def _forged_cursors(rng: Random) -> Body:
    """Cursors of random bytes, of every length."""
    cursors = [base64.urlsafe_b64encode(rng.randbytes(rng.choice((1, 33, 29_900, 31_000)))).decode() for _ in range(32)]
    one = {"query_text": "a", "cursor": cursors[0], "filters": _make_filters(rng)}
    return "/search", rng.choice((one, {"queries": [{"query_text": "a", "cursor": cursor} for cursor in cursors]}))


def _many_chunks(rng: Random) -> Body:
    """A hundred validations of one large chunk, or of many, by text and by hash."""
    size = rng.choice((10, 9_000, 50_000))
    text, digest = _make_text(rng, size), f"{rng.getrandbits(256):064x}"
    chunks = []
    for number in range(rng.choice((1, 19, 100, 101))):
        chunk_id = str(rng.choice((0, number, "x" * 900, "0" * 30)))
        chunks.append({"chunk_id": chunk_id, **rng.choice(({"original_text": text}, {"original_sha256": digest}, {}))})
    return "/validate-chunks", {"chunks": chunks, "strict": rng.random() < 0.5}


def _long_expectations(rng: Random) -> Body:
    """An agent that asks why a text is missing which is as long as a request may be."""
    arguments = {"query_text": "a", "expected": _make_text(rng, rng.choice((100, 9_000, 900_000)))}
    search: tuple[dict[str, Any], ...] = ({}, {"top_k": 100}, {"top_k": 1_000}, {"mode": "hybrid"}, {"mode": "text"})
    params = {"name": "why", "arguments": arguments | rng.choice(search)}
    return "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


REQUESTS: tuple[Callable[[Random], Body], ...] = (
    _many_queries,
    _many_results,
    _long_questions,
    _odd_names,
    _odd_vectors,
    _forged_cursors,
    _many_chunks,
    _long_expectations,
)
