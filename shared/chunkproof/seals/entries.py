"""The entry of a chunk in a seal: canonical bytes that commit to its text, its vector and its payload."""

import json
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from chunkproof.collection.payload_map import PayloadMap
from chunkproof.seals.notes import encode
from chunkproof.stores.store_port import Point

MAX_EXACT = 2**53 - 1


def canonical_json(value: Any) -> bytes:
    """Return the JSON of RFC 8785; an integer that a double cannot hold is written as a string of its digits."""
    if _is_plain(value):
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    import rfc8785

    return rfc8785.dumps(_with_exact_numbers(value))


def _is_plain(value: Any) -> bool:
    """Whether Python's own encoder writes it as RFC 8785 does, twenty times as fast."""
    if isinstance(value, str | bool) or value is None:
        return True
    if isinstance(value, Mapping):
        return all(key.isascii() and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, int) and abs(value) <= MAX_EXACT


def _with_exact_numbers(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_exact_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_exact_numbers(item) for item in value]
    is_too_large = isinstance(value, int) and abs(value) > MAX_EXACT
    return str(value) if is_too_large else value


def vector_bytes(vector: Sequence[float]) -> bytes:
    """Return the values as 32-bit floats, little-endian."""
    values = array("f", vector)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def hash_text(text: str) -> str:
    """Return the base64 of the SHA-256 of the UTF-8 bytes."""
    return encode(sha256(text.encode()).digest())


def hash_tenant(tenant: str, salt: bytes, point: str) -> str:
    """Return the hash of a chunk's tenant; each chunk has another, so that equal tenants do not show."""
    return encode(sha256(salt + f"{point}\n{tenant}".encode()).digest())


@dataclass(frozen=True, slots=True)
class EntryWriter:
    """Makes the entries of a collection. `tenant_field` names the payload's tenant, if there are any."""

    payloads: PayloadMap
    tenant_field: str | None
    salt: bytes

    def entry_of(self, point: Point) -> bytes:
        """Return the entry of a point, which was read with its vector."""
        text, point_id = self.payloads.find_text(point), str(point.id)
        entry = {
            "chunk": self.payloads.id_of(point),
            "payload": encode(sha256(canonical_json(dict(point.payload))).digest()),
            "point": point_id,
            "text": None if text is None else hash_text(text),
            "v": 1,
            "vector": None if point.vector is None else encode(sha256(vector_bytes(point.vector)).digest()),
        }
        if self.tenant_field is not None:
            tenant = self.payloads.stated(self.tenant_field, point.payload)
            entry["tenant"] = None if tenant is None else hash_tenant(str(tenant), self.salt, point_id)
        return canonical_json(entry)
