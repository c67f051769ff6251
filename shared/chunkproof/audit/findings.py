"""Compare one expected chunk with one stored point."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from typing import Any, Literal, NamedTuple

from pydantic import Field, JsonValue

from chunkproof.audit.ledger import ExpectedChunk, Ledger, encode_id
from chunkproof.audit.manifest_file import Entry
from chunkproof.base.errors import NotConfiguredError
from chunkproof.collection.payload_map import NAMES, PayloadMap, first_value, flatten, parse_json, reachable
from chunkproof.collection.reader import Reader
from chunkproof.contract import Mismatch, Model
from chunkproof.contract.model import AS_STORED, display_name
from chunkproof.proof.integrity import compare, compare_with_hash
from chunkproof.stores.store_port import Point, PointId

MAX_VALUE_CHARS = 80
# Names that only the text of a chunk has: `document` and `data` may be anything.
TEXT_NAMES = tuple(name for name in NAMES["text"] if name not in ("document", "data"))
# A second text is one too many in a collection if so few of a sample have one, out of so many at least.
RARE, LEAST_SAMPLE = 0.1, 10
# Ids of LlamaIndex, beside the text of a node.
NODE_IDS = "id_", "relationships"
# The hash of an empty text, which a manifest has for a point without a text that can be read.
NO_TEXT = sha256(b"").digest()


class Kind(StrEnum):
    """The class of a chunk; the second group is about its vector, the third about two stored texts."""

    MATCH = "match"
    MISMATCH = "mismatch"
    MISSING = "missing"
    ORPHAN = "orphan"
    DUPLICATE = "duplicate"
    DUPLICATE_TEXT = "duplicate_text"
    METADATA_MISMATCH = "metadata_mismatch"
    UNVERIFIABLE = "unverifiable"

    VECTOR_OK = "vector_ok"
    STALE_VECTOR = "stale_vector"
    WRONG_MODEL = "wrong_model"
    WRONG_INPUT_TYPE = "wrong_input_type"
    TRUNCATED_INPUT = "truncated_input"
    UNEXPLAINED_VECTOR = "unexplained_vector"
    UNVERIFIABLE_VECTOR = "unverifiable_vector"

    NEAR_DUPLICATE = "near_duplicate"


VECTOR_KINDS = (
    Kind.VECTOR_OK,
    Kind.STALE_VECTOR,
    Kind.WRONG_MODEL,
    Kind.WRONG_INPUT_TYPE,
    Kind.TRUNCATED_INPUT,
    Kind.UNEXPLAINED_VECTOR,
    Kind.UNVERIFIABLE_VECTOR,
)
# Every chunk of the manifest is in exactly one of these classes.
CHUNK_KINDS = tuple(kind for kind in Kind if kind not in (Kind.ORPHAN, *VECTOR_KINDS, Kind.NEAR_DUPLICATE))
# Classes that only a scan of the whole collection can find.
SCAN_KINDS = (Kind.ORPHAN, Kind.DUPLICATE_TEXT)
FAULTS = tuple(kind for kind in Kind if kind not in (Kind.MATCH, Kind.VECTOR_OK))
# What an audit fails on by default: texts that are nearly the same may be meant.
FAILING = tuple(kind for kind in FAULTS if kind is not Kind.NEAR_DUPLICATE)


class MetadataDifference(Model):
    """A field that differs from the manifest; `stored` is null when the field is not stored."""

    model_config = AS_STORED

    field: str
    stored: JsonValue
    expected: JsonValue


class Finding(Model):
    """What is wrong with a chunk; `details` says it in a sentence."""

    chunk_id: str
    kind: Kind
    details: str
    point_ids: tuple[int | str, ...] = Field((), description="Where it is stored; two at most")
    source: str | None = Field(None, description="Its document: URL or id")
    mismatch: Mismatch | None = None
    metadata: tuple[MetadataDifference, ...] = ()
    cosine: float | None = Field(None, description="Stored vector against the text embedded again")
    matched_by: Literal["text", "nearest_text"] | None = Field(
        None, description="How the chunk was found; null for its id"
    )

    @classmethod
    def of_entry(
        cls, entry: Entry, kind: Kind, details: str, point_ids: Sequence[PointId] = (), source: str | None = None
    ) -> "Finding":
        """Make the finding of a chunk of the manifest, which names its source where no point does."""
        shown, source = tuple(point_ids)[:2], source or find_source(entry)
        return cls(chunk_id=entry.chunk_id, kind=kind, details=details, point_ids=shown, source=source)

    def add_to(self, ledger: Ledger) -> None:
        """Add the finding to the ledger of an audit."""
        sql = "INSERT INTO finding (chunk_id, kind, sort_key, content) VALUES (?, ?, ?, ?)"
        ledger.execute(sql, self.chunk_id, self.kind, encode_id(self.chunk_id), self.to_json())


def find_copies(sample: Sequence[Mapping[str, Any]], payloads: PayloadMap) -> tuple[str, ...]:
    """Return the fields that must have the same text as the mapped one, where a point has both.

    Most points of the sample that have both have the same in both, or hardly a point has a second text. Other
    pipelines keep two texts that differ, such as a summary, on purpose.
    """
    both = Counter[str]()
    equal = Counter[str]()
    for payload in sample:
        own, text = payloads.path_in("text", payload), payloads.value("text", payload)
        for path in payloads.text_paths:
            other = payloads.value_at(path, payload) if path != own else None
            if isinstance(other, str) and other.strip():
                both[path] += 1
                equal[path] += other == text
    copies = [path for path, count in both.items() if equal[path] > max(1, count / 2)]
    rare = RARE * len(sample) if len(sample) >= LEAST_SAMPLE else -1
    return tuple(dict.fromkeys((*copies, *(name for name in TEXT_NAMES if both[name] <= rare))))


class Judge:
    """Compares stored chunks with the manifest.

    Several fields of a payload must have the same text where a sample shows that they do (`find_copies`). With
    `all_metadata`, stored fields that the manifest does not name are differences too.
    """

    def __init__(self, payloads: PayloadMap, sample: Sequence[Mapping[str, Any]], *, all_metadata: bool) -> None:
        self._map, self._all_metadata = payloads, all_metadata
        copies, texts = find_copies(sample, payloads), payloads.text_paths

        def find_paths(names: tuple[str, ...]) -> tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]]:
            return payloads.leading(names), reachable(copies, names) if len(reachable(texts, names)) > 1 else ()

        # Of the fields, and of copies, by the names in a payload; a single text has no copies.
        self._find_paths = lru_cache(find_paths)

    def __call__(self, expected: ExpectedChunk, point: Point, *, explain: bool = True) -> Finding | None:
        """Say what is wrong with a stored chunk; None when it is the expected one, byte for byte.

        How texts differ takes milliseconds to find out: unless it is to be explained, a finding says only that they do.
        """
        payload = point.payload
        paths, copies = self._find_paths(tuple(payload))
        own, text = first_value("text", paths.get("text", ()), payload)
        try:
            stored: bytes = text.encode()
        except (AttributeError, UnicodeEncodeError):  # there is no text, or it has a lone surrogate
            if expected.hashed != NO_TEXT:
                return self._find(expected, point, Kind.UNVERIFIABLE, self._map.unreadable(point).message)
            stored = b""
        if expected.conflict:
            details = "The manifest has this chunk twice, with different content"
            return self._find(expected, point, Kind.DUPLICATE, details)
        if expected.hashed and sha256(stored).digest() != expected.hashed:
            if not explain:
                return self._find(expected, point, Kind.MISMATCH, "The text differs")
            text, original = stored.decode(), expected.entry.original_text
            difference = compare_with_hash(text, expected.sha256) if original is None else compare(text, original)
            if difference:
                return self._find(expected, point, Kind.MISMATCH, difference[1], mismatch=difference[0])
        differences: tuple[MetadataDifference, ...] = ()
        if self._all_metadata:
            differences = tuple(_compare_all(expected.metadata, list_metadata(payload, self._map)))
        elif expected.packed_metadata:
            differences = tuple(self._compare_metadata(expected.metadata, payload, paths))
        if differences:
            details = "; ".join(_describe(difference) for difference in differences)
            return self._find(expected, point, Kind.METADATA_MISMATCH, details, metadata=differences)
        for path in copies:
            other = self._map.value_at(path, payload)
            if own in (None, path) or not isinstance(other, str) or not other.strip():
                continue
            if other.encode("utf-8", "replace") != stored:
                details = f"{path} has another text than {own}, which searches return"
                differing = MetadataDifference(field=path, stored=other, expected=stored.decode())
                return self._find(expected, point, Kind.METADATA_MISMATCH, details, metadata=(differing,))
        return None

    def _compare_metadata(
        self, expected: Mapping[str, Any], payload: Mapping[str, Any], paths: Mapping[str, tuple[str, ...]]
    ) -> Iterator[MetadataDifference]:
        for name, value in expected.items():
            stored = first_value(name, paths[name], payload)[1] if name in paths else self._map.stated(name, payload)
            if not _is_same(stored, value) and not _is_same(list_metadata(payload, self._map).get(name), value):
                yield MetadataDifference(field=name, stored=stored, expected=value)

    def _find(self, expected: ExpectedChunk, point: Point, kind: Kind, details: str, **more: Any) -> Finding:
        source = self._map.source_of(point.payload)
        return Finding.of_entry(expected.entry, kind, details, (point.id,), source).model_copy(update=more)


def missing_finding(entry: Entry, details: str = "No point has this id") -> Finding:
    """The finding for a chunk that no point has."""
    return Finding.of_entry(entry, Kind.MISSING, details)


def duplicate_finding(entry: Entry, points: Mapping[PointId, Point], count: int, payloads: PayloadMap) -> Finding:
    """The finding for an id on several points, any of which a search may return."""
    texts = {payloads.find_text(point) for point in points.values()}
    details = f"{count} points have this id"
    if None not in texts:
        details += ", with the same text" if len(texts) == 1 else ", with different texts"
    in_order = sorted(points, key=str)
    return Finding.of_entry(entry, Kind.DUPLICATE, details, in_order, payloads.source_of(points[in_order[0]].payload))


def duplicate_text_finding(entry: Entry, point_ids: Sequence[PointId], copies: int, expected: int) -> Finding:
    """The finding for a text that more points have than the manifest has entries for."""
    times = "once" if expected == 1 else f"{expected:,} times"
    details = f"{copies:,} points have this text; the manifest has it {times}"
    return Finding.of_entry(entry, Kind.DUPLICATE_TEXT, details, point_ids)


class Stray(NamedTuple):
    """A stored point that no entry of the manifest has the id of."""

    point_id: PointId
    chunk_id: str
    source: str | None

    @classmethod
    def from_point(cls, point: Point, payloads: PayloadMap) -> "Stray":
        """Keep what findings need."""
        return cls(point.id, payloads.id_of(point), payloads.source_of(point.payload))

    def to_orphan(self, details: str = "Stored, but not in the manifest") -> Finding:
        """The finding for a stored point that is not in the manifest."""
        point_ids, source = (self.point_id,), self.source
        return Finding(chunk_id=self.chunk_id, kind=Kind.ORPHAN, details=details, point_ids=point_ids, source=source)


def find_source(entry: Entry) -> str | None:
    """Return the document that the manifest names, if it does."""
    values = ((entry.metadata or {}).get(name) for name in ("url", "document_id"))
    return next((value for value in values if isinstance(value, str) and value), None)


def list_metadata(payload: Mapping[str, Any], payloads: PayloadMap) -> dict[str, Any]:
    """Return every field of a payload but its text and its ids, those inside an object by their dotted path."""
    text = payloads.path_in("text", payload) or ""
    own = {text, *payloads.id_paths, *payloads.shared_paths}
    empty = ((name, value) for name, value in payload.items() if value == {})
    fields = ((n, value) for n, value in chain(flatten(payload), empty) if value is not None and n not in own)
    return {
        name: _leave_out(value, text[len(name) :]) if text.startswith((f"{name}.", f"{name}[")) else value
        for name, value in fields
    }


def _leave_out(value: Any, path: str) -> Any:
    """Return what else is in a value that has the text at this path; a JSON string is read."""
    value = parse_json(value) or value
    if isinstance(value, list):
        return [_leave_out(item, path.partition("]")[2]) for item in value]
    if not isinstance(value, Mapping):
        return None
    return {key: item for key, item in value.items() if key not in (path.removeprefix("."), *NODE_IDS)}


def _compare_all(expected: Mapping[str, Any], stored: Mapping[str, Any]) -> Iterator[MetadataDifference]:
    for field in dict.fromkeys((*expected, *stored)):
        if not _is_same(stored.get(field), expected.get(field)):
            yield MetadataDifference(field=field, stored=stored.get(field), expected=expected.get(field))


def _is_same(stored: Any, expected: Any) -> bool:
    """Equal as JSON values: 1 and 1.0 are the same number, 1 and true are not the same."""
    kind = type(stored)
    if kind is not type(expected):
        return {kind, type(expected)} == {int, float} and bool(stored == expected)
    if kind is dict:
        return stored.keys() == expected.keys() and all(_is_same(stored[k], expected[k]) for k in expected)
    if kind is list:
        return len(stored) == len(expected) and all(map(_is_same, stored, expected))
    return bool(stored == expected)


def _describe(difference: MetadataDifference) -> str:
    stored = "missing" if difference.stored is None else _format_value(difference.stored)
    return f"{display_name(difference.field)} is {stored}, expected {_format_value(difference.expected)}"


def _format_value(value: Any) -> str:
    return display_name(repr(value), MAX_VALUE_CHARS)


def require_texts(reader: Reader) -> None:
    """Raise `NotConfiguredError` if the collection has points, and a text can be read of none of them."""
    sample, points = reader.sample.payloads, (point for page in reader.pages() for point in page.points)
    every = chain((Point("", payload) for payload in sample), points)
    if not sample or any(reader.services.payloads.find_text(point) is not None for point in every):
        return
    lengths: Counter[str] = Counter()
    for payload in sample:
        lengths.update({path: len(value) for path, value in _find_strings(payload) if " " in value.strip()})
    names = ", ".join(display_name(name) for name in sorted({name for each in sample for name in each}))
    doctor = f"chunkproof doctor --collection {shlex.quote(reader.name)}"
    advice = f"{doctor} says what it can find in them"
    if lengths:
        setting = shlex.quote(json.dumps({"text": lengths.most_common(1)[0][0]}, ensure_ascii=False))
        advice = f"Name the field of the text: CHUNKPROOF_PAYLOAD_MAP={setting} ({doctor} proposes a whole map)"
    problem = f"No point of {reader.name} has a text that Chunkproof can read"
    raise NotConfiguredError(f"{problem}; its payloads have {names or 'no fields'}. {advice}")


def _find_strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every string in a payload with the path that a payload map would use."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _find_strings(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and not path.endswith("[]"):
        for inner in value:
            yield from _find_strings(inner, f"{path}[]")
