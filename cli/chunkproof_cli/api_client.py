"""Client for the API of a deployed stack or of `chunkproof serve`."""

import json
import re
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from chunkproof.base import errors
from chunkproof.base.embedder_config import is_http_url
from chunkproof.contract import CollectionInfo, Model, RetrievalResponse, ValidationResult
from chunkproof.contract.model import find_faults
from chunkproof.contract.response import Health
from chunkproof.net.transport import tls_context
from chunkproof.stores.qdrant import is_invalid_collection_name
from chunkproof_cli.exits import rebuild_error
from chunkproof_cli.output import add_secrets, escape_controls, masked_errors

Response = TypeVar("Response", bound=Model)


class ApiUnavailableError(errors.UnavailableError, ConnectionError):
    """The API could not be reached, or its response is not one of Chunkproof's."""

    code = "API_UNAVAILABLE"


class ApiTimeoutError(ApiUnavailableError, TimeoutError):
    """The API did not respond in time."""


class ApiClient:
    """Calls the routes over HTTP, with a bearer token if there is one, else signed for IAM."""

    def __init__(self, url: str, token: str | None, timeout_s: float) -> None:
        add_secrets([("token", token or ""), ("url", url)])
        if not is_http_url(url):
            raise errors.InvalidParameterError(f"--api {url}: not an http or https URL")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise errors.InvalidParameterError("CHUNKPROOF_TOKEN must be printable ASCII text")
        self._url = url.rstrip("/")
        self._token = token
        self._http = open_http(timeout_s)

    def search(self, request: dict[str, Any]) -> RetrievalResponse:
        """Call `POST /search`."""
        return self._call("POST", "/search", RetrievalResponse, request)

    def validate(self, request: dict[str, Any]) -> ValidationResult:
        """Call `POST /validate-chunk`."""
        return self._call("POST", "/validate-chunk", ValidationResult, request)

    def collection(self, name: str | None) -> CollectionInfo:
        """Call `GET /collections/{name}`."""
        if name is None:
            raise errors.InvalidParameterError("With --api, name the collection: --collection NAME")
        if is_invalid_collection_name(name):  # in a URL path it could lead to another route
            raise errors.CollectionNotFoundError(name)
        return self._call("GET", f"/collections/{quote(name, safe='')}", CollectionInfo)

    def health(self) -> Health:
        """Call `GET /health/deep`; the 503 of a failed dependency is a result, not an error."""
        return self._call("GET", "/health/deep", Health, accepted=(200, 503))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._http.close()

    @masked_errors()
    def _call(
        self,
        method: str,
        path: str,
        model: type[Response],
        body: dict[str, Any] | None = None,
        *,
        accepted: tuple[int, ...] = (200,),
    ) -> Response:
        if found := find_faults(body):  # values that JSON cannot represent
            raise errors.InvalidParameterError.listing([fault.message for fault in found])
        content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        headers = {"content-type": "application/json"} if content else {}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        elif not self._url.startswith("http://"):  # a local gateway checks no credentials
            headers = _sign(method, self._url + path, content, headers)
        try:
            response = self._http.request(method, self._url + path, content=content, headers=headers)
        except httpx.TimeoutException:
            raise ApiTimeoutError(f"{self._url} did not answer in time") from None
        except httpx.TransportError as error:
            raise ApiUnavailableError(
                f"{self._url} could not be reached ({describe_failure(error)}); check --api"
            ) from None
        except httpx.HTTPError:
            raise ApiUnavailableError(f"{self._url} sent a response that cannot be decoded") from None
        if response.status_code in accepted:
            try:
                # A newer stack may send more fields.
                return model.model_validate_json(response.content, extra="ignore")
            except ValueError:  # not the model
                pass
        raise self._to_error(response)

    def _to_error(self, response: httpx.Response) -> errors.ChunkproofError:
        try:
            body = response.json()
        except (ValueError, RecursionError):
            body = {}
        if isinstance(body, dict) and isinstance(body.get("error"), dict) and isinstance(body.get("errors"), list):
            return rebuild_error(str(body["error"].get("code")), [str(message) for message in body["errors"]])
        message = str(body.get("message", "")) if isinstance(body, dict) else ""
        status = f"{response.status_code} {message}".rstrip()
        if response.status_code in (401, 403):
            signed = "your AWS credentials and their permission execute-api:Invoke"
            what = "the token in CHUNKPROOF_TOKEN" if self._token else signed
            return errors.ForbiddenError(f"{self._url} refused the request ({status}); check {what}")
        summary = f"{self._url} answered {status}"
        return errors.RequestTooLargeError(summary) if response.status_code == 413 else ApiUnavailableError(summary)


def open_http(timeout_s: float, headers: Mapping[str, str] | None = None) -> httpx.Client:
    """Return a client that uses the proxies of the environment."""
    try:
        return httpx.Client(timeout=timeout_s, verify=tls_context(), headers=headers)
    except (ValueError, httpx.InvalidURL, ImportError) as error:
        reason = "SOCKS is not supported" if isinstance(error, ImportError) else "it is not the URL of one"
        raise errors.NotConfiguredError(
            f"The proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY cannot be used: {reason}"
        ) from None


def describe_failure(error: Exception) -> str:
    """Return the system's reason, such as an untrusted certificate, without OpenSSL's file and line."""
    if "Protocol" in type(error).__name__ or "Decoding" in type(error).__name__:  # they quote the response
        return "its response is not valid HTTP"
    reason = re.sub(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$", "", str(error))
    return escape_controls(reason) or type(error).__name__


def _sign(method: str, url: str, content: bytes, headers: dict[str, str]) -> dict[str, str]:
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
            "There are no AWS credentials to sign the request with: run aws configure, or set CHUNKPROOF_TOKEN"
        )
    parts = (urlsplit(url).hostname or "").split(".")
    region = parts[2] if len(parts) > 3 and parts[1] == "execute-api" else session.get_config_variable("region")
    if not region:
        raise errors.NotConfiguredError("There is no AWS region to sign the request for: set AWS_DEFAULT_REGION")
    request = AWSRequest(method=method, url=url, data=content, headers=headers)
    SigV4Auth(credentials.get_frozen_credentials(), "execute-api", region).add_auth(request)
    return dict(request.headers)
