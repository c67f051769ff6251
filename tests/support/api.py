"""The Lambda handlers as API Gateway drives them: an event in; status, headers and JSON out."""

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from chunkproof.service import container
from chunkproof_cli.local.gateway import LambdaContext, find_handler

EVENTS = Path(__file__).resolve().parents[2] / "events"
Event = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """A handler's answer, its header names in lower case."""

    proxy: dict[str, Any]

    @property
    def status(self) -> int:
        return int(self.proxy["statusCode"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.proxy["headers"].items()}

    @property
    def text(self) -> str:
        body = self.proxy["body"]
        if not self.proxy["isBase64Encoded"]:
            return str(body)
        content = base64.b64decode(body, validate=True)
        return (gzip.decompress(content) if self.headers.get("content-encoding") == "gzip" else content).decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])

    @property
    def errors(self) -> list[str]:
        return list(self.json["errors"])

    @property
    def size(self) -> int:
        """Bytes as Lambda counts them: the JSON-encoded proxy response."""
        return len(json.dumps(self.proxy, ensure_ascii=False).encode())


@cache
def _committed(name: str) -> Event:
    event: Event = json.loads((EVENTS / name).read_text("utf-8"))
    return event


def committed_event(name: str) -> Event:
    """A file of events/, to be changed at will."""
    return deepcopy(_committed(name))


def request(
    method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None, **event: Any
) -> Event:
    """An event made from a committed one, its body and headers as given."""
    made = committed_event("search.200.json" if method == "POST" else "health.200.json")
    made |= {"routeKey": f"{method} {path}", "rawPath": path, **event}
    made["requestContext"]["http"] |= {"method": method, "path": path}
    made["requestContext"]["routeKey"] = made["routeKey"]
    made["headers"] |= headers or {}
    if body is None:
        made.pop("body", None)
    else:
        made["body"] = body
    return made


def post(path: str, document: Any, headers: Mapping[str, str] | None = None) -> Event:
    """A JSON document sent to a route."""
    return request("POST", path, json.dumps(document, ensure_ascii=False), headers)


def get(path: str, **query: str) -> Event:
    """A question without a body."""
    made = request("GET", path)
    if query:
        made["rawQueryString"] = "&".join(f"{name}={value}" for name, value in query.items())
        made["queryStringParameters"] = query
    return made


def invoke(event: Event, context: Any = None) -> Reply:
    """What the handler behind the event's path answers."""
    reply = Reply(find_handler(event["rawPath"])(event, context or LambdaContext()))
    json.dumps(reply.proxy, allow_nan=False)
    return reply


@contextmanager
def new_process() -> Iterator[None]:
    """Handlers that know nothing yet, as in a new process; what they open is closed at the end."""
    container.reset()
    try:
        yield
    finally:
        if container._build_services.cache_info().currsize:
            built: Any = container.services()
            built.store.close()
            built.embedder.close()
            for embedder in built.embedders.values():
                embedder.close()
            built.reranker.close()
        container.reset()
