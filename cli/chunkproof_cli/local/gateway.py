"""A local API Gateway: loads the Lambda handlers, turns HTTP requests into HTTP API events, and calls the handlers."""

import base64
import json
import logging
import re
import sys
import time
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl, unquote
from uuid import uuid4

from anyio import CapacityLimiter, to_thread
from h11 import LocalProtocolError
from pydantic.json_schema import models_json_schema

from chunkproof import CONTRACT_VERSION
from chunkproof.contract.profiles import PROFILES, FailedList
from chunkproof.service.api import Api
from chunkproof_cli.local.console import CONSOLE_PATH, find_asset, is_own_origin

Handler = Callable[[Mapping[str, Any], Any], dict[str, Any]]
FUNCTIONS = ("search", "validate_chunk")
MAX_BODY_BYTES = 10 * 1024 * 1024  # API Gateway's limit
FUNCTION_SECONDS = 30
CONCURRENCY = 40
ACCOUNT = "123456789012"
TEXT_TYPES = ("application/json", "text/", "application/javascript", "application/xml")

log = logging.getLogger("gateway")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ClientGoneError(Exception):
    """The client closed the connection, or sent something that is not HTTP, before the body was complete."""


@dataclass
class LambdaContext:
    """The parts of Lambda's context that the handlers use."""

    function_name: str = "chunkproof-local"
    function_version: str = "$LATEST"
    memory_limit_in_mb: int = 1024
    aws_request_id: str = field(default_factory=lambda: str(uuid4()))
    log_group_name: str = "/chunkproof/local"
    log_stream_name: str = "local"
    started: float = field(default_factory=monotonic)

    @property
    def invoked_function_arn(self) -> str:
        """The ARN of a function in a made-up account."""
        return f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:{self.function_name}"

    def get_remaining_time_in_millis(self) -> int:
        """Return the rest of the function's timeout."""
        return max(0, int((FUNCTION_SECONDS - (monotonic() - self.started)) * 1000))


class Gateway:
    """An ASGI application. Each request runs in a thread of its own, as in Lambda in a container of its own.

    `host` is the name that it listens on. `console` has the routes of the browser console, which is served at `/`.
    """

    def __init__(self, host: str = "localhost", console: Api | None = None) -> None:
        self._limiter = CapacityLimiter(CONCURRENCY)
        self._host = host
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        # The server closes a connection that sends no valid HTTP: then nothing can be sent.
        with suppress(LocalProtocolError):
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope.get("headers", ())}
        if scope["type"] == "http" and not is_own_host(headers.get(b"host", ""), self._host):
            await _send(_gateway_error(403, "Forbidden"), send)
            return
        if scope["type"] != "http":
            return
        started = monotonic()
        try:
            body = await _read_body(receive)
        except (ClientGoneError, CancelledError):  # nothing can be sent any more
            return
        if body is None:
            response = _gateway_error(413, "Request Entity Too Large")
        elif (page := self._find_page(scope)) is not None:
            response = page
        else:
            event = build_event(scope, body)
            handler = self._find_handler(event)
            response = await to_thread.run_sync(handler, event, LambdaContext(), limiter=self._limiter)
        await _send(response, send)
        ms = (monotonic() - started) * 1000
        # The path is logged still encoded: decoded, it could control the terminal or forge a log line.
        path = scope["raw_path"].decode("ascii", "backslashreplace")
        log.info("%s %s %s %.0f ms", scope["method"], path, response["statusCode"], ms)

    def _find_page(self, scope: Scope) -> dict[str, Any] | None:
        """Return a page that only the local gateway has: the console's, or one of the documentation."""
        if scope["method"] != "GET":
            return None
        if self._console is not None and (asset := find_asset(scope["path"])) is not None:
            return asset
        return _find_docs(scope["path"], self._console)

    def _find_handler(self, event: dict[str, Any]) -> Handler:
        if self._console is None or not event["rawPath"].startswith(CONSOLE_PATH):
            return find_handler(event["rawPath"])
        # A page of another site may send requests here, and one of these routes writes a file.
        headers = event["headers"]
        if not is_own_origin(headers.get("origin", ""), headers.get("host", "")):
            return lambda _event, _context: _gateway_error(403, "Forbidden")
        return self._console.handler


def is_own_host(header: str, own: str) -> bool:
    """Whether a `Host` header names this server: by an address, as localhost, or as it was started.

    A page of another site can give its own name the address of this server and read what it serves (DNS rebinding);
    it cannot change the name that the browser sends.
    """
    name = re.sub(r":[0-9]*$", "", header.strip()).strip("[]").rstrip(".").lower()
    if name in ("", "localhost", own.lower()) or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def build_event(scope: Scope, body: bytes) -> dict[str, Any]:
    """Build the event that an HTTP API sends for the request, payload format 2.0."""
    fields = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
    headers = _join_repeated([field for field in fields if field[0] != "cookie"])
    cookies = [cookie.strip() for name, value in fields if name == "cookie" for cookie in value.split(";")]
    raw_path, raw_query = scope["raw_path"].decode("ascii"), scope["query_string"].decode("ascii")
    route, path_parameters = _match_route(scope["method"], scope["path"])
    now = time.time()
    path = unquote(raw_path)
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route,
        "rawPath": path,
        "rawQueryString": raw_query,
        "headers": headers,
        "requestContext": {
            "accountId": ACCOUNT,
            "apiId": "local",
            "authorizer": {"lambda": {"caller": "local"}},  # every caller that reaches this gateway may call
            "domainName": headers.get("host", "localhost"),
            "domainPrefix": headers.get("host", "localhost").split(".")[0],
            "http": {
                "method": scope["method"],
                "path": path,
                "protocol": f"HTTP/{scope['http_version']}",
                "sourceIp": (scope.get("client") or ("127.0.0.1",))[0],
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": str(uuid4()),
            "routeKey": route,
            "stage": "$default",
            "time": datetime.fromtimestamp(now, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "timeEpoch": int(now * 1000),
        },
        "isBase64Encoded": False,
    }
    if cookies:
        event["cookies"] = cookies
    if query := _join_repeated(parse_qsl(raw_query, keep_blank_values=True)):
        event["queryStringParameters"] = query
    if path_parameters:
        event["pathParameters"] = path_parameters
    if body:
        event |= _event_body(body, headers)
    return event


def _event_body(body: bytes, headers: dict[str, str]) -> dict[str, Any]:
    """Encode the body as HTTP API does: base64 or not by its content type alone.

    So gzip sent as JSON is damaged, here as there. Without a content encoding, bytes that are not UTF-8 reach the
    function unharmed, which names the first.
    """
    if headers.get("content-type", "").lower().startswith(TEXT_TYPES):
        try:
            text = body.decode("utf-8", "replace" if "content-encoding" in headers else "strict")
            return {"body": text, "isBase64Encoded": False}
        except UnicodeDecodeError:
            pass
    return {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}


def _join_repeated(pairs: list[tuple[str, str]]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in pairs:
        values[name] = f"{values[name]},{value}" if name in values else value
    return values


def _match_route(method: str, path: str) -> tuple[str, dict[str, str]]:
    parts = path.strip("/").split("/")
    if len(parts) == 2 and parts[0] == "collections":
        return f"{method} /collections/{{name}}", {"name": parts[1]}
    return f"{method} {path}", {}


async def _read_body(receive: Receive) -> bytes | None:
    """Read the whole body; return None when it exceeds API Gateway's limit."""
    chunks, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk = message.get("body", b"")
        size += len(chunk)
        if size <= MAX_BODY_BYTES:
            chunks.append(chunk)
        more = message.get("more_body", False)
    return b"".join(chunks) if size <= MAX_BODY_BYTES else None


async def _send(response: dict[str, Any], send: Send) -> None:
    body = response.get("body") or ""
    content = base64.b64decode(body) if response.get("isBase64Encoded") else body.encode("utf-8")
    headers = [(k.lower().encode("latin-1"), str(v).encode("latin-1")) for k, v in response["headers"].items()]
    headers += [(b"set-cookie", cookie.encode("latin-1")) for cookie in response.get("cookies", [])]
    headers.append((b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": response["statusCode"], "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _gateway_error(status: int, message: str) -> dict[str, Any]:
    """Build the response that API Gateway itself gives for an error."""
    return _to_response(status, "application/json", json.dumps({"message": message}))


def _to_response(status: int, kind: str, body: str) -> dict[str, Any]:
    return {"statusCode": status, "headers": {"content-type": kind}, "body": body, "isBase64Encoded": False}


# With these, Swagger UI fills in requests that the sample handbook answers.
EXAMPLE_BODIES = {
    "/search": {"query_text": "How do I take a backup?", "top_k": 3},
    "/validate-chunk": {"chunk_id": "vectordb-text-hygiene-00"},
    "/validate-chunks": {"chunks": [{"chunk_id": "vectordb-text-hygiene-00"}]},
}
_ASSETS = {"swagger-ui.min.css": "text/css", "swagger-ui-bundle.min.js": "application/javascript"}
_DOCS = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Chunkproof API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.min.css">
<div id="api"></div>
<script src="/docs/swagger-ui-bundle.min.js"></script>
<script>SwaggerUIBundle({url: "/openapi.json", dom_id: "#api", deepLinking: true})</script>
</html>
"""


def _find_docs(path: str, console: Api | None) -> dict[str, Any] | None:
    """Return a page of the documentation; its assets come with Powertools."""
    if path == "/docs":
        return _to_response(200, "text/html; charset=utf-8", _DOCS)
    if path == "/openapi.json":
        return _to_response(200, "application/json", json.dumps(build_openapi()))
    if path == f"{CONSOLE_PATH}openapi.json" and console is not None:
        return _to_response(200, "application/json", json.dumps(build_openapi(console)))
    name = path.removeprefix("/docs/")
    if name in _ASSETS:
        folder = files("aws_lambda_powertools.event_handler.openapi.swagger_ui")
        return _to_response(200, _ASSETS[name], (folder / name).read_text("utf-8"))
    return None


@cache
def load_function(name: str) -> ModuleType:
    """Import the function's `app.py`, once."""
    module_name = f"chunkproof_functions.{name}"
    packaged = Path(__file__).parents[1] / "functions"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[3] / "functions"
    spec = spec_from_file_location(module_name, folder / name / "app.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"no function {name}")
    module = module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module


def find_handler(path: str) -> Handler:
    """Return the handler of a path, according to the routes of template.yaml."""
    name = "validate_chunk" if path.startswith("/validate-chunk") else "search"
    handler: Handler = load_function(name).lambda_handler
    return handler


def build_openapi(*apps: Api) -> dict[str, Any]:
    """Build one OpenAPI document for these applications; for all functions if none is named."""
    from aws_lambda_powertools.event_handler import APIGatewayHttpResolver

    merged: dict[str, Any] = {}
    for app in apps or [load_function(name).app for name in FUNCTIONS]:
        resolver = APIGatewayHttpResolver()
        for route in app.routes:
            resolver.route(route.rule, route.method, **route.documented)(route.function)
        document = json.loads(
            resolver.get_openapi_json_schema(
                title="Chunkproof",
                version=CONTRACT_VERSION,
                description="Retrieval that proves it returns what was stored.",
            )
        )
        for path, operations in document["paths"].items():
            for operation in operations.values():
                operation["responses"].pop("422", None)  # added by the resolver; Chunkproof answers 400
                if path in EXAMPLE_BODIES:
                    operation["requestBody"]["content"]["application/json"]["example"] = EXAMPLE_BODIES[path]
                for parameter in operation.get("parameters", ()):
                    if parameter["in"] == "path":
                        parameter["example"] = "handbook"
        if not merged:
            merged = document
        else:
            merged["paths"] |= document["paths"]
            merged["components"]["schemas"] |= document["components"]["schemas"]
    schemas = merged["components"]["schemas"]
    if search := merged["paths"].get("/search"):
        _document_profiles(search["post"], schemas)
    used = _find_references(merged["paths"], schemas)
    merged["components"]["schemas"] = {name: schemas[name] for name in sorted(used)}
    merged["servers"] = [{"url": "/"}]
    return merged


_REFERENCE = "#/components/schemas/{model}"


def _document_profiles(search: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Add the response profiles to the route, and their schemas to the document."""
    search["parameters"] = [
        {
            "name": "profile",
            "in": "query",
            "description": "Shape of the response; also in the Accept header",
            "schema": {"type": "string", "enum": ["canonical", *PROFILES], "default": "canonical"},
        }
    ]
    models: list[type[Any]] = [FailedList, *(profile.model for profile in PROFILES.values())]
    schemas |= models_json_schema([(model, "serialization") for model in models], ref_template=_REFERENCE)[1]["$defs"]
    for profile in PROFILES.values():
        model = {"$ref": _REFERENCE.format(model=profile.model.__name__)}
        failure = {"$ref": _REFERENCE.format(model=FailedList.__name__)} if profile.is_list else model
        shape = {"type": "array", "items": model} if profile.is_list else model
        several = {
            "type": "object",
            "properties": {"responses": {"type": "array", "items": {"anyOf": [shape, failure]}}},
        }
        success = {"anyOf": [shape, {**several, "required": ["responses"]}]}
        for status, response in search["responses"].items():
            response["content"][profile.media_type] = {"schema": success if status == "200" else failure}


def _find_references(part: Any, schemas: dict[str, Any]) -> set[str]:
    """Find the schemas that a part of the document refers to, directly or not."""
    names: set[str] = set()
    todo = [part]
    while todo:
        for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(todo.pop())):
            if name not in names:
                names.add(name)
                todo.append(schemas[name])
    return names
