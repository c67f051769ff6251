"""The contract's routes on Powertools' resolver: strict requests in, one envelope for every failure out.

A function makes an `Api`, adds its routes and hands out `app.handler`. Every response is complete, valid JSON and
carries `x-request-id`.
"""

import base64
import re
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from http import HTTPStatus
from inspect import Parameter, signature
from math import ceil
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote
from uuid import uuid4

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError as RouteNotFoundError
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from chunkproof.base.decompress import DecompressedTooLargeError, decompress
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
from chunkproof.base.request import Deadline, RequestTrace, State, Stopwatch
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Collection
from chunkproof.contract import ExecutionMetadata, Model, Request, RetrievalResponse, SearchQuery, read_json
from chunkproof.contract.model import BODY, MAX_NAME, MAX_VALUES, has_lone_surrogate
from chunkproof.embedders.embedder_port import query_model
from chunkproof.service.container import LAMBDA_DEADLINE_MS, lambda_deadline, prepare, services, settings
from chunkproof.service.telemetry import Telemetry, logger, span_writer

if TYPE_CHECKING:
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
FLAGS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(slots=True)
class Call:
    """The request that a thread is serving."""

    event: Event
    context: Any
    deadline: Deadline
    trace: RequestTrace
    watch: Stopwatch
    # The body as parsed, for an error response; None until a route reads it.
    document: Any = None
    is_read: bool = False


class _PerThread(threading.local):
    """Lambda serves one request at a time; a local gateway serves several, each in a thread.

    Powertools keeps the first three on its class, where threads would overwrite each other's.
    """

    current_event: Any
    lambda_context: Any
    context: dict[str, Any]
    call: Call | None = None

    def __init__(self) -> None:
        self.context = {}


def _per_thread(name: str) -> Any:
    def read(app: "Api") -> Any:
        return getattr(app._thread, name)

    def write(app: "Api", value: Any) -> None:
        setattr(app._thread, name, value)

    return property(read, write)


class Api(APIGatewayHttpResolver):
    """Powertools' resolver with the contract's requests and responses.

    Requests are read by their own models, which know the limits in force and report every problem at once;
    Powertools' validation would do neither, and take a quarter of a second to import.
    """

    current_event = _per_thread("current_event")
    lambda_context = _per_thread("lambda_context")
    context = _per_thread("context")

    def __init__(self) -> None:
        self._thread = _PerThread()
        self._rules: list[tuple[str, str]] = []
        super().__init__()
        handlers: dict[type[Exception], Callable[[Any], Response[str]]] = {
            ChunkproofError: self._respond_with_error,
            RouteNotFoundError: self._respond_no_route,
            Exception: self._respond_to_bug,
        }
        for kind, handler in handlers.items():
            self.exception_handler(kind)(handler)
        self._telemetry = Telemetry()

    @property
    def call(self) -> Call:
        """The request that this thread is serving."""
        if self._thread.call is None:
            raise RuntimeError("no request is being served")
        return self._thread.call

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
        own = services()
        if own.settings.tenant_claim:
            own = own.for_tenant(read_claim(self.call.event, own.settings.tenant_claim))
        return own.collection(name, self.call.deadline, self.call.trace)

    def route(self, rule: str, method: Any, *given: Any, **options: Any) -> Any:
        """Register a function that takes a request model, path and query parameters, and returns a model."""
        register = super().route(rule, method, *given, **options)
        self._rules.append((str(method), rule))

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            register(self._as_route(function))
            return function

        return add

    def _as_route(self, function: Callable[..., Any]) -> Callable[..., Response[str]]:
        """Wrap a function so that it gets its arguments from the event, and its result is written as JSON."""
        parameters = signature(function).parameters

        @wraps(function)
        def respond(**path: str) -> Response[str]:
            call = self._thread.call
            if call is None:  # a route is being primed
                return Response(HTTPStatus.NO_CONTENT.value)
            given = {name: unquote(value) for name, value in path.items()}
            try:
                arguments = {name: self._argument(p, given) for name, p in parameters.items()}
            finally:
                call.trace.end_stage("validate")
            result = function(**arguments)
            status = HTTPStatus.OK.value
            if isinstance(result, Response):
                status, result = result.status_code, result.body
            response = Response(status, JSON, result.to_json())
            call.trace.end_stage("format")
            call.trace.state = State.FORMATTED
            return response

        return respond

    def _argument(self, parameter: Parameter, path: Mapping[str, str]) -> Any:
        """Read one argument of a route: the body, a path parameter, or else a query parameter."""
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, Request):
            if not self.current_event.body:
                raise InvalidParameterError(f"{BODY} is required")
            self.call.is_read = True
            self.call.document = read_json(self.current_event.body, max_values=MAX_VALUES)
            request = kind.parse(self.call.document, settings().limits)
            if isinstance(request, SearchQuery) and request.queries is None:  # known from here on, whatever fails next
                self.call.trace.record_query(request, in_full=settings().log_queries)
            return request
        if parameter.name in path:
            return path[parameter.name]
        value = self.current_event.query_string_parameters.get(parameter.name)
        if value is None:
            return parameter.default
        if kind is not bool:
            return value
        if value.lower() not in FLAGS:
            raise InvalidParameterError(f"{parameter.name} must be true or false")
        return FLAGS[value.lower()]

    def resolve(self, event: Event, context: Any) -> ProxyResponse:
        """Find the route of a normalized event and return its response."""
        self.current_event, self.lambda_context = APIGatewayProxyEventV2(dict(event)), context
        return super().resolve(event, context)

    def prime(self) -> "Api":
        """Do what would make a first request slow, or two first ones collide; opens no connection."""
        for method, rule in self._rules:
            path = re.sub("<.*?>", "x", rule)
            http = {"method": method, "path": path}
            self.resolve({"rawPath": path, "requestContext": {"http": http, "stage": "$default"}}, None)
        with suppress(ChunkproofError):  # every request will report what is not configured
            prepare()
        return self

    def handler(self, event: Event, context: Any) -> ProxyResponse:
        """Serve one request: the Lambda handler."""
        watch = Stopwatch()
        trace = RequestTrace(_span_writer())
        event = event if isinstance(event, Mapping) else {}  # someone's test invocation
        self._thread.call = Call(event, context, Deadline(LAMBDA_DEADLINE_MS), trace, watch)
        logger.thread_safe_clear_keys()
        logger.thread_safe_append_keys(request_id=getattr(context, "aws_request_id", None))
        try:
            response = self._serve(event, context)
            trace.stages_ms["total"] = watch.ms()
            trace.status = response["statusCode"]
            if trace.status < HTTPStatus.BAD_REQUEST:
                trace.state = State.RETURNED
            self._emit_telemetry()
        finally:
            self._thread.call = None
        return response

    def _serve(self, event: Event, context: Any) -> ProxyResponse:
        try:
            self.call.deadline = lambda_deadline(context)
            response = self._add_headers(self.resolve(normalize_event(event), context))
            if len(response.get("body") or "") > SURELY_FITS:
                from chunkproof.service.oversized import fit_to_lambda_limit

                response = fit_to_lambda_limit(response, _headers(event).get("accept-encoding", ""))
            return response
        except ChunkproofError as error:  # outside of any route
            failed = self._respond_with_error(error)
        except Exception as error:  # noqa: BLE001 - an event that no gateway sends must not end the process
            failed = self._respond_to_bug(error)
        response = {
            "statusCode": failed.status_code,
            "headers": dict(failed.headers),
            "body": failed.body,
            "isBase64Encoded": False,
        }
        return self._add_headers(response)

    def _add_headers(self, response: ProxyResponse) -> ProxyResponse:
        """Add the headers that every response has."""
        call = self.call
        added = {
            "x-request-id": getattr(call.context, "aws_request_id", ""),
            "server-timing": call.trace.server_timing(call.watch.ms()),
        }
        return {**response, "headers": {**(response.get("headers") or {}), **added}}

    def _emit_telemetry(self) -> None:
        circuits: Mapping[str, CircuitBreaker] = {}
        try:
            in_force = settings()
            circuits = services().circuits
        except SettingsError:
            in_force = Settings.from_env({})  # the response names the wrong one
        except ChunkproofError:
            pass  # the response says what is not configured
        self._telemetry.emit(self.call.trace, self.call.event, self.call.context, in_force, circuits)

    def _respond_with_error(self, error: ChunkproofError) -> Response[str]:
        trace, fields = self.trace, self._read_fields()
        trace.code, trace.reasons = error.code, error.messages
        if self.call.event.get("rawPath") == SEARCH_PATH:
            self._record_what_was_sent(fields)
        envelope = RetrievalResponse.from_error(
            error,
            ExecutionMetadata(
                latency_ms=round(self.deadline.elapsed_ms()),
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
        return Response(error.status.value, JSON, envelope.to_json(), headers=self._error_headers(error))

    def _record_what_was_sent(self, fields: Mapping[str, Any]) -> None:
        """Record what is known of a search that failed before it began, for the response and the log alike."""
        trace = self.trace
        if trace.query_id is None:
            trace.query_id = _name(fields["query_id"]) if "query_id" in fields else str(uuid4())
        if trace.top_k is None and type(fields.get("top_k")) is int and abs(fields["top_k"]) < MAX_ECHO:
            trace.top_k = fields["top_k"]
        with suppress(ChunkproofError):  # the response says what is not configured
            trace.collection = trace.collection or _name(
                fields.get("collection", fields.get("collection_name", settings().collection))
            )
            if trace.embedding_model is None and "query_vector" not in fields:
                embedder = Collection(services(), trace.collection or "", self.deadline).embedder
                trace.embedding_model = query_model(embedder) if embedder else None

    def _read_fields(self) -> dict[str, Any]:
        """Return the body's fields; a large body is not parsed twice."""
        if not self.call.is_read:
            return read_fields(self.call.event)
        return self.call.document if isinstance(self.call.document, dict) else {}

    def _error_headers(self, error: ChunkproofError) -> dict[str, str | list[str]]:
        headers: dict[str, str | list[str]] = {}
        if error.retry_after is not None:
            headers["retry-after"] = str(max(1, ceil(error.retry_after)))
        if isinstance(error, MethodNotAllowedError):
            headers["allow"] = ", ".join(self._allowed_methods())
        return headers

    def _respond_no_route(self, _error: RouteNotFoundError) -> Response[str]:
        path, method = self.current_event.path, self.current_event.http_method
        if self._allowed_methods():
            return self._respond_with_error(MethodNotAllowedError(f"{method} is not allowed at {path}"))
        return self._respond_with_error(NotFoundError(f"There is nothing at {path}"))

    def _allowed_methods(self) -> list[str]:
        path = self.current_event.path
        patterns = ((method, re.sub("<.*?>", "[^/]+", rule)) for method, rule in self._rules)
        return sorted({method for method, pattern in patterns if re.fullmatch(pattern, path)})

    def _respond_to_bug(self, _error: Exception) -> Response[str]:
        """Log the trace; the caller gets an id to quote."""
        logger.exception("unexpected failure")
        request_id = getattr(self.call.context, "aws_request_id", "unknown")
        return self._respond_with_error(InternalError("Internal server error", f"Quote request id {request_id}"))


def _span_writer() -> Callable[[str, float], None] | None:
    with suppress(ChunkproofError):  # the response names a wrong setting
        return span_writer() if settings().tracing else None
    return None


def _echo(value: Any) -> str | None:
    """Return a caller's text for the error response, None when JSON could not carry it."""
    is_text = isinstance(value, str) and len(value) <= MAX_ECHO and not has_lone_surrogate(value)
    return value if is_text else None


def _name(value: Any) -> str | None:
    return value if _echo(value) and len(value) <= MAX_NAME else None


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


def normalize_event(event: Event) -> dict[str, Any]:
    """Return the event with its body decoded to plain text, and JSON as its content type.

    `NotConfiguredError` for another kind of event, such as one of payload format 1.0.
    """
    if not _is_from_http_api(event):
        raise NotConfiguredError(
            "The event is not an HTTP API's in payload format 2.0: check the gateway's integration"
        )
    headers = _headers(event)
    plain = {**event, "body": _body(event, headers), "isBase64Encoded": False}
    # The body is JSON by contract, whatever content type the client names.
    plain["headers"] = {**headers, "content-type": "application/json"}
    plain["headers"].pop("content-encoding", None)
    if name := (event.get("pathParameters") or {}).get("name"):
        # Decoded by the gateway; encoded again it matches its route, whatever characters it has.
        plain["rawPath"] = f"/collections/{quote(name, safe='')}"
    return plain


def _is_from_http_api(event: Event) -> bool:
    """Whether the parts that are read have the types that an HTTP API gives them."""
    context = event.get("requestContext")
    http = context.get("http") if isinstance(context, Mapping) else None
    texts = (event.get("rawPath"), http.get("method"), http.get("path")) if isinstance(http, Mapping) else (None,)
    parameters = event.get("pathParameters") or {}
    objects = (event.get("headers") or {}, parameters, event.get("queryStringParameters") or {})
    return (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(value, Mapping) for value in objects)
        and isinstance(parameters.get("name", ""), str)
    )


def read_claim(event: Event, name: str) -> str:
    """Return a claim of the caller's token, which API Gateway has verified; `ForbiddenError` without it."""
    claim: Any = event
    for step in ("requestContext", "authorizer", "jwt", "claims", name):
        claim = claim.get(step) if isinstance(claim, Mapping) else None
    if not isinstance(claim, str) or not claim.strip():
        raise ForbiddenError(f"The token has no claim {name}, which says whose chunks may be seen")
    return claim


def read_fields(event: Event) -> dict[str, Any]:
    """Return the body's fields for an error response; empty when the body cannot be read."""
    try:
        document = read_json(_body(event, _headers(event)), max_values=MAX_VALUES)
    except (InvalidParameterError, RequestTooLargeError):
        return {}
    return document if isinstance(document, dict) else {}


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
    """Return the bytes of a gzip body that a gateway took for text, if they can still be known."""
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
