"""Any pipeline's payload → a chunk.

A deployment points at a collection that already exists, so each canonical field is looked for under
the names that pipelines use. First match wins; a dot reaches into an object, and into a JSON *string*
by parsing it; every name is also tried under `metadata.` and `meta.`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from chunkproof.clients.ports import Point
from chunkproof.errors import CorruptChunkError
from chunkproof.models import ChunkMetadata
from chunkproof.models.json import has_lone_surrogate
from chunkproof.models.validation import MAX_ID

NAMES: Mapping[str, tuple[str, ...]] = {
    # LlamaIndex's own first: it spreads a node's metadata over the payload, `document` and the like included.
    "text": ("_node_content.text", "text", "content", "chunk_text", "page_content", "document"),
    "url": ("url", "source_url", "source", "file_path"),
    "document_id": ("document_id", "doc_id", "ref_doc_id", "source_id"),
    "document_title": ("document_title", "page_title", "title"),
    "position": ("position", "chunk_index", "split_id"),
    "timestamp": ("timestamp", "created_at", "ingested_at"),
    "section_heading": ("section_heading",),
    "section_headers": ("section_headers",),
    "breadcrumb": ("breadcrumb",),
    "total_chunks": ("total_chunks",),
    "tokens": ("tokens", "chunk_size"),
    "content_type": ("content_type",),
    "has_code": ("has_code",),
    "content_hash": ("content_hash",),
    "embedding_model": ("embedding_model",),
}
ID_PATHS = ("chunk_id", "id", "metadata.chunk_id")
_PREFIXES = ("", "metadata.", "meta.")
MAX_SHAPES = 1_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stored chunk: its text as it is, and what the payload says of it."""

    text: str
    metadata: ChunkMetadata
    id_path: str | None


class PayloadMap:
    """Where each canonical field may be; rows of the deployment's `PAYLOAD_MAP` come instead of the built-in ones."""

    def __init__(self, overrides: Mapping[str, tuple[str, ...]] | None = None) -> None:
        own = dict(overrides or {})
        self.id_paths = own.pop("chunk_id", ID_PATHS)
        self._paths: dict[str, tuple[str, ...]] = {
            field: own.get(field) or tuple(prefix + name for prefix in _PREFIXES for name in names)
            for field, names in NAMES.items()
        }
        self._shapes: dict[tuple[str, ...], Mapping[str, tuple[str, ...]]] = {}

    def chunk_of(self, point: Point) -> Chunk:
        """The chunk in this point, or `CorruptChunkError` naming the field that is missing."""
        text = self.text_of(point)
        path, own_id = self._own_id(point.payload)
        leading = self._leading(point.payload)
        values = {
            field: _first(paths, point.payload)[1] for field, paths in leading.items() if field != "text"
        }
        if values.get("document_id") is None:
            values["document_id"] = values.get("url")
        if values.get("section_headers") is None:
            values["section_headers"] = []
        try:
            return Chunk(text, ChunkMetadata(chunk_id=own_id or str(point.id), **values), path)
        except ValidationError:  # nested beyond what JSON libraries read
            raise CorruptChunkError(f"Chunk {self.id_of(point)} has metadata nested too deeply") from None

    def text_of(self, point: Point) -> str:
        """The stored text, which may be empty; `CorruptChunkError` when there is none."""
        text = self.value("text", point.payload)
        if not isinstance(text, str) or has_lone_surrogate(text):
            raise self._unreadable(point)
        return text

    def utf8_of(self, point: Point) -> bytes:
        """The stored text as the bytes that are compared; encoded once, which is a third of an audit's comparison."""
        text = self.value("text", point.payload)
        try:
            if isinstance(text, str):
                return text.encode()
        except UnicodeEncodeError:
            pass
        raise self._unreadable(point)

    def _unreadable(self, point: Point) -> CorruptChunkError:
        return CorruptChunkError(f"Chunk {self.id_of(point)} has no readable text")

    def embedded_text(self, point: Point) -> str:
        """The text that the pipeline gave to its embedder, which is not always the stored one.

        LlamaIndex puts a node's metadata before its text, by templates that it stores with the node.
        """
        text = self.text_of(point)
        node = _parsed(point.payload.get("_node_content"))
        if not isinstance(node, Mapping) or not isinstance(node.get("metadata"), Mapping):
            return text
        excluded = node.get("excluded_embed_metadata_keys")
        hidden = excluded if isinstance(excluded, list) else []
        line, separator = (
            node.get("metadata_template", "{key}: {value}"),
            node.get("metadata_separator", "\n"),
        )
        lines = [
            str(line).replace("{key}", str(key)).replace("{value}", str(value))
            for key, value in node["metadata"].items()
            if key not in hidden
        ]
        template = str(node.get("text_template") or "{metadata_str}\n\n{content}")
        filled = template.replace("{metadata_str}", str(separator).join(lines)).replace("{content}", text)
        return filled if lines else text

    def id_of(self, point: Point) -> str:
        """The payload's own string id, else the point's."""
        return self._own_id(point.payload)[1] or str(point.id)

    def id_path(self, payload: Mapping[str, Any]) -> str | None:
        """Where the payload keeps an id of its own that a store can look up."""
        return self._own_id(payload)[0]

    def _own_id(self, payload: Mapping[str, Any]) -> tuple[str | None, str | None]:
        for path in self.id_paths:
            value = _reached(path, payload) if "." in path else payload.get(path)
            if (
                isinstance(value, str)
                and value.strip()
                and len(value) <= MAX_ID
                and not has_lone_surrogate(value)
            ):
                return path, value
        return None, None

    def id_paths_in(self, payloads: Iterable[Mapping[str, Any]]) -> list[str]:
        """The paths that these payloads keep their ids under, in the order of their rank."""
        used = {self.id_path(payload) for payload in payloads}
        return [path for path in self.id_paths if path in used]

    def value(self, field: str, payload: Mapping[str, Any]) -> Any:
        """The field's value, None when no path leads to one."""
        return self._found(field, payload)[1]

    def path_in(self, field: str, payload: Mapping[str, Any]) -> str | None:
        """The path that leads to the field in this payload; to an empty text only if there is no other."""
        return self._found(field, payload)[0]

    def _found(self, field: str, payload: Mapping[str, Any]) -> tuple[str | None, Any]:
        return _first(self._leading(payload).get(field, ()), payload, or_empty=field == "text")

    def _leading(self, payload: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
        """The paths that can lead somewhere in this payload. A collection's payloads mostly have the same fields."""
        names = tuple(payload)
        known = self._shapes.get(names)
        if known is None:
            leading = {
                field: tuple(path for path in paths if path in payload or path.partition(".")[0] in payload)
                for field, paths in self._paths.items()
            }
            known = {field: paths for field, paths in leading.items() if paths}
            if len(self._shapes) < MAX_SHAPES:
                self._shapes[names] = known
        return known

    def paths_in(self, field: str, payloads: Iterable[Mapping[str, Any]]) -> list[str]:
        """The paths that lead to the field in any of these payloads, in the order of their rank."""
        used = {self.path_in(field, payload) for payload in payloads}
        return [path for path in self._paths[field] if path in used]

    def stated(self, name: str, payload: Mapping[str, Any]) -> Any:
        """What the payload says under this name: a canonical field, or else a path of its own."""
        return self.value(name, payload) if self.is_canonical(name) else _at(name, payload)

    def source_of(self, payload: Mapping[str, Any]) -> str | None:
        """The document that a chunk says it is from: its URL, else the document's id."""
        found = (self.value(field, payload) for field in ("url", "document_id"))
        return next((value for value in found if isinstance(value, str) and value), None)

    def usual_path(self, field: str, payloads: Sequence[Mapping[str, Any]]) -> str | None:
        """The path that most of these payloads keep the field under."""
        used = [path for payload in payloads if (path := self.path_in(field, payload))]
        return max(used, key=used.count, default=None)

    def is_canonical(self, name: str) -> bool:
        """Whether a filter's field name means the mapped payload field."""
        return name in self._paths

    def first_path(self, field: str) -> str:
        """Where the field is looked for first."""
        return self._paths[field][0]

    @property
    def fields(self) -> tuple[str, ...]:
        """All canonical fields but the id."""
        return tuple(self._paths)


def lies_in_json_string(path: str, payload: Mapping[str, Any]) -> bool:
    """Whether the path leads through a JSON string, where the store cannot follow it."""
    steps = path.split(".")
    return any(isinstance(_at(".".join(steps[:n]), payload), str) for n in range(1, len(steps)))


def flatten(payload: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each field of a payload, those one level down under `metadata` and the like by their dotted path."""
    for name, value in payload.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", deeper) for inner, deeper in value.items())
        else:
            yield name, value


def _first(
    paths: Sequence[str], payload: Mapping[str, Any], *, or_empty: bool = False
) -> tuple[str | None, Any]:
    """The first of these paths that leads to a value, and the value; with `or_empty`, to "" only if to no other."""
    empty: tuple[str | None, Any] = (None, None)
    for path in paths:
        value = _at(path, payload)
        if value is None:
            continue
        if not or_empty or value != "":
            return path, value
        empty = (path, value) if empty[0] is None else empty
    return empty


def _at(path: str, payload: Mapping[str, Any]) -> Any:
    if path in payload:  # a flat key may itself contain dots
        return payload[path]
    if "." not in path:
        return None
    value: Any = payload
    for step in path.split("."):
        if isinstance(value, str):
            value = _parsed(value)
        if not isinstance(value, Mapping) or step not in value:
            return None
        value = value[step]
    return value


def _reached(path: str, payload: Mapping[str, Any]) -> Any:
    """The value at a path as a store follows it: through objects only."""
    value: Any = payload
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _parsed(text: Any) -> Any:
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        return None
    try:
        parsed = json.loads(text)
        # A string escaped inside a string can hold what no answer can carry.
        json.dumps(parsed, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        return None
    return parsed
