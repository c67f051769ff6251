"""Responses that may be larger than Lambda returns: compressed, or refused with advice."""

import base64
import json
import zlib
from sys import getsizeof
from typing import Any

from pydantic_core import from_json, to_json

from chunkproof.base.errors import ResponseTooLargeError

# Lambda's limit for the whole proxy response as JSON, escapes and base64 included.
MAX_RESPONSE_BYTES = 6_291_556
# Larger bodies are compressed in a fifth of the time, a little less.
CAREFULLY = 2 * MAX_RESPONSE_BYTES
PART = 1024 * 1024
# No text of several times Lambda's limit fits when compressed, unless it repeats itself.
MAX_BODY_MEMORY = 64 * 1024 * 1024

ProxyResponse = dict[str, Any]


def check_memory(body: str, copies: int = 1) -> None:
    """Refuse a body that would take too much memory to be compressed or written in another shape."""
    if (size := copies * getsizeof(body)) > MAX_BODY_MEMORY:
        raise ResponseTooLargeError(
            f"The response takes {size} bytes of memory and {MAX_BODY_MEMORY} are the most; lower top_k, or send fewer "
            "queries or chunks at a time"
        )


def fit_to_lambda_limit(response: ProxyResponse, accept_encoding: str) -> ProxyResponse:
    """Compress a response that is too large if the caller accepts gzip; else raise `ResponseTooLargeError`."""
    # A character takes at most six bytes, and headers far less than the other half.
    if len(response.get("body") or "") <= MAX_RESPONSE_BYTES // 12 or (size := _size(response)) <= MAX_RESPONSE_BYTES:
        return response
    accepts = _accepts_gzip(accept_encoding)
    if accepts and (packed := _compress(response["body"].encode())):
        headers = {**response["headers"], "content-encoding": "gzip", "vary": "accept-encoding"}
        compressed = {**response, "body": packed, "isBase64Encoded": True, "headers": headers}
        if _size(compressed) <= MAX_RESPONSE_BYTES:
            return compressed
    advice = _advice(response) + ("" if accepts else ", or accept gzip")
    raise ResponseTooLargeError(
        f"The response has {size} bytes and Lambda returns at most {MAX_RESPONSE_BYTES}; {advice}"
    )


def _compress(body: bytes) -> str | None:
    """Return the body as base64 of gzip; None as soon as it is clear that it does not fit."""
    packer = zlib.compressobj(level=6 if len(body) <= CAREFULLY else 1, wbits=zlib.MAX_WBITS | 16)
    packed = bytearray()
    for start in range(0, len(body), PART):
        packed += packer.compress(body[start : start + PART])
        if len(packed) * 4 // 3 > MAX_RESPONSE_BYTES:
            return None
    return base64.b64encode(packed + packer.flush()).decode()


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
    # Lambda's own encoding for Python 3.12 and later: UTF-8, escapes only where JSON needs them. The body is escaped
    # by pydantic, to the same bytes and ten times as fast.
    rest = json.dumps({**response, "body": ""}, ensure_ascii=False).encode()
    return len(to_json(body)) + len(rest) - len('""')


def _advice(response: ProxyResponse) -> str:
    body: Any = from_json(response["body"])
    document: dict[str, Any] = {"results": body} if isinstance(body, list) else body  # a list: of a response profile
    results = document.get("results") or []
    if document.get("responses"):
        return "send fewer queries at a time, or lower top_k"
    if "failed" in document:
        return "send fewer chunks at a time" if len(results) > 1 else "the chunk alone is too large"
    if not results:
        return "compare by original_sha256"
    room = MAX_RESPONSE_BYTES - _size({**response, "body": to_json({**document, "results": []}).decode()})
    fitting = 0
    for result in results:
        room -= len(to_json(to_json(result).decode())) - 1  # a comma instead of two quotes
        if room < -1:
            break
        fitting += 1
    if fitting == 0:
        return "not even the first result fits"
    return f"the first {fitting} of {len(results)} results fit: lower top_k"
