"""The contract's routes: strict requests in, one envelope for every failure out.

A function makes an `Api`, adds its routes and hands out `app.handler`. Every response is complete, valid JSON and
carries `x-request-id`.
"""

import base64
import gc
import re
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from inspect import Parameter, get_annotations, signature
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote
from uuid import uuid4

from chunkproof.base.errors import (
    ChunkproofError,
    ForbiddenError,
    InternalError,
    InvalidParameterError,
    MethodNotAllowedError,
    NotConfiguredError,
    NotFoundError,
    RequestTooLargeError,
    SettingsError,
)
from chunkproof.base.files import DecompressedTooLargeError, decompress
from chunkproof.base.request import Deadline, RequestTrace, State, Stopwatch, tracing
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Collection
from chunkproof.contract import ExecutionMetadata, Model, Request, RetrievalResponse, SearchQuery, read_json
from chunkproof.contract.model import BODY, MAX_VALUES, has_lone_surrogate, read_name
from chunkproof.embedders.embedder_port import query_model
from chunkproof.service.container import LAMBDA_DEADLINE_MS, lambda_deadline, prepare, services, settings
from chunkproof.service.telemetry import Telemetry, logger

if TYPE_CHECKING:
    from chunkproof.contract.profiles import Profile
    from chunkproof.net.resilience import CircuitBreaker

# Lambda's limit for the whole event as JSON, escapes and base64 included.
MAX_REQUEST_BYTES = 6_291_456
# A response with fewer characters fits whatever they are: none takes more than six bytes, escaped twice.
SURELY_FITS = 1_000_000
# Ten times the longest query: an error response echoes the query, and stays far below Lambda's limit.
MAX_ECHO = 100_000
JSON = "application/json"
SEARCH_PATH = "/search"

Event = Mapping[str, Any]
ProxyResponse = dict[str, Any]
Function = TypeVar("Function", bound=Callable[..., Any])
FLAGS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Route:
    """A function of the API: it takes a request model, path and query parameters, and returns a model.

    `documented` is what OpenAPI says of it.
    """

    method: str
    rule: str
    function: Callable[..., Any]
    documented: Mapping[str, Any]
    pattern: re.Pattern[str]
    parameters: Mapping[str, Parameter]


@dataclass(frozen=True, slots=True)
class WithStatus:
    """The result of a route that sets its status; the body has `to_json`, as a model does."""

    status: HTTPStatus
    body: Any


@dataclass(slots=True)
class Call:
    """The request that a thread is serving."""

    event: Event
    context: Any
    deadline: Deadline
    trace: RequestTrace
    watch: Stopwatch
    headers: Mapping[str, str] = field(default_factory=dict)
    # The body as text, and as parsed for an error response; None until it is read.
    body: str | None = None
    document: Any = None
    is_read: bool = False
    # The shape of the response that the caller asks for; None for the canonical one.
    profile: "Profile | None" = None


class _Served(threading.local):
    """Lambda serves one request at a time; a local gateway serves several, each in a thread."""

    call: Call | None = None


class Api:
    """The routes of a function.

    Requests are read by their own models, which know the limits in force and report every problem at once.
    """

    def __init__(self) -> None:
        self.routes: list[Route] = []
        self._served = _Served()
        self._telemetry = Telemetry()

    def get(self, rule: str, **documented: Any) -> Callable[[Function], Function]:
        """Register the function that answers GET at this path, in which `<name>` is a parameter."""
        return self._route("GET", rule, documented)

    def post(self, rule: str, **documented: Any) -> Callable[[Function], Function]:
        """Register the function that answers POST at this path."""
        return self._route("POST", rule, documented)

    def _route(self, method: str, rule: str, documented: Mapping[str, Any]) -> Callable[[Function], Function]:
        pattern = re.compile(re.sub("<(.*?)>", r"(?P<\1>[^/]+)", rule))

        def add(function: Function) -> Function:
            parameters = signature(function).parameters
            self.routes.append(Route(method, rule, function, documented, pattern, parameters))
            return function

        return add

    @property
    def call(self) -> Call:
        """The request that this thread is serving."""
        if self._served.call is None:
            raise RuntimeError("no request is being served")
        return self._served.call

    @property
    def deadline(self) -> Deadline:
        """The deadline of the current request."""
        return self.call.deadline

    @property
    def trace(self) -> RequestTrace:
        """The trace of the current request."""
        return self.call.trace

    def collection(self, name: str | None) -> Collection:
        """Return a collection for the current request; with tenants, restricted to the caller's own chunks."""
        call, own = self.call, services()
        if own.settings.tenant_claim:
            own = own.for_tenant(read_claim(call.event, own.settings.tenant_claim))
        return own.collection(name, call.deadline, call.trace)

    def require_caller(self, route: str) -> None:
        """Refuse a request without authorization on a public route: what it asks for is not public."""
        if not self.call.event["requestContext"].get("authorizer"):
            raise ForbiddenError(f"{route} needs authorization, which a public route does not check: GET /health/deep")

    def answer_agent(self) -> WithStatus:
        """Answer a message of the Model Context Protocol: its tools take this request's caller, deadline and trace."""
        from chunkproof.proof.backend import LocalBackend
        from chunkproof.service.agent_tools import answer_agent

        if not settings().mcp:
            raise NotFoundError("There is nothing at /mcp: CHUNKPROOF_MCP is false")
        call = self.call
        reply = answer_agent(
            call.body or "",
            call.headers,
            lambda: LocalBackend(self.collection(None).services, lambda: call.deadline, call.trace),
            call.trace,
        )
        return WithStatus(reply.status, reply)

    def prime(self) -> "Api":
        """Do what would make a first request slow; opens no connection."""
        for route in self.routes:
            for kind in get_annotations(route.function).values():
                if isinstance(kind, type) and issubclass(kind, Model):
                    kind.model_rebuild()
        with suppress(ChunkproofError):  # every request will report what is not configured
            prepare()
        gc.freeze()  # what is there now stays: no need to look through it again
        return self

    def handler(self, event: Event, context: Any) -> ProxyResponse:
        """Serve one request: the Lambda handler."""
        trace = RequestTrace()
        event = event if isinstance(event, Mapping) else {}  # someone's test invocation
        call = self._served.call = Call(event, context, Deadline(LAMBDA_DEADLINE_MS), trace, Stopwatch())
        logger.thread_safe_clear_keys()
        logger.thread_safe_append_keys(request_id=getattr(context, "aws_request_id", None))
        try:
            tracer = tracing.tracer
            response = self._serve(call) if tracer is None else tracer.serve(self._serve, call)
            trace.stages_ms["total"] = call.watch.ms()
            # Of a tool that failed, the status that the API has for it: the protocol answers with 200.
            trace.status = trace.status or response["statusCode"]
            if trace.status < HTTPStatus.BAD_REQUEST:
                trace.state = State.RETURNED
            self._emit_telemetry(call)
            if tracer is not None:
                tracer.flush(call.deadline.remaining_ms() / 1000)
        finally:
            self._served.call = None
        return response

    def _serve(self, call: Call) -> ProxyResponse:
        try:
            call.deadline = lambda_deadline(call.context)
            call.profile = _find_profile(call.event)
            response = self._answer(call)
            if len(response["body"]) > SURELY_FITS:
                from chunkproof.service.oversized import fit_to_lambda_limit

                response = fit_to_lambda_limit(response, call.headers.get("accept-encoding", ""))
            return response
        except ChunkproofError as error:
            return self._respond_with_error(error)
        except Exception:  # noqa: BLE001 - an event that no gateway sends must not end the process
            logger.exception("unexpected failure")
            request_id = getattr(call.context, "aws_request_id", "unknown")
            return self._respond_with_error(InternalError("Internal server error", f"Quote request id {request_id}"))

    def _answer(self, call: Call) -> ProxyResponse:
        """Call the function of the route with its arguments, and write what it returns."""
        path, method = read_event(call)
        route, given = self._find_route(path, method)
        try:
            arguments = {name: self._argument(call, kind, given) for name, kind in route.parameters.items()}
        finally:
            call.trace.end_stage("validate")
        result = route.function(**arguments)
        status = HTTPStatus.OK
        if isinstance(result, WithStatus):
            status, result = result.status, result.body
        body = result.to_json()
        if len(body) > SURELY_FITS:
            from chunkproof.service.oversized import check_memory

            check_memory(body)
        call.trace.end_stage("format")
        call.trace.state = State.FORMATTED
        return _respond(call, status, body)

    def _find_route(self, path: str, method: str) -> tuple[Route, Mapping[str, str]]:
        path, method = (text.encode("utf-8", "backslashreplace").decode() for text in (path, method))
        fitting = [(route, match) for route in self.routes if (match := route.pattern.fullmatch(path))]
        for route, match in fitting:
            if route.method == method:
                return route, {name: unquote(value) for name, value in match.groupdict().items()}
        if fitting:
            allowed = sorted({route.method for route, _ in fitting})
            raise MethodNotAllowedError(f"{method} is not allowed at {path}", allowed=allowed)
        raise NotFoundError(f"There is nothing at {path}")

    def _argument(self, call: Call, parameter: Parameter, path: Mapping[str, str]) -> Any:
        """Read one argument of a route: the body, a path parameter, or else a query parameter."""
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, Request):
            if not call.body:
                raise InvalidParameterError(f"{BODY} is required")
            call.is_read = True
            call.document = read_json(call.body, max_values=MAX_VALUES)
            read = call.profile.read if call.profile else kind.parse
            request = read(call.document, settings().limits)
            if isinstance(request, SearchQuery) and request.queries is None:  # known from here on, whatever fails next
                call.trace.record_query(request, in_full=settings().log_queries)
            return request
        if parameter.name in path:
            return path[parameter.name]
        value = (call.event.get("queryStringParameters") or {}).get(parameter.name)
        if value is None:
            return parameter.default
        if kind is not bool:
            return value
        if value.lower() not in FLAGS:
            raise InvalidParameterError(f"{parameter.name} must be true or false")
        return FLAGS[value.lower()]

    def _emit_telemetry(self, call: Call) -> None:
        circuits: Mapping[str, CircuitBreaker] = {}
        try:
            in_force = settings()
            circuits = services().circuits
        except SettingsError:
            in_force = Settings.from_env({})  # the response names the wrong one
        except ChunkproofError:
            pass  # the response says what is not configured
        self._telemetry.emit(call.trace, call.event, call.context, in_force, circuits)

    def _respond_with_error(self, error: ChunkproofError) -> ProxyResponse:
        call = self.call
        trace, fields = call.trace, _read_fields(call)
        trace.code, trace.reasons = error.code, error.messages
        if call.event.get("rawPath") == SEARCH_PATH:
            _record_what_was_sent(call, fields)
        envelope = RetrievalResponse.from_error(
            error,
            ExecutionMetadata(
                latency_ms=round(call.deadline.elapsed_ms()),
                result_count=0,
                threshold_applied=_read_threshold(fields),
                query_embedded_at=trace.query_embedded_at,
                embedding_time_ms=trace.stages_ms.get("embed", 0.0) if trace.query_embedded_at else 0.0,
                requested_top_k=trace.top_k,
                collection=trace.collection,
                embedding_model=trace.embedding_model,
                embedding_cached=bool(trace.embedding_cached),
                timestamp=datetime.now(UTC),
            ),
            query=_echo(fields.get("query_text", fields.get("text"))),
            query_id=trace.query_id or _echo(fields.get("query_id")),
        )
        return _respond(call, error.status, envelope.to_json(), _error_headers(error))


def _respond(call: Call, status: HTTPStatus, body: str, headers: Mapping[str, str] | None = None) -> ProxyResponse:
    """Return the response with the headers that every one has, in the profile that was asked for."""
    kind = JSON
    if call.profile is not None:
        kind, body = call.profile.media_type, call.profile.write(body, call.watch.ms(), call.trace.round_trip_ms)
    return {
        "statusCode": status.value,
        "headers": {
            "Content-Type": kind,
            **(headers or {}),
            "x-request-id": getattr(call.context, "aws_request_id", ""),
            "server-timing": call.trace.server_timing(call.watch.ms()),
        },
        "body": body,
        "cookies": [],
        "isBase64Encoded": False,
    }


def _error_headers(error: ChunkproofError) -> dict[str, str]:
    headers: dict[str, str] = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, ceil(error.retry_after)))
    if isinstance(error, MethodNotAllowedError):
        headers["allow"] = ", ".join(error.allowed)
    return headers


def _record_what_was_sent(call: Call, fields: Mapping[str, Any]) -> None:
    """Record the known fields of a search that failed early, for both the response and the log."""
    trace = call.trace
    if trace.query_id is None:
        trace.query_id = read_name(fields["query_id"]) if "query_id" in fields else str(uuid4())
    if trace.top_k is None and type(fields.get("top_k")) is int and abs(fields["top_k"]) < MAX_ECHO:
        trace.top_k = fields["top_k"]
    with suppress(ChunkproofError):  # the response says what is not configured
        trace.collection = trace.collection or read_name(
            fields.get("collection", fields.get("collection_name", settings().collection))
        )
        if trace.embedding_model is None and "query_vector" not in fields:
            embedder = Collection(services(), trace.collection or "", call.deadline).embedder
            trace.embedding_model = query_model(embedder) if embedder else None


def _echo(value: Any) -> str | None:
    """Return a caller's text for the error response, None when JSON could not carry it."""
    is_text = isinstance(value, str) and len(value) <= MAX_ECHO and not has_lone_surrogate(value)
    return value if is_text else None


def _read_threshold(fields: dict[str, Any]) -> float:
    for name in ("similarity_threshold", "threshold", "score_threshold"):
        value = fields.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_ECHO:
            return float(value)
    return 0.0


def responses(success: type[Model], *, unavailable: Any = RetrievalResponse) -> dict[int, Any]:
    """Return the responses of a route for its OpenAPI."""

    def response(description: str, model: Any) -> dict[str, Any]:
        return {"description": description, "content": {JSON: {"model": model}}}

    failures = {
        400: "The request breaks a rule",
        403: "The caller is not allowed",
        404: "Not found",
        405: "Method not allowed",
        413: "The request or the response is too large",
        429: "Too many requests",
        500: "An internal error, or no stored text could be read",
    }
    return {
        200: response("Success", success),
        **{status: response(description, RetrievalResponse) for status, description in failures.items()},
        503: response("A dependency is unavailable", unavailable),
    }


def read_event(call: Call) -> tuple[str, str]:
    """Return the path and the method; decode headers and body. `NotConfiguredError` for another kind of event."""
    event: Any = call.event
    context = event.get("requestContext")
    http: Any = context.get("http") if isinstance(context, Mapping) else None
    texts = (event.get("rawPath"), http.get("method"), http.get("path")) if isinstance(http, Mapping) else (None,)
    parameters = event.get("pathParameters") or {}
    objects = (context, event.get("headers") or {}, parameters, event.get("queryStringParameters") or {})
    has_types = all(isinstance(text, str) for text in texts) and all(isinstance(part, Mapping) for part in objects)
    if not has_types or not isinstance(name := parameters.get("name", ""), str):
        raise NotConfiguredError(
            "The event is not an HTTP API's in payload format 2.0: check the gateway's integration"
        )
    call.headers = _headers(event)
    call.body = _body(event, call.headers)
    path, stage = event["rawPath"], context.get("stage", "$default")
    if name:
        # Decoded by the gateway; encoded again it matches its route, whatever characters it has.
        path = f"/collections/{quote(name, safe='')}"
    elif stage != "$default":
        path = path.removeprefix(f"/{stage}")
    return path, http["method"]


def read_claim(event: Event, name: str) -> str:
    """Return a claim of the caller's token, which API Gateway has verified; `ForbiddenError` without it."""
    claim: Any = event
    for step in ("requestContext", "authorizer", "jwt", "claims", name):
        claim = claim.get(step) if isinstance(claim, Mapping) else None
    if not isinstance(claim, str) or not claim.strip():
        raise ForbiddenError(f"The token has no claim {name}, which says whose chunks may be seen")
    return claim


def _read_fields(call: Call) -> dict[str, Any]:
    """Return the body's fields for an error response; empty when the body cannot be read."""
    document = call.document
    if not call.is_read:  # a large body is not parsed twice
        try:
            document = read_json(_body(call.event, _headers(call.event)), max_values=MAX_VALUES)
        except (InvalidParameterError, RequestTooLargeError):
            return {}
    fields = document if isinstance(document, dict) else {}
    return {**fields["query"], **fields} if isinstance(fields.get("query"), dict) else fields


def _find_profile(event: Event) -> "Profile | None":
    """Return the profile that a search names in its query string or its `Accept` header."""
    query, headers = event.get("queryStringParameters"), event.get("headers")
    parameter = query.get("profile") if isinstance(query, Mapping) else None
    accept = str(headers.get("accept")) if isinstance(headers, Mapping) else ""
    if event.get("rawPath") != SEARCH_PATH or (parameter is None and "profile" not in accept.lower()):
        return None
    from chunkproof.contract.profiles import find_profile

    return find_profile(accept, parameter)


def _headers(event: Event) -> dict[str, str]:
    headers = event.get("headers")
    return {str(name).lower(): str(value) for name, value in headers.items()} if isinstance(headers, Mapping) else {}


def _body(event: Event, headers: Mapping[str, str]) -> str:
    body = event.get("body") or ""
    if not isinstance(body, str):
        raise InvalidParameterError("The event's body must be text, as a gateway sends it")
    try:
        content = base64.b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
    except ValueError:
        raise InvalidParameterError("The request body is not valid base64 or UTF-8") from None
    encoding = headers.get("content-encoding", "").strip().lower() or "identity"
    if encoding == "gzip":
        content = _decompress_body(content if event.get("isBase64Encoded") else _read_damaged_gzip(body))
    elif encoding != "identity":
        raise InvalidParameterError("content-encoding must be gzip or identity")
    if len(content) > MAX_REQUEST_BYTES:
        raise _too_large()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidParameterError(f"The request body is not UTF-8 at byte {error.start}") from None


def _read_damaged_gzip(body: str) -> bytes:
    """Recover the bytes of a gzip body that a gateway decoded as text, if that is possible."""
    try:
        return body.encode("latin-1")  # one character for each byte
    except UnicodeEncodeError:
        raise InvalidParameterError(
            "The gateway took the gzip body for text and damaged it: send it as content-type application/octet-stream"
        ) from None


def _decompress_body(content: bytes) -> bytes:
    if not content:
        raise InvalidParameterError("The request body is not valid gzip: it is empty")
    try:
        return decompress(content, MAX_REQUEST_BYTES)
    except DecompressedTooLargeError:
        raise _too_large() from None
    except EOFError:
        raise InvalidParameterError("The request body is not valid gzip: it ends too early") from None
    except zlib.error:
        raise InvalidParameterError("The request body is not valid gzip") from None


def _too_large() -> RequestTooLargeError:
    return RequestTooLargeError(f"The request body has more than {MAX_REQUEST_BYTES} bytes")
