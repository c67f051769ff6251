"""What can go wrong with a service: the kinds of fault, and all of them by name for each service.

A fault is put in force with `FaultProxy.inject`. What Chunkproof makes of it is not said here.
"""

import asyncio
import json
import math
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import cache
from http import HTTPStatus
from typing import Any, ClassVar, Literal

from support.fault_proxy import JSON, Answer, Call, Fault

Dependency = Literal["cohere", "qdrant"]
Change = Callable[[Any], Any]

MEBIBYTE = 2**20
GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"


@dataclass(frozen=True)
class Refused(Fault):
    """Nothing listens at the address until healed; open connections are closed."""

    listens: ClassVar[bool] = False


@dataclass(frozen=True)
class NeverReads(Fault):
    """Accepts the connection and reads nothing: a short request seems sent, a long one gets stuck."""

    reads: ClassVar[bool] = False

    async def handle(self, call: Call) -> None:
        await asyncio.Event().wait()


@dataclass(frozen=True)
class Silence(Fault):
    """Reads the request and never answers, for as long as the client stays."""

    async def handle(self, call: Call) -> None:
        await call.client.rest()


@dataclass(frozen=True)
class Latency(Fault):
    """Passes the request on after so long, and up to `jitter_ms` more."""

    ms: float
    jitter_ms: float = 0

    def seconds(self) -> float:
        return (self.ms + random.uniform(0, self.jitter_ms)) / 1000

    async def handle(self, call: Call) -> None:
        await asyncio.sleep(self.seconds())
        await call.pass_on()


@dataclass(frozen=True)
class Drip(Fault):
    """Passes the request on and answers slowly: the head at once, then a byte every so often."""

    every_ms: float

    async def handle(self, call: Call) -> None:
        answer = await call.plain_answer()
        await call.client.send(answer.head)
        for byte in answer.body:
            await asyncio.sleep(self.every_ms / 1000)
            await call.client.send(bytes([byte]))


@dataclass(frozen=True)
class Cut(Fault):
    """Ends the connection after a part of the server's answer, with a reset (RST) or a goodbye (FIN).

    After "nothing" the server was not asked. With `only_reused` the first request of a connection passes, and
    so does every request that a client opens a connection for.
    """

    after: Literal["nothing", "half the head", "half the body"]
    reset: bool
    only_reused: bool = False

    def concerns(self, *, is_reused: bool) -> bool:
        return is_reused or not self.only_reused

    async def handle(self, call: Call) -> None:
        if self.after != "nothing":
            await call.client.send(self._part(await call.plain_answer()))
        call.client.close(reset=self.reset)

    def _part(self, answer: Answer) -> bytes:
        if self.after == "half the head":
            return answer.head[: len(answer.head) // 2]
        return answer.head + answer.body[: len(answer.body) // 2]


@dataclass(frozen=True)
class Garbage(Fault):
    """Answers with bytes that are no HTTP, and closes."""

    data: bytes = b"\x15\x03\x01\x00\x02\x02\x46" * 20  # what a TLS port says to plain HTTP

    async def handle(self, call: Call) -> None:
        await call.client.send(self.data)
        call.client.close()


@dataclass(frozen=True)
class Says(Fault):
    """Answers this, whatever is asked; `retry_after` in seconds, or as the date of that moment."""

    answer: Answer
    retry_after: int | None = None
    as_date: bool = False

    async def handle(self, call: Call) -> None:
        headers = self.answer.headers
        if self.retry_after is not None:
            headers += (("retry-after", self._when(self.retry_after)),)
        said = Answer(self.answer.status, self.answer.body, headers)
        await call.client.send(said.head + said.body)

    def _when(self, seconds: int) -> str:
        then = datetime.now(UTC) + timedelta(seconds=seconds)
        return format_datetime(then, usegmt=True) if self.as_date else str(seconds)


@dataclass(frozen=True)
class GzipBomb(Fault):
    """Answers with so many megabytes of gzip, each of which unpacks to a gigabyte of blanks."""

    megabytes: int = 10

    async def handle(self, call: Call) -> None:
        answer = Answer(200, gzip_bomb(self.megabytes), (*JSON, ("content-encoding", "gzip")))
        await call.client.send(answer.head + answer.body)


@dataclass(frozen=True)
class Transformed(Fault):
    """Passes the request on and changes the JSON of a 200; what is no 200 or no JSON stays."""

    change: Change

    async def handle(self, call: Call) -> None:
        answer = await call.plain_answer()
        if answer.status == 200 and "json" in dict(answer.headers).get("content-type", ""):
            changed = json.dumps(self.change(json.loads(answer.body))).encode()  # NaN is written as NaN
            answer = Answer(answer.status, changed, answer.headers)
        await call.client.send(answer.head + answer.body)


@cache
def gzip_bomb(megabytes: int) -> bytes:
    """One gzip stream, made of one block again and again, so that it costs nothing to make.

    It lacks the checksum at its end: that alone would take seconds, and who reads so far has unpacked it all.
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(b" " * MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    return GZIP_HEAD + block * (megabytes * 1_000_000 // len(block))


def cohere_error(status: int, message: str = "") -> Answer:
    """An error as Cohere words it."""
    body = {"id": "5f1d0c1e-7f0e-4d0a-9f0b-0a6f4f3c2b1a", "message": message or HTTPStatus(status).phrase}
    return Answer(status, json.dumps(body).encode())


def qdrant_error(status: int, message: str = "") -> Answer:
    """An error as Qdrant words it: in JSON, but for a key it does not know."""
    if status == 401:
        return Answer(401, message.encode() or b"Invalid API key or JWT", ())
    body = {"status": {"error": message or HTTPStatus(status).phrase}, "time": 0.000012}
    return Answer(status, json.dumps(body).encode())


HTML = Answer(200, b"<!doctype html><title>Welcome</title><p>It works!", (("content-type", "text/html"),))
FOREIGN_JSON = Answer(200, b'{"jsonrpc": "2.0", "id": 7, "method": "welcome"}')
NESTED = Answer(200, b"[" * 100_000 + b"]" * 100_000)
STATUSES = (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504)


def _statuses(error: Callable[[int], Answer]) -> dict[str, Fault]:
    plain: dict[str, Fault] = {f"status {status}": Says(error(status)) for status in STATUSES}
    for status in (429, 503):
        plain[f"status {status}, retry in 7 s"] = Says(error(status), retry_after=7)
        plain[f"status {status}, retry at a date"] = Says(error(status), retry_after=7, as_date=True)
    return plain


def _without(name: str) -> Change:
    return lambda answer: {key: value for key, value in answer.items() if key != name}


def _embeddings(change: Change) -> Transformed:
    """Another list of embeddings in Cohere's answer."""
    return Transformed(
        lambda answer: (
            answer | {"embeddings": answer["embeddings"] | {"float": change(answer["embeddings"]["float"])}}
        )
    )


def _first(change: Change) -> Transformed:
    """Another first embedding in Cohere's answer."""
    return _embeddings(lambda embeddings: [change(embeddings[0]), *embeddings[1:]])


def _points(change: Change) -> Transformed:
    """Other points in Qdrant's answer, be it to a query, a scroll or ids; where there are none it stays."""

    def changed(answer: Any) -> Any:
        result = answer["result"]
        if isinstance(result, dict) and "points" in result:
            return answer | {"result": result | {"points": list(map(change, result["points"]))}}
        return answer | {"result": list(map(change, result))} if isinstance(result, list) else answer

    return Transformed(changed)


def _score(value: Any) -> Transformed:
    """Another score where there is one: only a query has scores."""
    return _points(lambda point: point | {"score": value} if "score" in point else point)


ANY_SERVICE: Mapping[str, Fault] = {
    "latency": Latency(50, jitter_ms=50),
    "connection refused": Refused(),
    "reset before any answer": Cut("nothing", reset=True),
    "closed before any answer": Cut("nothing", reset=False),
    "reset in mid-body": Cut("half the body", reset=True),
    "truncated body": Cut("half the body", reset=False),
    "truncated headers": Cut("half the head", reset=False),
    "stale keep-alive, reset": Cut("nothing", reset=True, only_reused=True),
    "stale keep-alive, closed": Cut("nothing", reset=False, only_reused=True),
    "half-open silence": Silence(),
    "never reads": NeverReads(),
    "slow drip": Drip(every_ms=20),
    "garbage": Garbage(),
    "a web page": Says(HTML),
    "another service's JSON": Says(FOREIGN_JSON),
    "JSON nested without end": Says(NESTED),
    "a gzip bomb": GzipBomb(megabytes=1),
}

FAULTS: Mapping[Dependency, Mapping[str, Fault]] = {
    "cohere": {
        **ANY_SERVICE,
        **_statuses(cohere_error),
        "embeddings missing": Transformed(_without("embeddings")),
        "no embeddings": _embeddings(lambda _: []),
        "wrong dimension": _embeddings(lambda embeddings: [values[:-1] for values in embeddings]),
        "an embedding with NaN": _first(lambda values: [math.nan, *values[1:]]),
        "an embedding without values": _first(lambda _: []),
        "an embedding of nulls": _first(lambda values: [None for _ in values]),
        "an embedding of zeros": _first(lambda values: [0.0 for _ in values]),
    },
    "qdrant": {
        **ANY_SERVICE,
        **_statuses(qdrant_error),
        "result missing": Transformed(_without("result")),
        "result null": Transformed(lambda answer: answer | {"result": None}),
        "result of the wrong type": Transformed(lambda answer: answer | {"result": "five points"}),
        "points without score": _points(_without("score")),
        "score NaN": _score(math.nan),
        "score null": _score(None),
        "payload null": _points(lambda point: point | {"payload": None}),
        "payload a string": _points(lambda point: point | {"payload": "text"}),
    },
}
