"""API Gateway events: decode the request body, keep the response within Lambda's size limit."""

import base64
import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pydantic_core import to_json

from chunkproof.decompress import DecompressedTooLargeError, decompress
from chunkproof.errors import (
    ForbiddenError,
    InvalidParameterError,
    NotConfiguredError,
    RequestTooLargeError,
    ResponseTooLargeError,
)
from chunkproof.models.json import MAX_VALUES, read_json

# Lambda's limits for the whole event and the whole proxy response as JSON, escapes and base64 included.
MAX_REQUEST_BYTES = 6_291_456
MAX_RESPONSE_BYTES = 6_291_556

Event = Mapping[str, Any]
ProxyResponse = dict[str, Any]


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


def fit_to_lambda_limit(response: ProxyResponse, event: Event) -> ProxyResponse:
    """Compress a response that is too large if the caller accepts gzip; else raise `ResponseTooLargeError`."""
    size = _size(response)
    if size <= MAX_RESPONSE_BYTES:
        return response
    accepts = _accepts_gzip(_headers(event).get("accept-encoding", ""))
    if accepts:
        packed = base64.b64encode(gzip.compress(response["body"].encode(), compresslevel=6)).decode()
        headers = {**response["headers"], "content-encoding": "gzip", "vary": "accept-encoding"}
        compressed = {**response, "body": packed, "isBase64Encoded": True, "headers": headers}
        if _size(compressed) <= MAX_RESPONSE_BYTES:
            return compressed
    advice = _advice(response) + ("" if accepts else ", or accept gzip")
    raise ResponseTooLargeError(
        f"The response has {size} bytes and Lambda returns at most {MAX_RESPONSE_BYTES}; {advice}"
    )


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


def _accepts_gzip(header: str) -> bool:
    quality: dict[str, float] = {}
    for offer in header.lower().split(","):
        name, _, parameters = offer.partition(";")
        try:
            quality[name.strip()] = float(parameters.partition("=")[2] or 1)
        except ValueError:
            quality[name.strip()] = 0.0
    return quality.get("gzip", quality.get("*", 0.0)) > 0


def _size(response: ProxyResponse) -> int:
    body = response.get("body") or ""
    if len(body) * 6 < MAX_RESPONSE_BYTES:  # no character takes more, escaped twice
        return len(body)
    # Lambda's own encoding for Python 3.12 and later: UTF-8, escapes only where JSON needs them. The body is escaped
    # by pydantic, to the same bytes and ten times as fast.
    rest = json.dumps({**response, "body": ""}, ensure_ascii=False).encode()
    return len(to_json(body)) + len(rest) - len('""')


def _advice(response: ProxyResponse) -> str:
    document = json.loads(response["body"])
    results = document.get("results")
    if document.get("responses"):
        return "send fewer queries at a time, or lower top_k"
    if not results:
        return "compare by original_sha256"

    def fits(count: int) -> bool:
        fewer = json.dumps({**document, "results": results[:count]}, ensure_ascii=False, separators=(",", ":"))
        return _size({**response, "body": fewer}) <= MAX_RESPONSE_BYTES

    fitting, too_many = 0, len(results)
    while too_many - fitting > 1:
        middle = (fitting + too_many) // 2
        fitting, too_many = (middle, too_many) if fits(middle) else (fitting, middle)
    if fitting == 0:
        return "not even the first result fits"
    return f"the first {fitting} of {len(results)} results fit: lower top_k"
