"""The entry of a chunk in a seal: canonical bytes that commit to its text, its vector and its payload."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from struct import pack
from typing import Any

from chunkproof.collection.payload_map import PayloadMap
from chunkproof.seals.notes import digest
from chunkproof.stores.store_port import Point

MAX_EXACT = 2**53 - 1
_REST = re.compile(rb',"(?:payload|vector)":(?:"[^"]*"|null)')  # no quote in a text of JSON is like those


def map_json(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a JSON value with its numbers and texts changed, and the names of objects in the order of RFC 8785."""
    if isinstance(value, Mapping):
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return {name: map_json(value[name], change) for name in names}
    if isinstance(value, list | tuple):
        return [map_json(item, change) for item in value]
    return change(value)


def to_ints(value: Any) -> Any:
    """Return a JSON value with 1 for 1.0, which are the same."""

    def whole(item: Any) -> Any:
        return int(item) if type(item) is float and item.is_integer() and abs(item) <= MAX_EXACT else item

    return map_json(value, whole)


def canonical_json(value: Any) -> bytes:
    """Return the JSON of RFC 8785; an integer that a double cannot hold is written as a string of its digits."""
    kinds: set[type] = set()

    def exact(item: Any) -> Any:
        kinds.add(type(item))
        return str(item) if isinstance(item, int) and abs(item) > MAX_EXACT else item

    ordered = map_json(value, exact)
    if float not in kinds:  # then Python's own encoder writes the same, twenty times as fast
        return json.dumps(ordered, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    import rfc8785

    return rfc8785.dumps(ordered)


def vector_bytes(vector: Sequence[float]) -> bytes:
    """Return the values as 32-bit floats, little-endian."""
    return pack(f"<{len(vector)}f", *vector)


def hash_text(text: str) -> str:
    """Return the base64 of the SHA-256 of the UTF-8 bytes."""
    return digest(text.encode())


def hash_tenant(tenant: str, salt: bytes, point: str) -> str:
    """Return the hash of a chunk's tenant; each chunk has another, so that equal tenants do not show."""
    return digest(salt + f"{point}\n{tenant}".encode())


def shorten(entry: bytes) -> bytes:
    """Return the entry without its vector and its payload, as most receipts have it."""
    return _REST.sub(b"", entry)


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
            "payload": digest(canonical_json(point.payload)),
            "point": point_id,
            "text": None if text is None else hash_text(text),
            "v": 1,
            "vector": None if point.vector is None else digest(vector_bytes(point.vector)),
        }
        if self.tenant_field is not None:
            tenant = self.payloads.stated(self.tenant_field, point.payload)
            entry["tenant"] = None if tenant is None else hash_tenant(str(tenant), self.salt, point_id)
        return canonical_json(entry)
