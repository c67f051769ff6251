"""The entry of a chunk in a seal: canonical bytes that commit to its text, its vector and its payload."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from struct import pack
from typing import Any
from uuid import UUID

from chunkproof.collection.payload_map import PayloadMap
from chunkproof.seals.notes import decode, digest, encode
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


def exact(item: Any) -> Any:
    """Return 1 for 1.0, which are the same in JSON, and the digits of an integer that a double cannot hold."""
    if type(item) is int and abs(item) > MAX_EXACT:
        return str(item)
    return int(item) if type(item) is float and item.is_integer() and abs(item) <= MAX_EXACT else item


def canonical_json(value: Any) -> bytes:
    """Return the JSON of RFC 8785, with integers as `exact` returns them."""
    kinds: set[type] = set()

    def see(item: Any) -> Any:
        kinds.add(type(item := exact(item)))
        return item

    ordered = map_json(value, see)
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
    return digest(salt + (point + "\n" + tenant).encode())


def shorten(entry: bytes) -> bytes:
    """Return the entry without its vector and its payload, as most receipts have it."""
    return _REST.sub(b"", entry)


def write_id(text: str) -> str:
    """Return an id as a receipt has it: a UUID is `~` and its base64 without `==`; another `~` in front is doubled."""
    with suppress(ValueError):
        if str(found := UUID(text)) == text:
            return "~" + encode(found.bytes)[:22]
    return "~" + text if text.startswith("~") else text


def read_id(text: str) -> str:
    """Return the id that `write_id` has written."""
    if text.startswith("~~") or not text.startswith("~"):
        return text.removeprefix("~")
    return str(UUID(bytes=decode(text[1:] + "==")))


def write_row(leaf: int | None, score: float, entry: Mapping[str, Any], tenant: Mapping[str, str] | None) -> list[Any]:
    """Return a result as a receipt has it, without what `read_row` knows."""
    row: list[Any] = [leaf, repr(score + 0.0), write_id(entry["point"])]
    if leaf is not None:
        row += [None if entry["chunk"] == entry["point"] else write_id(entry["chunk"]), entry["text"]]
        known = read_row(row, tenant)["entry"].items()
        row += [others] if (others := dict(field for field in entry.items() if field not in known)) else []
    return row


def read_row(row: Any, tenant: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return leaf, score and entry of a result in a receipt; an entry has the receipt's tenant, if it names none."""
    leaf, score, short, *rest = row if isinstance(row, list) else []
    point, entry = read_id(short), dict[str, Any]()
    if rest:
        chunk, text, others = rest if len(rest) == 3 else (*rest, {})
        own = {} if tenant is None else {"tenant": hash_tenant(tenant["name"], decode(tenant["salt"]), point)}
        entry = {**own, **others, "v": 1, "chunk": point if chunk is None else read_id(chunk), "text": text}
    return {"leaf": leaf, "score": score, "entry": {**entry, "point": point}}


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
