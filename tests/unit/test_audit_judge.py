"""An audit reads payloads as searches do, whatever is in them, and explains a mismatch once."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from chunkproof.audit import findings
from chunkproof.audit.findings import Finding, Judge, Kind, find_copies
from chunkproof.audit.ledger import ExpectedChunk
from chunkproof.audit.manifest_file import Entry
from chunkproof.base.errors import CorruptChunkError
from chunkproof.collection.payload_map import NAMES, PayloadMap
from chunkproof.stores.store_port import Point

from .strategies import JSON_VALUES

FIELDS = ("url", "position", "document_id", "section_headers", "extra", "metadata.extra", "text")
# Few, so that payloads have several of them, in any order.
KEYS = ("text", "content", "_node_content", "metadata", "meta", "url", "source", "position", "doc_id", "extra", "a.b")
TEXTS = st.sampled_from(
    ["", " ", "a text", "an\u0301 other", "\ud800", "unknown", '{"text": "inner", "extra": 1}', "[1"]
)
VALUES = (
    TEXTS | st.sampled_from([None, True, 1, 1.0, [], ["a", "b"], {"text": "deep", "extra": {"x": 1}}]) | JSON_VALUES
)
PAYLOADS = st.dictionaries(st.sampled_from(KEYS), VALUES)
MAPS = st.sampled_from([None, {"text": ("content", "metadata.text")}, {"text": ("extra",), "url": ("a.b",)}])


class Ledger:
    """Has the entries that findings quote."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def read_entry(self, _chunk: int) -> Entry:
        return self._entry


def expect(text: str, metadata: Mapping[str, Any]) -> ExpectedChunk:
    entry, packed = Entry("c", original_text=text, metadata=metadata), to_json(metadata) if metadata else None
    return ExpectedChunk(Ledger(entry), 1, "01", "c", 0, sha256(text.encode()).digest(), packed, None)  # type: ignore[arg-type]


def read_as_searches_do(
    expected: ExpectedChunk, point: Point, payloads: PayloadMap, copies: tuple[str, ...]
) -> Kind | None:
    """Judge with the methods that searches and validations read payloads with, one field after the other."""
    try:
        text = payloads.text_of(point)
    except CorruptChunkError:
        if expected.entry.original_text:
            return Kind.UNVERIFIABLE
        text = ""
    if text != expected.entry.original_text:
        return Kind.MISMATCH
    own = payloads.path_in("text", point.payload)
    others = [payloads.value_at(path, point.payload) for path in copies if own is not None and path != own]
    is_other = any(isinstance(other, str) and other.strip() and other != text for other in others)
    stated = {name: payloads.stated(name, point.payload) for name in expected.metadata}
    # As JSON, 1 is not true, and 1.0 is 1.
    is_same = all(findings._is_same(stated[name], value) for name, value in expected.metadata.items())
    return Kind.METADATA_MISMATCH if is_other or not is_same else None


@given(st.lists(PAYLOADS, max_size=12), st.data(), MAPS)
def test_an_audit_reads_a_payload_as_searches_do(sample: list[dict[str, Any]], data: st.DataObject, own: Any) -> None:
    payloads = PayloadMap(own)
    judge, copies = Judge(payloads, sample, all_metadata=False), find_copies(sample, payloads)
    for payload in data.draw(st.lists(PAYLOADS, min_size=1, max_size=4)):
        point = Point(1, payload)
        stored = {name: payloads.stated(name, payload) for name in FIELDS}
        kept = data.draw(
            st.fixed_dictionaries({}, optional={name: st.just(value) | VALUES for name, value in stored.items()})
        )
        metadata = {name: value for name, value in kept.items() if is_json(value)}
        expected = expect(data.draw(st.just(payloads.find_text(point) or "") | TEXTS.filter(is_json)), metadata)

        found = judge(expected, point)

        assert (found and found.kind) == read_as_searches_do(expected, point, payloads, copies)
        assert bool(judge(expected, point, explain=False)) == bool(found)


def is_json(value: Any) -> bool:
    """Whether a manifest can have it."""
    try:
        return to_json(value) is not None
    except ValueError:
        return False


@pytest.mark.parametrize("name", NAMES["text"])
def test_a_single_text_has_no_copy_under_any_name(name: str) -> None:
    first, _, rest = name.partition(".")
    payload = {first: {rest: "a text"} if rest else "a text"}
    assert Judge(PayloadMap(), [payload] * 20, all_metadata=False)(expect("a text", {}), Point(1, payload)) is None


def test_how_a_text_differs_is_only_found_out_to_explain_it(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, point = Judge(PayloadMap(), [], all_metadata=False), Point(1, {"text": "another"})
    explained = judge(expect("a text", {}), point)
    assert isinstance(explained, Finding)
    assert explained.mismatch is not None

    monkeypatch.setattr(findings, "compare", None)
    suspected = judge(expect("a text", {}), point, explain=False)
    assert suspected is not None
    assert (suspected.kind, suspected.mismatch) == (Kind.MISMATCH, None)
