"""API Gateway's side of a request: a body in any wrapping comes in, an answer of at most Lambda's size goes out."""

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any

from chunkproof.errors import InvalidParameterError, RequestTooLargeError, ResponseTooLargeError
from chunkproof.models.json import read_json

# What Lambda takes and returns: the whole event, or proxy response, as JSON, escapes and base64 included.
MAX_REQUEST_BYTES = 6_291_456
MAX_RESPONSE_BYTES = 6_291_556

Event = Mapping[str, Any]
Answer = dict[str, Any]


def readable(event: Event) -> dict[str, Any]:
    """The event with its body as plain text: unwrapped from base64 and gzip, whatever its content type."""
    headers = {str(name).lower(): value for name, value in (event.get("headers") or {}).items()}
    body = _body(event, headers)
    plain = {**event, "body": body, "isBase64Encoded": False}
    # The body is JSON by contract; a client that forgets to say so is not punished for it.
    plain["headers"] = {**headers, "content-type": "application/json"}
    plain["headers"].pop("content-encoding", None)
    return plain


def fields_of(event: Event) -> dict[str, Any]:
    """The body's fields, as far as they can be read: for telling in a failure what was asked."""
    try:
        document = read_json(_body(event, event.get("headers") or {}))
    except (InvalidParameterError, RequestTooLargeError):
        return {}
    return document if isinstance(document, dict) else {}


def sized(answer: Answer, event: Event) -> Answer:
    """The answer, compressed if it is too large and the caller takes gzip; else `ResponseTooLargeError`."""
    size = _size(answer)
    if size <= MAX_RESPONSE_BYTES:
        return answer
    if _accepts_gzip(event):
        packed = base64.b64encode(gzip.compress(answer["body"].encode(), compresslevel=6)).decode()
        headers = {**answer["headers"], "content-encoding": "gzip", "vary": "accept-encoding"}
        compressed = {**answer, "body": packed, "isBase64Encoded": True, "headers": headers}
        if _size(compressed) <= MAX_RESPONSE_BYTES:
            return compressed
    raise ResponseTooLargeError(
        f"The answer has {size} bytes and Lambda returns at most {MAX_RESPONSE_BYTES}; {_advice(answer, size)}"
    )


def _body(event: Event, headers: Mapping[str, str]) -> str:
    body = event.get("body") or ""
    try:
        content = base64.b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
    except (binascii.Error, UnicodeEncodeError):
        raise InvalidParameterError("The request body is not valid base64 or UTF-8") from None
    encoding = str(headers.get("content-encoding") or "identity").strip().lower()
    if encoding == "gzip":
        content = _unpacked(content)
    elif encoding != "identity":
        raise InvalidParameterError("content-encoding must be gzip or identity")
    if len(content) > MAX_REQUEST_BYTES:
        raise RequestTooLargeError(f"The request body has more than {MAX_REQUEST_BYTES} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidParameterError(f"The request body is not UTF-8 at byte {error.start}") from None


def _unpacked(content: bytes) -> bytes:
    """Gzip undone, never beyond the limit: a small body can unpack to gigabytes."""
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        unpacked = unpacker.decompress(content, MAX_REQUEST_BYTES + 1)
    except zlib.error:
        raise InvalidParameterError("The request body is not valid gzip") from None
    if not unpacker.eof and len(unpacked) <= MAX_REQUEST_BYTES:
        raise InvalidParameterError("The request body is not valid gzip: it ends too early")
    return unpacked


def _accepts_gzip(event: Event) -> bool:
    headers = {str(name).lower(): str(value) for name, value in (event.get("headers") or {}).items()}
    offers = [offer.strip().lower().split(";") for offer in headers.get("accept-encoding", "").split(",")]
    return any(
        name in ("gzip", "*") and not any(part.strip() in ("q=0", "q=0.0") for part in rest)
        for name, *rest in offers
    )


def _size(answer: Answer) -> int:
    body = answer.get("body") or ""
    if len(body) * 6 < MAX_RESPONSE_BYTES:  # no character takes more, escaped twice
        return len(body)
    # Lambda's own encoding for Python 3.12 and later: UTF-8, escapes only where JSON needs them.
    return len(json.dumps(answer, ensure_ascii=False).encode())


def _advice(answer: Answer, size: int) -> str:
    results = json.loads(answer["body"]).get("results")
    if not results:
        return "compare by original_sha256, or accept gzip"
    sizes = [
        len(json.dumps(json.dumps(result, ensure_ascii=False), ensure_ascii=False).encode())
        for result in results
    ]
    room, fitting = MAX_RESPONSE_BYTES - (size - sum(sizes)), 0
    for one in sizes:
        room -= one
        fitting += room >= 0
    return f"the first {fitting} of {len(results)} results fit: lower top_k, or accept gzip"
