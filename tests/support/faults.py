"""The kinds of fault, and all faults of each service by name. `FaultProxy.inject` puts one in force."""

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

from support.fault_proxy import JSON, Call, Fault, Response

Dependency = Literal["cohere", "openai", "bedrock", "rerank", "qdrant"]
Change = Callable[[Any], Any]

MEBIBYTE = 2**20
GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"


@dataclass(frozen=True)
class Refused(Fault):
    """Nothing listens at the address, and open connections are closed."""

    listens: ClassVar[bool] = False


@dataclass(frozen=True)
class NeverReads(Fault):
    """Accepts connections and reads nothing: a short request seems sent, a long one blocks."""

    reads: ClassVar[bool] = False

    async def handle(self, call: Call) -> None:
        await asyncio.Event().wait()


@dataclass(frozen=True)
class Silence(Fault):
    """Reads the request and never responds."""

    async def handle(self, call: Call) -> None:
        await call.client.rest()


@dataclass(frozen=True)
class Latency(Fault):
    """Forwards the request after this time, and up to `jitter_ms` more."""

    ms: float
    jitter_ms: float = 0

    def seconds(self) -> float:
        return (self.ms + random.uniform(0, self.jitter_ms)) / 1000

    async def handle(self, call: Call) -> None:
        await asyncio.sleep(self.seconds())
        await call.pass_on()


@dataclass(frozen=True)
class Drip(Fault):
    """Forwards the request and responds slowly: the head at once, then one byte at a time."""

    every_ms: float

    async def handle(self, call: Call) -> None:
        response = await call.plain_response()
        await call.client.send(response.head)
        for byte in response.body:
            await asyncio.sleep(self.every_ms / 1000)
            await call.client.send(bytes([byte]))


@dataclass(frozen=True)
class Cut(Fault):
    """Closes the connection after a part of the server's response, with a reset (RST) or normally (FIN).

    With "nothing" the request is not forwarded. With `only_reused` the first request of each connection passes.
    """

    after: Literal["nothing", "half the head", "half the body"]
    reset: bool
    only_reused: bool = False

    def applies(self, *, is_reused: bool) -> bool:
        return is_reused or not self.only_reused

    async def handle(self, call: Call) -> None:
        if self.after != "nothing":
            await call.client.send(self._part(await call.plain_response()))
        call.client.close(reset=self.reset)

    def _part(self, response: Response) -> bytes:
        if self.after == "half the head":
            return response.head[: len(response.head) // 2]
        return response.head + response.body[: len(response.body) // 2]


@dataclass(frozen=True)
class Garbage(Fault):
    """Sends bytes that are not HTTP, and closes."""

    data: bytes = b"\x15\x03\x01\x00\x02\x02\x46" * 20  # what a TLS port sends to a plain HTTP client

    async def handle(self, call: Call) -> None:
        await call.client.send(self.data)
        call.client.close()


@dataclass(frozen=True)
class Responds(Fault):
    """Sends this response to every request, with `retry_after` in seconds or as a date."""

    response: Response
    retry_after: int | None = None
    as_date: bool = False

    async def handle(self, call: Call) -> None:
        headers = self.response.headers
        if self.retry_after is not None:
            headers += (("retry-after", self._when(self.retry_after)),)
        response = Response(self.response.status, self.response.body, headers)
        await call.client.send(response.head + response.body)

    def _when(self, seconds: int) -> str:
        then = datetime.now(UTC) + timedelta(seconds=seconds)
        return format_datetime(then, usegmt=True) if self.as_date else str(seconds)


@dataclass(frozen=True)
class GzipBomb(Fault):
    """Sends this many megabytes of gzip; each decompresses to a gigabyte of spaces."""

    megabytes: int = 10

    async def handle(self, call: Call) -> None:
        response = Response(200, gzip_bomb(self.megabytes), (*JSON, ("content-encoding", "gzip")))
        await call.client.send(response.head + response.body)


@dataclass(frozen=True)
class Transformed(Fault):
    """Forwards the request and changes the JSON of a response with status 200."""

    change: Change

    async def handle(self, call: Call) -> None:
        response = await call.plain_response()
        if response.status == 200 and "json" in dict(response.headers).get("content-type", ""):
            changed = json.dumps(self.change(json.loads(response.body))).encode()  # writes NaN as NaN
            response = Response(response.status, changed, response.headers)
        await call.client.send(response.head + response.body)


@cache
def gzip_bomb(megabytes: int) -> bytes:
    """Return a gzip stream of one repeated block, which is cheap to build.

    It has no checksum at its end, because computing that would take seconds.
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(b" " * MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    return GZIP_HEAD + block * (megabytes * 1_000_000 // len(block))


def cohere_error(status: int, message: str = "") -> Response:
    """An error response of Cohere."""
    body = {"id": "5f1d0c1e-7f0e-4d0a-9f0b-0a6f4f3c2b1a", "message": message or HTTPStatus(status).phrase}
    return Response(status, json.dumps(body).encode())


def openai_error(status: int, message: str = "") -> Response:
    """An error response of OpenAI."""
    body = {"error": {"message": message or HTTPStatus(status).phrase, "type": "server_error", "code": None}}
    return Response(status, json.dumps(body).encode())


def bedrock_error(status: int, message: str = "") -> Response:
    """An error response of Amazon Bedrock."""
    body = json.dumps({"message": message or HTTPStatus(status).phrase}).encode()
    return Response(status, body, (*JSON, ("x-amzn-errortype", "SomeException")))


def qdrant_error(status: int, message: str = "") -> Response:
    """An error response of Qdrant: JSON, except for a wrong key."""
    if status == 401:
        return Response(401, message.encode() or b"Invalid API key or JWT", ())
    body = {"status": {"error": message or HTTPStatus(status).phrase}, "time": 0.000012}
    return Response(status, json.dumps(body).encode())


HTML = Response(200, b"<!doctype html><title>Welcome</title><p>It works!", (("content-type", "text/html"),))
FOREIGN_JSON = Response(200, b'{"jsonrpc": "2.0", "id": 7, "method": "welcome"}')
NESTED = Response(200, b"[" * 100_000 + b"]" * 100_000)
STATUSES = (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504)


def _statuses(error: Callable[[int], Response]) -> dict[str, Fault]:
    plain: dict[str, Fault] = {f"status {status}": Responds(error(status)) for status in STATUSES}
    for status in (429, 503):
        plain[f"status {status}, retry in 7 s"] = Responds(error(status), retry_after=7)
        plain[f"status {status}, retry at a date"] = Responds(error(status), retry_after=7, as_date=True)
    return plain


def _without(name: str) -> Change:
    return lambda response: {key: value for key, value in response.items() if key != name}


def _embeddings(change: Change) -> Transformed:
    """Changes the list of embeddings in Cohere's response."""
    return Transformed(
        lambda response: (
            response | {"embeddings": response["embeddings"] | {"float": change(response["embeddings"]["float"])}}
        )
    )


def _first(change: Change) -> Transformed:
    """Changes the first embedding in Cohere's response."""
    return _embeddings(lambda embeddings: [change(embeddings[0]), *embeddings[1:]])


def _data(change: Change) -> Transformed:
    """Changes the vector of each embedding in OpenAI's response."""
    return Transformed(
        lambda response: (
            response | {"data": [item | {"embedding": change(item["embedding"])} for item in response["data"]]}
        )
    )


def _ranking(change: Change) -> Transformed:
    """Changes the list of results in Cohere's response to a request for reranking."""
    return Transformed(lambda response: response | {"results": change(response["results"])})


def _first_result(**fields: Any) -> Transformed:
    """Changes the first result of a ranking."""
    return _ranking(lambda results: [results[0] | fields, *results[1:]])


def _points(change: Change) -> Transformed:
    """Changes the points in Qdrant's response to a query, a scroll or a fetch by id."""

    def changed(response: Any) -> Any:
        result = response["result"]
        if isinstance(result, dict) and "points" in result:
            return response | {"result": result | {"points": list(map(change, result["points"]))}}
        return response | {"result": list(map(inside, result))} if isinstance(result, list) else response

    def inside(item: Any) -> Any:
        """A point, or one of several results that have points."""
        return item | {"points": list(map(change, item["points"]))} if "points" in item else change(item)

    return Transformed(changed)


def _score(value: Any) -> Transformed:
    """Changes the scores, which only a query has."""
    return _points(lambda point: point | {"score": value} if "score" in point else point)


ANY_SERVICE: Mapping[str, Fault] = {
    "latency": Latency(50, jitter_ms=50),
    "connection refused": Refused(),
    "reset before any response": Cut("nothing", reset=True),
    "closed before any response": Cut("nothing", reset=False),
    "reset in mid-body": Cut("half the body", reset=True),
    "truncated body": Cut("half the body", reset=False),
    "truncated headers": Cut("half the head", reset=False),
    "stale keep-alive, reset": Cut("nothing", reset=True, only_reused=True),
    "stale keep-alive, closed": Cut("nothing", reset=False, only_reused=True),
    "half-open silence": Silence(),
    "never reads": NeverReads(),
    "slow drip": Drip(every_ms=20),
    "garbage": Garbage(),
    "a web page": Responds(HTML),
    "another service's JSON": Responds(FOREIGN_JSON),
    "JSON nested without end": Responds(NESTED),
    "a gzip bomb": GzipBomb(megabytes=1),
}

# Of Cohere's API, which Bedrock has for Cohere's models too.
COHERE_EMBEDDINGS: Mapping[str, Fault] = {
    "embeddings missing": Transformed(_without("embeddings")),
    "no embeddings": _embeddings(lambda _: []),
    "wrong dimension": _embeddings(lambda embeddings: [values[:-1] for values in embeddings]),
    "an embedding with NaN": _first(lambda values: [math.nan, *values[1:]]),
    "an embedding without values": _first(lambda _: []),
    "an embedding of nulls": _first(lambda values: [None for _ in values]),
    "an embedding of zeros": _first(lambda values: [0.0 for _ in values]),
}

FAULTS: Mapping[Dependency, Mapping[str, Fault]] = {
    "cohere": {**ANY_SERVICE, **_statuses(cohere_error), **COHERE_EMBEDDINGS},
    "bedrock": {**ANY_SERVICE, **_statuses(bedrock_error), **COHERE_EMBEDDINGS},
    "openai": {
        **ANY_SERVICE,
        **_statuses(openai_error),
        "embeddings missing": Transformed(_without("data")),
        "no embeddings": Transformed(lambda response: response | {"data": []}),
        "wrong dimension": _data(lambda values: values[:-1]),
        "an embedding with NaN": _data(lambda values: [math.nan, *values[1:]]),
        "an embedding without values": _data(lambda _: []),
        "an embedding of nulls": _data(lambda values: [None for _ in values]),
        "an embedding of zeros": _data(lambda values: [0.0 for _ in values]),
        "wrong indexes": Transformed(
            lambda response: response | {"data": [item | {"index": 7} for item in response["data"]]}
        ),
    },
    "rerank": {
        **ANY_SERVICE,
        **_statuses(cohere_error),
        "results missing": Transformed(_without("results")),
        "no results": _ranking(lambda _: []),
        "a wrong index": _first_result(index=77),
        "a negative index": _first_result(index=-1),
        "an index twice": _ranking(lambda results: [results[0], results[0], *results[2:]]),
        "one result too many": _ranking(lambda results: [*results, results[0]]),
        "a score of NaN": _first_result(relevance_score=math.nan),
        "a score of null": _first_result(relevance_score=None),
    },
    "qdrant": {
        **ANY_SERVICE,
        **_statuses(qdrant_error),
        "result missing": Transformed(_without("result")),
        "result null": Transformed(lambda response: response | {"result": None}),
        "result of the wrong type": Transformed(lambda response: response | {"result": "five points"}),
        "points without score": _points(_without("score")),
        "score NaN": _score(math.nan),
        "score null": _score(None),
        "payload null": _points(lambda point: point | {"payload": None}),
        "payload a string": _points(lambda point: point | {"payload": "text"}),
    },
}
