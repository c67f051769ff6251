"""One expected chunk against one stored point."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any

from pydantic import Field, JsonValue

from chunkproof.audit.manifest import Entry
from chunkproof.audit.prepare import Expected
from chunkproof.clients.ports import Point, PointId
from chunkproof.errors import CorruptChunkError
from chunkproof.models import Mismatch, Model
from chunkproof.models.json import display_name
from chunkproof.retrieval.integrity import compare, compare_with_hash
from chunkproof.retrieval.payload import PayloadMap

LONGEST_VALUE = 80


class Kind(StrEnum):
    """What an audit calls a chunk; the second group is about its vector."""

    MATCH = "match"
    MISMATCH = "mismatch"
    MISSING = "missing"
    ORPHAN = "orphan"
    DUPLICATE = "duplicate"
    METADATA_MISMATCH = "metadata_mismatch"
    UNVERIFIABLE = "unverifiable"

    VECTOR_OK = "vector_ok"
    STALE_VECTOR = "stale_vector"
    WRONG_MODEL = "wrong_model"
    WRONG_INPUT_TYPE = "wrong_input_type"
    TRUNCATED_INPUT = "truncated_input"
    UNEXPLAINED_VECTOR = "unexplained_vector"
    UNVERIFIABLE_VECTOR = "unverifiable_vector"


# What a chunk of the manifest can be: exactly one of these.
OF_CHUNKS = (
    Kind.MATCH,
    Kind.MISMATCH,
    Kind.MISSING,
    Kind.DUPLICATE,
    Kind.METADATA_MISMATCH,
    Kind.UNVERIFIABLE,
)
OF_VECTORS = (
    Kind.VECTOR_OK,
    Kind.STALE_VECTOR,
    Kind.WRONG_MODEL,
    Kind.WRONG_INPUT_TYPE,
    Kind.TRUNCATED_INPUT,
    Kind.UNEXPLAINED_VECTOR,
    Kind.UNVERIFIABLE_VECTOR,
)
FAULTS = tuple(kind for kind in Kind if kind not in (Kind.MATCH, Kind.VECTOR_OK))


class MetadataDifference(Model):
    """A field that is not as the manifest has it; a field that is not stored is null."""

    field: str
    stored: JsonValue
    expected: JsonValue


class Finding(Model):
    """A chunk that is not as it should be, and what is wrong with it in a sentence."""

    chunk_id: str
    kind: Kind
    details: str
    point_ids: tuple[int | str, ...] = Field((), description="Where it is stored; two at most")
    source: str | None = Field(None, description="Its document: URL or id")
    mismatch: Mismatch | None = None
    metadata: tuple[MetadataDifference, ...] = ()
    cosine: float | None = Field(None, description="Stored vector against the text embedded again")


def judge(expected: Expected, point: Point, payloads: PayloadMap) -> Finding | None:
    """What is wrong with a stored chunk; None when it is the expected one, byte for byte."""

    def finding(kind: Kind, details: str, **more: Any) -> Finding:
        return Finding(
            chunk_id=expected.chunk_id,
            kind=kind,
            details=details,
            point_ids=(point.id,),
            source=payloads.source_of(point.payload) or source_in(expected.entry),
            **more,
        )

    try:
        stored = payloads.utf8_of(point)
    except CorruptChunkError as error:
        return finding(Kind.UNVERIFIABLE, error.message)
    if expected.conflict:
        return finding(Kind.DUPLICATE, "The manifest has this chunk twice, with different content")
    if sha256(stored).hexdigest() != expected.sha256:
        text, original = stored.decode(), expected.entry.original_text
        found = compare_with_hash(text, expected.sha256) if original is None else compare(text, original)
        if found:
            mismatch, details = found
            return finding(Kind.MISMATCH, details, mismatch=mismatch)
    if differences := tuple(_differences(expected.metadata or {}, point.payload, payloads)):
        sentence = "; ".join(_sentence(difference) for difference in differences)
        return finding(Kind.METADATA_MISMATCH, sentence, metadata=differences)
    return None


def missing(entry: Entry) -> Finding:
    """No point has this id."""
    return Finding(
        chunk_id=entry.chunk_id,
        kind=Kind.MISSING,
        details="No point has this id",
        source=source_in(entry),
    )


def unverifiable(entry: Entry, why: str) -> Finding:
    """Whether and how it is stored could not be read."""
    return Finding(chunk_id=entry.chunk_id, kind=Kind.UNVERIFIABLE, details=why, source=source_in(entry))


def duplicate(entry: Entry, points: Mapping[PointId, Point], count: int, payloads: PayloadMap) -> Finding:
    """Several points have this id; which of them a search returns is chance."""
    texts: set[str | None] = set()
    for point in points.values():
        try:
            texts.add(payloads.text_of(point))
        except CorruptChunkError:
            texts.add(None)
    same = "with the same text" if len(texts) == 1 and None not in texts else "with different texts"
    shown_ids = tuple(sorted(points, key=str))[:2]
    first = points[shown_ids[0]]
    return Finding(
        chunk_id=entry.chunk_id,
        kind=Kind.DUPLICATE,
        details=f"{count} points have this id, {same}"
        if None not in texts
        else f"{count} points have this id",
        point_ids=shown_ids,
        source=payloads.source_of(first.payload) or source_in(entry),
    )


def orphan(point: Point, payloads: PayloadMap) -> Finding:
    """Stored, and not in the manifest."""
    return Finding(
        chunk_id=payloads.id_of(point),
        kind=Kind.ORPHAN,
        details="Stored, but not in the manifest",
        point_ids=(point.id,),
        source=payloads.source_of(point.payload),
    )


def source_in(entry: Entry) -> str | None:
    """The document that the manifest names, if it does."""
    found = ((entry.metadata or {}).get(name) for name in ("url", "document_id"))
    return next((value for value in found if isinstance(value, str) and value), None)


def _differences(
    expected: Mapping[str, Any], payload: Mapping[str, Any], payloads: PayloadMap
) -> Iterator[MetadataDifference]:
    for field, value in expected.items():
        stored = payloads.stated(field, payload)
        if not _same(stored, value):
            yield MetadataDifference(field=field, stored=stored, expected=value)


def _same(stored: Any, expected: Any) -> bool:
    """Equal as JSON values: 1 and 1.0 are the same number, 1 and true are not the same."""
    if isinstance(stored, bool) or isinstance(expected, bool):
        return stored is expected
    if isinstance(stored, Mapping) and isinstance(expected, Mapping):
        return stored.keys() == expected.keys() and all(_same(stored[k], expected[k]) for k in expected)
    if isinstance(stored, list) and isinstance(expected, list):
        return len(stored) == len(expected) and all(map(_same, stored, expected))
    return (type(stored) in (int, float) and type(expected) in (int, float) and stored == expected) or (
        type(stored) is type(expected) and stored == expected
    )


def _sentence(difference: MetadataDifference) -> str:
    stored = "missing" if difference.stored is None else _value(difference.stored)
    return f"{display_name(difference.field)} is {stored}, expected {_value(difference.expected)}"


def _value(value: Any) -> str:
    return display_name(repr(value), LONGEST_VALUE)
