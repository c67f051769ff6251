"""A resolver for the contract's routes: strict validation, one envelope for every failure.

A door makes an `Api`, names its routes and hands out `app.handler`. Every answer is complete, valid JSON
and carries `x-request-id`.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import wraps
from http import HTTPStatus
from inspect import Signature, signature
from math import ceil
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError as RouteNotFoundError
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from chunkproof.deadline import Deadline, Stopwatch
from chunkproof.errors import (
    ChunkproofError,
    InternalError,
    InvalidParameterError,
    MethodNotAllowedError,
    NotFoundError,
    SettingsError,
)
from chunkproof.http.events import (
    Answer,
    Event,
    fit_to_lambda_limit,
    normalize_event,
    read_claim,
    read_fields,
)
from chunkproof.models import ExecutionMetadata, Model, RetrievalResponse, read_json
from chunkproof.models.base import describe_error, limits_in_force
from chunkproof.models.json import has_lone_surrogate
from chunkproof.retrieval.services import Services
from chunkproof.runtime.container import services, settings
from chunkproof.runtime.lambda_context import LAMBDA_DEADLINE_MS, lambda_deadline
from chunkproof.runtime.telemetry import Telemetry, logger, spans
from chunkproof.settings import Settings
from chunkproof.trace import Record, State

if TYPE_CHECKING:
    from chunkproof.clients.resilience import CircuitBreaker

# Ten times the longest query: a failure says what was asked, and stays far below Lambda's limit.
MAX_ECHO = 100_000
JSON = "application/json"


class _OfThread(threading.local):
    """What belongs to the request at hand. Lambda has one at a time; a local gateway has several."""

    context: dict[str, Any]
    current_event: APIGatewayProxyEventV2
    lambda_context: Any
    event: Event
    deadline: Deadline
    record: Record

    def __init__(self) -> None:
        self.context = {}


def _kept_per_thread(name: str) -> Any:
    def read(app: "Api") -> Any:
        return getattr(app.of_thread, name)

    def write(app: "Api", value: Any) -> None:
        setattr(app.of_thread, name, value)

    return property(read, write)


class Api(APIGatewayHttpResolver):
    """Powertools' resolver; what it keeps on its class and instance is kept per thread here."""

    context = _kept_per_thread("context")
    current_event = _kept_per_thread("current_event")
    lambda_context = _kept_per_thread("lambda_context")

    def __init__(self) -> None:
        self.of_thread = _OfThread()
        super().__init__(enable_validation=True, json_body_deserializer=read_json)
        answers: dict[type[Exception], Callable[[Any], Response[str]]] = {
            ChunkproofError: self._failed,
            RequestValidationError: self._invalid,
            RouteNotFoundError: self._no_route,
            Exception: self._broken,
        }
        for kind, answer in answers.items():
            self.exception_handler(kind)(answer)
        self.use([_staging(self.of_thread)])
        self._telemetry = Telemetry()

    def route(self, *rule: Any, **options: Any) -> Any:
        """Register a route that returns a model, or a `Response` with one."""
        register = super().route(*rule, **options)

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            register(_in_json(function))
            return function

        return add

    @property
    def deadline(self) -> Deadline:
        """The time budget of the request at hand."""
        return self.of_thread.deadline

    @property
    def services(self) -> Services:
        """The services as the caller may use them: with tenants, those that see only the caller's own chunks."""
        found = services()
        claim = found.settings.tenant_claim
        return found.of_tenant(read_claim(self.of_thread.event, claim)) if claim else found

    def handler(self, event: Event, context: Any) -> Answer:
        """The Lambda handler."""
        watch, record = Stopwatch(), Record(_spans())
        self.of_thread.event, self.of_thread.record = event, record
        logger.thread_safe_clear_keys()
        logger.thread_safe_append_keys(request_id=getattr(context, "aws_request_id", None))
        with record.open():
            answer = self._answer(event, context)
        record.stages["total"] = watch.ms()
        record.facts["status"] = answer["statusCode"]
        if answer["statusCode"] < HTTPStatus.BAD_REQUEST:
            record.state = State.RETURNED
        self._tell(context)
        return answer

    def _answer(self, event: Event, context: Any) -> Answer:
        self.of_thread.deadline = Deadline(LAMBDA_DEADLINE_MS)
        try:
            self.of_thread.deadline = lambda_deadline(context)
            limits_in_force.set(settings().limits)
            plain = normalize_event(event)
            self.current_event = APIGatewayProxyEventV2(plain, read_json)
            self.lambda_context = context
            answer = fit_to_lambda_limit(_tagged(self.resolve(plain, context), context), event)
        except ChunkproofError as error:  # outside of any route
            failed = self._failed(error)
            answer = {
                "statusCode": failed.status_code,
                "headers": dict(failed.headers),
                "body": failed.body,
                "isBase64Encoded": False,
            }
        return _tagged(answer, context)

    def _tell(self, context: Any) -> None:
        circuits: Mapping[str, CircuitBreaker] = {}
        try:
            in_force = settings()
            circuits = services().circuits
        except SettingsError:
            in_force = Settings.from_env({})  # the answer tells which one is wrong
        except ChunkproofError:
            pass  # the answer tells what is not configured
        self._telemetry.tell(self.of_thread.record, self.of_thread.event, context, in_force, circuits)

    def prime(self) -> "Api":
        """Do now what would make a first request slow (or two first ones collide); opens no connection."""
        for route in [*self._static_routes, *self._dynamic_routes]:
            route._build_middleware_stack(router_middlewares=self._router_middlewares, app=self)
        with suppress(ChunkproofError):  # every request will say what is not configured
            services()
        return self

    def _failed(self, error: ChunkproofError) -> Response[str]:
        self.of_thread.record.facts |= {"code": error.code, "reasons": error.messages}
        given = read_fields(self.of_thread.event)
        envelope = RetrievalResponse.failed(
            error,
            ExecutionMetadata(
                latency_ms=round(self.deadline.elapsed_ms()),
                result_count=0,
                threshold_applied=_threshold(given),
                timestamp=datetime.now(UTC),
            ),
            query=_echo(given.get("query_text", given.get("text"))),
            query_id=_echo(given.get("query_id")),
        )
        return Response(error.status.value, JSON, envelope.to_json(), headers=self._headers(error))

    def _headers(self, error: ChunkproofError) -> dict[str, str | list[str]]:
        headers: dict[str, str | list[str]] = {}
        if error.retry_after is not None:
            headers["retry-after"] = str(max(1, ceil(error.retry_after)))
        if isinstance(error, MethodNotAllowedError):
            headers["allow"] = ", ".join(self._methods_here())
        return headers

    def _invalid(self, error: RequestValidationError) -> Response[str]:
        """A path or query parameter; bodies are refused by their own models."""
        problems = [describe_error({**detail, "loc": detail["loc"][1:]}) for detail in error.errors()]
        return self._failed(InvalidParameterError.listing(problems))

    def _no_route(self, _error: RouteNotFoundError) -> Response[str]:
        path, method = self.current_event.path, self.current_event.http_method
        if self._methods_here():
            return self._failed(MethodNotAllowedError(f"{method} is not allowed at {path}"))
        return self._failed(NotFoundError(f"There is nothing at {path}"))

    def _broken(self, _error: Exception) -> Response[str]:
        """A bug: the log has the trace, the caller an id to quote."""
        logger.exception("unexpected failure")
        request_id = getattr(self.lambda_context, "aws_request_id", "unknown")
        return self._failed(InternalError("Internal server error", f"Quote request id {request_id}"))

    def _methods_here(self) -> list[str]:
        path = self.current_event.path
        routes = [*self._static_routes, *self._dynamic_routes]
        return sorted({route.method for route in routes if route.rule.fullmatch(path)})


def _staging(of_thread: _OfThread) -> Callable[[Any, Callable[[Any], Any]], Any]:
    """A middleware that times the stages around a route.

    It is a function, because the resolver keeps what it learns of a middleware on it, and a method takes nothing.
    """

    def staged(app: Any, next_middleware: Callable[[Any], Any]) -> Any:
        """Between validation, which is over when this begins, and the answer, which is JSON when it ends."""
        of_thread.record.lap("validate")
        answer = next_middleware(app)
        of_thread.record.lap("format")
        of_thread.record.state = State.FORMATTED
        return answer

    return staged


def _in_json(function: Callable[..., Any]) -> Callable[..., Response[str]]:
    """The route with its answer written by the answer's own model.

    The resolver would check the answer, which was checked when it was made, turn it into plain values and those into
    JSON: several times the work (docs/guides/performance.md).
    """

    @wraps(function)
    def answered(**given: Any) -> Response[str]:
        answer = function(**given)
        status = HTTPStatus.OK.value
        if isinstance(answer, Response):
            status, answer = answer.status_code, answer.body
        return Response(status, JSON, answer.to_json())

    answered.__signature__ = signature(function).replace(return_annotation=Signature.empty)  # type: ignore[attr-defined]
    return answered


def _spans() -> Callable[[str, float], None] | None:
    with suppress(ChunkproofError):  # a wrong setting is for the answer to say
        return spans() if settings().tracing else None
    return None


def _echo(value: Any) -> str | None:
    """A caller's text as it was given; None when an answer could not carry it."""
    is_carried = isinstance(value, str) and len(value) <= MAX_ECHO and not has_lone_surrogate(value)
    return value if is_carried else None


def _threshold(given: dict[str, Any]) -> float:
    for name in ("similarity_threshold", "threshold", "score_threshold"):
        value = given.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_ECHO:
            return float(value)
    return 0.0


def responses(success: type[Model], *, unavailable: Any = RetrievalResponse) -> dict[int, Any]:
    """What a route may answer, for its OpenAPI."""

    def answer(description: str, model: Any) -> dict[str, Any]:
        return {"description": description, "content": {JSON: {"model": model}}}

    failures = {
        400: "The request breaks a rule",
        403: "The caller may not",
        404: "There is no such thing",
        405: "Not with this method",
        413: "Too large",
        429: "Too many requests",
        500: "A bug, or nothing readable",
    }
    return {
        200: answer("As asked", success),
        **{status: answer(description, RetrievalResponse) for status, description in failures.items()},
        503: answer("A dependency is down", unavailable),
    }


def _tagged(answer: Answer, context: Any) -> Answer:
    headers = {**(answer.get("headers") or {}), "x-request-id": getattr(context, "aws_request_id", "")}
    return {**answer, "headers": headers}
