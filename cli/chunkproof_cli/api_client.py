"""A deployed stack (or `chunkproof serve`) as seen from a terminal."""

import json
import re
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from pydantic import ValidationError

from chunkproof import errors
from chunkproof.clients.ports import is_invalid_collection_name
from chunkproof.clients.transport import tls_context
from chunkproof.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    ForbiddenError,
    InvalidParameterError,
    RequestTooLargeError,
    UnavailableError,
    error_classes,
)
from chunkproof.models import CollectionInfo, Model, RetrievalResponse, ValidationResult
from chunkproof.models.health import Health
from chunkproof.models.json import find_faults
from chunkproof.settings import is_http_url
from chunkproof_cli.output import escape_controls

Answer = TypeVar("Answer", bound=Model)


class ApiUnavailableError(UnavailableError):
    """The API did not answer as Chunkproof does."""

    code = "API_UNAVAILABLE"


class ApiClient:
    """The contract's routes over HTTP: with a bearer token if there is one, else signed for IAM."""

    def __init__(self, url: str, token: str | None, timeout_s: float) -> None:
        if not is_http_url(url):
            raise InvalidParameterError(f"--api {url}: must be an http or https URL")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise InvalidParameterError("CHUNKPROOF_TOKEN must be ASCII text without line ends")
        self._url = url.rstrip("/")
        self._token = token
        self._http = _client(timeout_s)

    def search(self, request: dict[str, Any]) -> RetrievalResponse:
        """`POST /search`."""
        return self._call("POST", "/search", RetrievalResponse, request)

    def validate(self, request: dict[str, Any]) -> ValidationResult:
        """`POST /validate-chunk`."""
        return self._call("POST", "/validate-chunk", ValidationResult, request)

    def collection(self, name: str | None) -> CollectionInfo:
        """`GET /collections/{name}`."""
        if name is None:
            raise InvalidParameterError("Name the collection: a stack does not tell its own")
        if is_invalid_collection_name(name):  # in an address it would mean something else
            raise CollectionNotFoundError(name)
        return self._call("GET", f"/collections/{quote(name, safe='')}", CollectionInfo)

    def health(self) -> Health:
        """`GET /health?deep=true`; a dependency that is down is an answer, not a failure."""
        return self._call("GET", "/health?deep=true", Health, accepted=(200, 503))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._http.close()

    def _call(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        body: dict[str, Any] | None = None,
        *,
        accepted: tuple[int, ...] = (200,),
    ) -> Answer:
        if found := find_faults(body):  # what JSON cannot carry, or would carry as something else
            raise InvalidParameterError.listing([fault.message for fault in found])
        content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        headers = {"content-type": "application/json"} if content else {}
        try:
            answer = self._http.request(
                method,
                self._url + path,
                content=content,
                headers=self._authorized(method, path, content, headers),
            )
        except httpx.TimeoutException:
            raise ApiUnavailableError(f"{self._url} did not answer in time") from None
        except httpx.TransportError as error:
            raise ApiUnavailableError(
                f"{self._url} could not be reached ({_reason(error)}); check --api"
            ) from None
        except httpx.HTTPError:
            raise ApiUnavailableError(f"{self._url} answered with something that cannot be read") from None
        if answer.status_code in accepted:
            try:
                return kind.model_validate_json(answer.content, extra="ignore")  # a newer stack may say more
            except ValidationError:
                pass
        raise self._failure(answer)

    def _authorized(self, method: str, path: str, content: bytes, headers: dict[str, str]) -> dict[str, str]:
        if self._token:
            return {**headers, "authorization": f"Bearer {self._token}"}
        if self._url.startswith("http://"):
            return headers  # a local gateway: nobody to prove anything to
        return _signed(method, self._url + path, content, headers)

    def _failure(self, answer: httpx.Response) -> ChunkproofError:
        try:
            body = answer.json()
        except (ValueError, RecursionError):
            body = {}
        if (
            isinstance(body, dict)
            and isinstance(body.get("error"), dict)
            and isinstance(body.get("errors"), list)
        ):
            return rebuild_error(str(body["error"].get("code")), [str(message) for message in body["errors"]])
        said = str(body.get("message", "")) if isinstance(body, dict) else ""
        if answer.status_code in (401, 403):
            how = (
                "the token in CHUNKPROOF_TOKEN"
                if self._token
                else "the AWS credentials and their execute-api:Invoke"
            )
            return ForbiddenError(
                f"{self._url} refused the request ({answer.status_code} {said}); check {how}"
            )
        answered = f"{self._url} answered {answer.status_code} {said}".rstrip()
        return RequestTooLargeError(answered) if answer.status_code == 413 else ApiUnavailableError(answered)


def _client(timeout_s: float) -> httpx.Client:
    try:
        return httpx.Client(timeout=timeout_s, verify=tls_context())
    except (ValueError, httpx.InvalidURL, ImportError) as error:
        said = "SOCKS is not spoken here" if isinstance(error, ImportError) else error
        raise errors.NotConfiguredError(
            f"The proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY cannot be used: {said}"
        ) from None


def _reason(error: httpx.TransportError) -> str:
    """What the system said, such as that a certificate is not trusted."""
    said = re.sub(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$", "", str(error))
    return escape_controls(said) or type(error).__name__


def rebuild_error(code: str, messages: list[str]) -> ChunkproofError:
    """The failure as the other side raised it, so that exit codes are the same here and there."""
    kinds = [kind for kind in error_classes() if kind.code == code]
    kind = min(kinds, key=lambda k: len(k.__mro__), default=ChunkproofError)
    raised = kind.__new__(kind)
    ChunkproofError.__init__(raised, *messages)
    return raised


def _signed(method: str, url: str, content: bytes, headers: dict[str, str]) -> dict[str, str]:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    try:
        session = Session()
        credentials = session.get_credentials()
    except BotoCoreError as error:
        raise errors.NotConfiguredError(f"The AWS credentials cannot be used: {error}") from None
    if credentials is None:
        raise errors.NotConfiguredError(
            "No AWS credentials to sign with: configure them (aws configure), or set CHUNKPROOF_TOKEN"
        )
    parts = (urlsplit(url).hostname or "").split(".")
    region = (
        parts[2] if len(parts) > 3 and parts[1] == "execute-api" else session.get_config_variable("region")
    )
    if not region:
        raise errors.NotConfiguredError("No AWS region to sign for: set AWS_DEFAULT_REGION")
    request = AWSRequest(method=method, url=url, data=content, headers=headers)
    SigV4Auth(credentials.get_frozen_credentials(), "execute-api", region).add_auth(request)
    return dict(request.headers)
