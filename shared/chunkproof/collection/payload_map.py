"""Read chunks from the payloads of any pipeline.

A deployment points at a collection that already exists, so each canonical field is looked for under
the names that pipelines use. First match wins; a dot reaches into an object, and into a JSON *string*
by parsing it; `blocks[].text` joins the texts of a list by line breaks, `blocks[0].text` is the first one's; every
name is also tried under `metadata.`, `meta.` and `meta_data.`.
"""

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from chunkproof.base.errors import CorruptChunkError
from chunkproof.contract import ChunkMetadata
from chunkproof.contract.model import MAX_ID, has_lone_surrogate
from chunkproof.contract.response import Integrity
from chunkproof.stores.store_port import Point

NAMES: Mapping[str, tuple[str, ...]] = {
    # LlamaIndex's own first: it spreads a node's metadata over the payload, `document` and the like included.
    # mem0's `data` last: in other pipelines it may be anything.
    "text": (
        *("_node_content.text", "text", "content", "chunk_text", "page_content", "document"),
        *("doc_content", "text_segment", "Text", "_text", "codeChunk", "_content", "payload.text"),
        *("pageContent", "chunkText", "data"),
    ),
    "url": (
        *("url", "source_url", "source", "file_path", "metadata-data_source-url", "payload.url"),
        *("sourceUrl", "filePath", "file_name", "filename", "fileName", "metadata-filename", "payload.file"),
    ),
    "document_id": ("document_id", "doc_id", "ref_doc_id", "source_id", "full_doc_id", "documentId", "docId"),
    "document_title": ("document_title", "page_title", "title", "documentTitle"),
    "position": ("position", "chunk_index", "split_id", "chunkIndex"),
    "timestamp": ("timestamp", "created_at", "ingested_at", "createdAt"),
    "section_heading": ("section_heading",),
    "section_headers": ("section_headers",),
    "breadcrumb": ("breadcrumb",),
    "total_chunks": ("total_chunks",),
    "tokens": ("tokens", "chunk_size"),
    "content_type": ("content_type",),
    "has_code": ("has_code",),
    "content_hash": ("content_hash", "hash", "doc_hash", "contentHash"),
    "embedding_model": ("embedding_model",),
}
ID_PATHS = ("chunk_id", "id", "metadata.chunk_id")
_PREFIXES = ("", "metadata.", "meta.", "meta_data.")
MAX_SHAPES = 1_000
# What loaders write where they know no source: LangChain.js stores "blob" for every uploaded file.
SAYS_NOTHING = frozenset(
    ("blob", "unknown", "none", "null", "undefined", "nan", "n/a", "na", "-", "string", "text", "file", "memory")
)


@dataclass(slots=True)
class Chunk:
    """A stored chunk: its unchanged text, and the metadata of its payload."""

    text: str
    metadata: ChunkMetadata
    id_path: str | None

    @property
    def hashes(self) -> tuple[str | None, str | None]:
        """The digits of its content_hash and of its own id, None where they are no hashes."""
        own_id = None if self.id_path is None else self.metadata.chunk_id
        return hash_digits(self.metadata.content_hash), hash_digits(own_id)


class PayloadMap:
    """The paths of each canonical field; rows of the deployment's `PAYLOAD_MAP` replace the built-in ones."""

    def __init__(self, overrides: Mapping[str, tuple[str, ...]] | None = None) -> None:
        own = dict(overrides or {})
        self.id_paths = own.pop("chunk_id", ID_PATHS)
        self._paths: dict[str, tuple[str, ...]] = {
            field: own.get(field) or tuple(prefix + name for prefix in _PREFIXES for name in names)
            for field, names in NAMES.items()
        }
        self.are_ids_configured = "chunk_id" in (overrides or {})
        self.shared_paths: tuple[str, ...] = ()
        self.repeated_ids: frozenset[str] = frozenset()
        self._shapes: dict[tuple[str, ...], Mapping[str, tuple[str, ...]]] = {}

    def without_shared_ids(self, paths: Sequence[str], values: Iterable[str]) -> "PayloadMap":
        """Return the map of a collection in which these paths, and these values, are ids that several points share."""
        own = copy(self)
        own.id_paths = tuple(path for path in self.id_paths if path not in paths)
        own.shared_paths = tuple(paths)
        own.repeated_ids = frozenset(values)
        return own

    def chunk_of(self, point: Point) -> Chunk:
        """Read the chunk of a point; `CorruptChunkError` when it has no readable text."""
        payload = point.payload
        # Most fields are at their first path, and need no closer look.
        values = {
            field: value
            if (value := payload.get(paths[0])) and field not in ("text", "url")
            else first_value(field, paths, payload)[1]
            for field, paths in self.leading(tuple(payload)).items()
        }
        text = values.pop("text", None)
        if not isinstance(text, str) or has_lone_surrogate(text):
            raise self.unreadable(point)
        path, own_id = self._own_id(point.payload)
        if values.get("document_id") is None:
            shared = self.shared_path(point.payload)  # the id that several points share is most likely the document's
            values["document_id"] = values.get("url") if shared is None else id_at(shared, point.payload)
        if values.get("section_headers") is None:
            values["section_headers"] = []
        try:
            return Chunk(text, ChunkMetadata(chunk_id=own_id or str(point.id), **values), path)
        except ValidationError:  # nested beyond what JSON libraries read
            raise CorruptChunkError(f"Chunk {self.id_of(point)} has metadata nested too deeply") from None

    def text_of(self, point: Point) -> str:
        """Return the stored text, which may be empty; `CorruptChunkError` when there is none."""
        text = self.find_text(point)
        if text is None:
            raise self.unreadable(point)
        return text

    def find_text(self, point: Point) -> str | None:
        """Return the stored text, which may be empty; None when there is none that can be read."""
        text = self.value("text", point.payload)
        return text if isinstance(text, str) and not has_lone_surrogate(text) else None

    def unreadable(self, point: Point) -> CorruptChunkError:
        """Return the error for a point without a text that can be read."""
        return CorruptChunkError(f"Chunk {self.id_of(point)} has no readable text")

    def embedded_text(self, point: Point) -> str:
        """Return the text that the pipeline embedded, which is not always the stored one.

        LlamaIndex puts a node's metadata before its text, using templates that it stores with the node.
        """
        text = self.text_of(point)
        node = parse_json(point.payload.get("_node_content"))
        if not isinstance(node, Mapping) or not isinstance(node.get("metadata"), Mapping):
            return text
        excluded = node.get("excluded_embed_metadata_keys")
        hidden = excluded if isinstance(excluded, list) else []
        line, separator = (node.get("metadata_template", "{key}: {value}"), node.get("metadata_separator", "\n"))
        lines = [
            str(line).replace("{key}", str(key)).replace("{value}", str(value))
            for key, value in node["metadata"].items()
            if key not in hidden
        ]
        template = str(node.get("text_template") or "{metadata_str}\n\n{content}")
        filled = template.replace("{metadata_str}", str(separator).join(lines)).replace("{content}", text)
        return filled if lines else text

    def id_of(self, point: Point) -> str:
        """Return the payload's own string id, else the point's.

        Only the map of a collection (`Services.payloads_of`) knows which ids several points share.
        """
        return self._own_id(point.payload)[1] or str(point.id)

    def id_path(self, payload: Mapping[str, Any]) -> str | None:
        """Return the path of the payload's own id, if it has one that a store can look up."""
        return self._own_id(payload)[0]

    def _own_id(self, payload: Mapping[str, Any]) -> tuple[str | None, str | None]:
        for path in self.id_paths:
            value = id_at(path, payload)
            if value is not None and not (self.repeated_ids and self._is_repeated(value)):
                return path, value
        return None, None

    def _is_repeated(self, value: str) -> bool:
        if value in self.repeated_ids:
            return True
        try:  # a store counts a UUID in its canonical form
            return str(UUID(value)) in self.repeated_ids
        except ValueError:
            return False

    def shared_path(self, payload: Mapping[str, Any]) -> str | None:
        """Return the path of the id that this point shares with others, if it has one."""
        for path in self.shared_paths:
            if id_at(path, payload) is not None:
                return path
        for path in self.id_paths if self.repeated_ids else ():
            if (value := id_at(path, payload)) is not None and self._is_repeated(value):
                return path
        return None

    def id_paths_in(self, payloads: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the paths under which these payloads keep their ids, in order of precedence."""
        used = {self.id_path(payload) for payload in payloads}
        return [path for path in self.id_paths if path in used]

    def value(self, field: str, payload: Mapping[str, Any]) -> Any:
        """Return the field's value, None when the payload has none."""
        return self._found(field, payload)[1]

    def path_in(self, field: str, payload: Mapping[str, Any]) -> str | None:
        """Return the path of the field in this payload; that of an empty text only if there is no other."""
        return self._found(field, payload)[0]

    def _found(self, field: str, payload: Mapping[str, Any]) -> tuple[str | None, Any]:
        return first_value(field, self.leading(tuple(payload)).get(field, ()), payload)

    def leading(self, names: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
        """Return the paths that can exist in a payload with these top-level names, which most of a collection have."""
        known = self._shapes.get(names)
        if known is None:
            leading = {field: reachable(paths, names) for field, paths in self._paths.items()}
            known = {field: paths for field, paths in leading.items() if paths}
            if len(self._shapes) < MAX_SHAPES:
                self._shapes[names] = known
        return known

    def paths_in(self, field: str, payloads: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the paths of the field in any of these payloads, in order of precedence."""
        used = {self.path_in(field, payload) for payload in payloads}
        return [path for path in self._paths[field] if path in used]

    @property
    def text_paths(self) -> tuple[str, ...]:
        """Every path that a text may be at, those of other pipelines too."""
        usual = (prefix + name for prefix in _PREFIXES for name in NAMES["text"])
        return tuple(dict.fromkeys((*self._paths["text"], *usual)))

    @staticmethod
    def value_at(path: str, payload: Mapping[str, Any]) -> Any:
        """Return the value at a path of the payload."""
        return _at(path, payload)

    def stated(self, name: str, payload: Mapping[str, Any]) -> Any:
        """Return the value of a canonical field, or at a path of the payload."""
        return self.value(name, payload) if self.is_canonical(name) else _at(name, payload)

    def source_of(self, payload: Mapping[str, Any]) -> str | None:
        """Return the chunk's document: its URL, else the document's id."""
        found = (self.value(field, payload) for field in ("url", "document_id"))
        return next((value for value in found if isinstance(value, str) and value), None)

    def usual_path(self, field: str, payloads: Sequence[Mapping[str, Any]]) -> str | None:
        """Return the path under which most of these payloads keep the field."""
        used = [path for payload in payloads if (path := self.path_in(field, payload))]
        return max(used, key=used.count, default=None)

    def is_canonical(self, name: str) -> bool:
        """Whether the name is a canonical field, which is mapped to a payload path."""
        return name in self._paths

    def first_path(self, field: str) -> str:
        """Return the path where the field is looked for first."""
        return self._paths[field][0]

    @property
    def fields(self) -> tuple[str, ...]:
        """All canonical fields but the id."""
        return tuple(self._paths)


def reachable(paths: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    """Return those of the paths that can exist in a payload with these top-level names."""
    starts = tuple(name + mark for name in names for mark in ".[")
    return tuple(path for path in paths if path in names or path.startswith(starts))


def lies_in_json_string(path: str, payload: Mapping[str, Any]) -> bool:
    """Whether the path leads into a JSON string, where the store cannot filter."""
    steps = path.split(".")
    return any(isinstance(_at(".".join(steps[:n]), payload), str) for n in range(1, len(steps)))


def flatten(payload: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """List the fields of a payload; those inside an object by their dotted path."""
    for name, value in payload.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", deeper) for inner, deeper in value.items())
        else:
            yield name, value


def id_at(path: str, payload: Mapping[str, Any]) -> str | None:
    """Return the text at this path if it can be an id that a store looks up."""
    value = _reached(path, payload) if "." in path else payload.get(path)
    usable = isinstance(value, str) and value.strip() and len(value) <= MAX_ID and not has_lone_surrogate(value)
    return str(value) if usable else None


def first_value(field: str, paths: Sequence[str], payload: Mapping[str, Any]) -> tuple[str | None, Any]:
    """Return the first path with a value, and the value.

    An empty text counts only as a last resort, and a URL that says nothing does not count.
    """
    empty: tuple[str | None, Any] = (None, None)
    for path in paths:
        value = payload[path] if path in payload else _at(path, payload)
        if value is None or (field == "url" and isinstance(value, str) and value.strip().lower() in SAYS_NOTHING):
            continue
        if field == "text" and not isinstance(value, str):  # a list or an object: another field may have the text
            continue
        if field != "text" or value != "":
            return path, value
        empty = (path, value) if empty[0] is None else empty
    return empty


def _at(path: str, payload: Mapping[str, Any]) -> Any:
    if path in payload:  # a flat key may itself contain dots
        return payload[path]
    if "." not in path and not path.endswith("]"):
        return None
    steps = path.split(".")
    for number in range(1, len(steps) + 1):
        name, rest = ".".join(steps[:number]), ".".join(steps[number:])
        list_name, bracket, index = name.rpartition("[")
        value = None
        if rest and name in payload:
            inner = parse_json(payload[name]) if isinstance(payload[name], str) else payload[name]
            value = _at(rest, inner) if isinstance(inner, Mapping) else None
        elif bracket and list_name in payload:
            value = _join(payload[list_name], rest, index.removesuffix("]"))
        if value is not None:
            return value
    return None


def _join(items: Any, path: str, index: str = "") -> str | None:
    """Join the texts of a list (or of one item) and of the lists in it, or those at a path of its objects, if any."""
    items = parse_json(items) if isinstance(items, str) else items
    chosen = slice(int(index[:6]), int(index[:6]) + 1) if index.isdecimal() else slice(0 if index else None)
    texts: list[str] = []
    for item in items[chosen] if isinstance(items, list) else ():
        inner = _join(item, path) if isinstance(item, list) else _at(path, item) if isinstance(item, Mapping) else None
        text = item if inner is None and not path else inner
        texts += [text] if isinstance(text, str) else []
    return "\n".join(texts) if texts else None


def _reached(path: str, payload: Mapping[str, Any]) -> Any:
    """Return the value at a path as a store reads it: through objects only."""
    value: Any = payload
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def parse_json(text: Any) -> Any:
    """Parse a string that holds a JSON object or list; None for anything else."""
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return None
    try:
        parsed = json.loads(text)
        # An escape inside the string can be a lone surrogate, which no response can carry.
        json.dumps(parsed, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        return None
    return parsed


# Fewer digits than this could agree by chance.
MIN_DIGITS = 16
# One text that fits only after a change was damaged; several show what a pipeline does before it hashes texts.
MIN_SHOWN = 2
DIGEST_DIGITS = {"SHA-256": 64, "SHA-1": 40, "MD5": 32, "SHA-512": 128}
_HASHERS = {name: getattr(hashlib, name.replace("-", "").lower()) for name in DIGEST_DIGITS}


def _fill(form: str, field: str, chunk: Chunk) -> str | None:
    """Put a field and the text of a chunk into a form; None where it lacks the field."""
    value = getattr(chunk.metadata, field)
    return form.format(value, chunk.text) if isinstance(value, str) else None


# What a hash may be made of.
_EXACT: Mapping[str, Callable[[Chunk], str | None]] = {
    "text": lambda chunk: chunk.text,
    "url and text": partial(_fill, "{}{}", "url"),
    'text and "None"': lambda chunk: chunk.text + "None",  # Dify
    **{
        repr(form.format(field, "text")): partial(_fill, form, field)
        for separator in ("", " ", "\n", "\n\n", ": ", " - ", "|", "||", "\t", "\0")
        for form in (f"{{0}}{separator}{{1}}", f"{{1}}{separator}{{0}}")
        for field in ("document_title", "url")
    },
}
STRIPPED = "text without surrounding whitespace"
# Normalizing such a run may take quadratic time.
_LONG_RUN = re.compile(r"[^\x00-\x7f]{100}")
# A text that was damaged in this way after it was hashed has the same hash.
_LOOSE: dict[str, Callable[[str], str]] = {
    "text and a newline": lambda text: text + "\n",
    STRIPPED: str.strip,
    "text with single spaces": lambda text: " ".join(text.split()),
    "text in lower case": lambda text: text.strip().lower(),
    "text in lower case with single spaces": lambda text: " ".join(text.lower().split()),
    "text with line feeds": lambda text: text.replace("\r\n", "\n"),
    "text in NFC": lambda text: text if _LONG_RUN.search(text) else unicodedata.normalize("NFC", text),
}
_LOOSE |= {"text in NFC without surrounding whitespace": lambda text: _LOOSE["text in NFC"](text.strip())}
_HASH = re.compile(r"(?:(?:sha-?256|sha-?1|sha-?512|md5)[:=-])?([0-9a-f]{16,128})", re.I)


@dataclass(frozen=True, slots=True)
class HashKind:
    """An algorithm, and what of a chunk it was computed from."""

    algorithm: str
    form: str

    def __str__(self) -> str:
        return f"{self.algorithm} of {self.form}"

    def fits(self, digits: str, chunk: Chunk) -> bool:
        """Whether the digits are the beginning of this hash, or all of it."""
        content = _LOOSE[self.form](chunk.text) if self.form in _LOOSE else _EXACT[self.form](chunk)
        if content is None:
            return False
        digest: str = _HASHERS[self.algorithm](content.encode(), usedforsecurity=False).hexdigest()
        return digest.startswith(digits)


@dataclass(frozen=True, slots=True)
class HashKinds:
    """The hashes of one field: the usual kind, and what shows that a text which does not fit was changed.

    Several pipelines may have written to a collection, each with a kind of its own; `is_usual` if most hashes fit.
    """

    usual: HashKind
    # How many digits those have that fit.
    lengths: frozenset[int]
    is_usual: bool
    # Ways to change a text before it is hashed: those of this pipeline, and those that it does not have.
    accepted: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    # Whether a hash is surely that of one chunk, and not of a source that may have several.
    is_per_chunk: bool = True

    def __str__(self) -> str:
        return str(self.usual)

    def check(self, digits: str, chunk: "Chunk") -> bool | None:
        """Whether the digits are a hash of the chunk, of any kind; None if they can be one of something else."""
        if self.usual.fits(digits, chunk):
            return True
        forms = {kind.form for kind in _find_kinds(digits, chunk)}
        if forms & (_EXACT.keys() | self.accepted):
            return True
        return False if len(digits) in self.lengths and self.is_usual and forms <= self.refused else None


@dataclass(frozen=True, slots=True)
class Hashes:
    """What `content_hash` and the chunk ids of a collection are hashes of; None when they prove nothing.

    `is_per_source` when chunks with different texts have the same `content_hash`; `sources` are hashes like that.
    """

    content_hash: HashKinds | None = None
    chunk_id: HashKinds | None = None
    is_per_source: bool = False
    sources: frozenset[str] = frozenset()

    def integrity_of(self, chunk: Chunk) -> Integrity:
        """Say whether the chunk has the text, and url, that its hashes were made from."""
        recorded = zip((self.content_hash, self.chunk_id), chunk.hashes, strict=True)
        found = [kinds.check(d, chunk) for kinds, d in recorded if kinds and d and d not in self.sources]
        return "changed" if False in found else "verified" if True in found else "unknown"


def hash_digits(stored: object) -> str | None:
    """Return the hexadecimal digits of a hash, None when the value is none."""
    if isinstance(stored, str) and len(stored) == 64:  # most are: ten times as fast as the pattern
        with suppress(ValueError):
            if len(bytes.fromhex(stored)) == 32:
                return stored.lower()
    found = _HASH.fullmatch(stored) if isinstance(stored, str) else None
    return found[1].lower() if found else None


def recognise_hashes(payload_map: PayloadMap, payloads: Sequence[Mapping[str, Any]], *, are_all: bool) -> Hashes:
    """Find the kinds of hashes that fit these payloads.

    Unless most of them fit, a text is not called changed because another hash does not: a hash of the whole source
    fits sources of one chunk. If these are not all payloads, the other chunks of a source may not be among them.
    """
    chunks = []
    for payload in payloads:
        with suppress(CorruptChunkError):
            chunks.append(payload_map.chunk_of(Point(0, payload)))
    hashed, ids = ([(c.hashes[at], c) for c in chunks if c.text and c.hashes[at]] for at in (0, 1))
    # A hash of one of several texts that share it is not their source's: the others were changed.
    sharing: dict[Any, dict[str, Chunk]] = {}
    for digits, chunk in hashed:
        sharing.setdefault(digits, {})[chunk.text] = chunk
    is_per_source = any(
        len(texts) > 1 and not any(_find_kinds(digits, chunk) for chunk in texts.values())
        for digits, texts in sharing.items()
    )
    content_hash = None if is_per_source else _recognise(hashed, are_all=are_all)
    return Hashes(content_hash, _recognise(ids, are_all=are_all), is_per_source)


def _recognise(hashed: Sequence[tuple[Any, Chunk]], *, are_all: bool) -> HashKinds | None:
    found = [(len(digits), chunk, _find_kinds(digits, chunk)) for digits, chunk in hashed]
    exact = [chunk for _, chunk, kinds in found if kinds and kinds[0].form in _EXACT]
    loose = Counter(kind.form for *_, kinds in found if kinds and kinds[0].form in _LOOSE for kind in kinds)
    # Several pipelines may write to one collection: some hash the text as it is, others what they make of it.
    shown = {form for form, count in loose.items() if count >= MIN_SHOWN}
    refused = {form for form, change in _LOOSE.items() if any(change(c.text) != c.text for c in exact)} - shown
    accepted = {form for form in loose.keys() - refused if 2 * loose[form] > len(found)}
    if are_all:  # that few texts have whitespace around them is usual
        refused |= {form for form in _LOOSE.keys() - accepted - {STRIPPED} if loose[form] < MIN_SHOWN}
    else:  # points that were not read may show it
        refused = set()
    fitting = [
        (length, chunk, kind)
        for length, chunk, kinds in found
        for kind in kinds
        if kind.form in _EXACT or kind.form in accepted | shown
    ]
    if not fitting:
        return None
    kinds_seen = [kind for *_, kind in fitting]
    kinds_seen = [kind for kind in kinds_seen if kind.form in _EXACT or kind.form in accepted] or kinds_seen
    fit = {id(chunk): chunk for _, chunk, _ in fitting}.values()
    sources = Counter((c.metadata.url, c.metadata.document_id) for c in {c.text: c for c in fit}.values())
    del sources[None, None]
    return HashKinds(
        usual=max(kinds_seen, key=kinds_seen.count),
        lengths=frozenset(length for length, *_ in fitting),
        is_usual=len(fit) >= (0.5 if are_all else 0.9) * len(found),
        accepted=frozenset(accepted),
        refused=frozenset(refused),
        is_per_chunk=are_all or max(sources.values(), default=0) > 1,
    )


def _find_kinds(digits: str, chunk: Chunk) -> list[HashKind]:
    """Return the kind of hash that these digits are of a text; all that they can be, if not of the text as it is."""
    sizes = sorted(DIGEST_DIGITS.items(), key=lambda item: item[1] != len(digits))
    algorithms = [name for name, size in sizes if size >= len(digits)]

    def try_forms(forms: Iterable[str]) -> Iterator[HashKind]:
        kinds = (HashKind(algorithm, form) for form in forms for algorithm in algorithms)
        return (kind for kind in kinds if kind.fits(digits, chunk))

    return list(islice(try_forms(_EXACT), 1)) or list(try_forms(_LOOSE))
