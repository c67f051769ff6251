"""Validation of one chunk on real stores: which point an id means, and what the verdict rests on."""

from collections.abc import Callable
from hashlib import md5, sha1, sha256
from typing import Any

import pytest

from chunkproof.base.errors import (
    AmbiguousIdError,
    ChunkNotFoundError,
    CollectionNotFoundError,
    CorruptChunkError,
    InvalidParameterError,
)
from chunkproof.base.request import Deadline
from chunkproof.collection.services import SAMPLE_POINTS
from chunkproof.contract import ValidationResult
from chunkproof.contract.conditions import Condition, fields_of
from chunkproof.stores.store_port import Page, Point, PointId, WritableStore

from support.chunks import ask, check, fill, make_services
from support.stores import MemoryStore

UUID = "550e8400-e29b-41d4-a716-446655440000"
TEXT = "To set up a vector database, first install it."
URL = "https://docs.example.com/a"


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.server)])
def either(request: pytest.FixtureRequest) -> WritableStore:
    """A store in memory and one on a server."""
    chosen: WritableStore = request.getfixturevalue(f"{request.param}_store")
    return chosen


def chunk(id_: PointId, text: str = TEXT, **payload: Any) -> Point:
    return Point(id_, {"text": text, "url": URL, **payload}, vector=(1.0, 0.0))


def sha(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def passed(result: ValidationResult) -> dict[str, bool | None]:
    return {found.name: found.passed for found in result.checks}


def details(result: ValidationResult, name: str) -> str | None:
    return next(found.details for found in result.checks if found.name == name)


# which point


def test_a_uuid_is_found_however_it_is_written(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(UUID), chunk(1, "other"))
    bare = UUID.replace("-", "")
    for given in (UUID, UUID.upper(), bare, bare.upper()):
        result = check(make_services(either, collection), given, original_text=TEXT)
        assert (result.chunk_id, result.matches, result.stored_text) == (UUID, True, TEXT)


def test_an_unsigned_integer_is_a_point_id(either: WritableStore, collection: str) -> None:
    point_ids = (0, 7, 2**63, 2**64 - 1)
    fill(either, collection, *(chunk(point_id, f"text of {point_id}") for point_id in point_ids))
    for point_id in point_ids:
        result = check(make_services(either, collection), str(point_id), original_text=f"text of {point_id}")
        assert (result.chunk_id, result.matches) == (str(point_id), True)


def test_a_payload_id_is_found(either: WritableStore, collection: str) -> None:
    payloads: list[dict[str, Any]] = [{"chunk_id": "c-0"}, {"id": "c-1"}, {"metadata": {"chunk_id": "c-2"}}]
    fill(either, collection, *(chunk(n, f"text {n}", **payload) for n, payload in enumerate(payloads)))
    for number in range(len(payloads)):
        result = check(make_services(either, collection), f"c-{number}", original_text=f"text {number}")
        assert (result.chunk_id, result.matches) == (f"c-{number}", True)


def test_a_chunk_answers_to_its_point_id_too(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(5, chunk_id="c-5"))
    assert check(make_services(either, collection), "5", original_text=TEXT).chunk_id == "c-5"


def test_an_unknown_chunk_is_named(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1, chunk_id="c-1"))
    for chunk_id in ("nobody", "99", UUID, "-1", "1.0", "01", str(2**64), "e\u0301 🤖", "a'b", 'a"b', "*"):
        with pytest.raises(ChunkNotFoundError) as caught:
            check(make_services(either, collection), chunk_id, original_text=TEXT)
        assert (caught.value.code, caught.value.status) == ("CHUNK_NOT_FOUND", 404)
        assert caught.value.messages == (f"Chunk {chunk_id} not found",)


def test_an_unknown_collection_is_not_an_unknown_chunk(either: WritableStore, collection: str) -> None:
    with pytest.raises(CollectionNotFoundError):
        check(make_services(either, collection), "1", original_text=TEXT)


def test_an_integer_chunk_id_that_counts_within_a_document_is_no_id(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(10, "ten", chunk_id=3), chunk(11, "eleven", chunk_id=3))
    services = make_services(either, collection)
    with pytest.raises(ChunkNotFoundError):
        check(services, "3", original_text="ten")
    assert check(services, "11", original_text="eleven").chunk_id == "11"


def test_an_id_of_one_point_that_is_also_the_point_id_of_another_is_ambiguous(
    either: WritableStore, collection: str
) -> None:
    fill(either, collection, chunk(1, "one", chunk_id="2"), chunk(2, "two"))
    with pytest.raises(AmbiguousIdError) as caught:
        check(make_services(either, collection), "2", original_text="one")
    assert (caught.value.code, caught.value.status) == ("AMBIGUOUS_ID", 400)
    assert caught.value.message == "Chunk id 2 means more than one point: 2, 1"


def test_an_id_that_two_points_share_is_ambiguous(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1, chunk_id="twin"), chunk(2, chunk_id="twin"))
    with pytest.raises(AmbiguousIdError, match="Chunk id twin means more than one point: 1, 2"):
        check(make_services(either, collection), "twin", original_text=TEXT)


def test_payloads_are_searched_only_by_the_fields_that_the_collection_keeps_ids_in(
    memory_store: WritableStore, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[list[str]] = []
    scroll = memory_store.scroll

    def noting(*given: Any, where: tuple[Condition, ...] = (), **options: Any) -> Page:
        searched.extend([[found.field for found in fields_of(where)]] if where else [])
        return scroll(*given, where=where, **options)

    monkeypatch.setattr(memory_store, "scroll", noting)
    fill(memory_store, collection, chunk(1, chunk_id="a"), chunk(2, chunk_id="b"))
    services = make_services(memory_store, collection)
    assert check(services, "a", original_text=TEXT).matches
    assert searched == [["chunk_id"]]
    with pytest.raises(ChunkNotFoundError):
        check(services, "c", original_text=TEXT)
    assert searched[1:] == [["chunk_id"], ["id", "metadata.chunk_id"]]


def test_an_id_kept_where_no_sampled_point_keeps_one_is_found(either: WritableStore, collection: str) -> None:
    many = [chunk(number, chunk_id=f"chunk-{number}") for number in range(1, SAMPLE_POINTS + 1)]
    fill(either, collection, *many, chunk(SAMPLE_POINTS + 1, "the odd one", metadata={"chunk_id": "odd"}))
    assert check(make_services(either, collection), "odd", original_text="the odd one").matches


def test_an_id_that_is_both_of_one_point_is_not_ambiguous(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1, chunk_id="1"), chunk(UUID, id=UUID))
    services = make_services(either, collection)
    assert check(services, "1", original_text=TEXT).matches
    assert check(services, UUID, original_text=TEXT).matches


def test_an_id_of_lower_rank_does_not_count_where_there_is_a_higher_one(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1, "part", chunk_id="d-1", id="d"), chunk(2, "whole", chunk_id="d"))
    assert check(make_services(either, collection), "d", original_text="whole").matches


def test_a_chunk_is_found_however_many_points_have_its_id_at_a_lower_rank(
    either: WritableStore, collection: str
) -> None:
    parts = (chunk(n, f"part {n}", chunk_id=f"d-{n}", id="d") for n in (1, 2, 3))
    fill(either, collection, *parts, chunk(4, "whole", chunk_id="d"))
    services = make_services(either, collection)
    assert "d" in {r.metadata.chunk_id for r in ask(services, query_vector=[1.0, 0.0]).results}
    assert check(services, "d", original_text="whole").matches


@pytest.mark.parametrize(
    "payload",
    [{"metadata": '{"chunk_id": "c-1"}'}, {"metadata.chunk_id": "c-1"}, {"chunk_id": "c" * 1001}],
    ids=["in JSON", "flat", "longer than a request may be"],
)
def test_an_id_that_a_search_shows_always_finds_the_point(
    either: WritableStore, collection: str, payload: dict[str, Any]
) -> None:
    fill(either, collection, chunk(1, **payload))
    services = make_services(either, collection)
    shown = ask(services, query_vector=[1.0, 0.0]).results[0].metadata.chunk_id
    assert check(services, shown, original_text=TEXT).matches


def test_a_payload_map_says_where_the_id_is(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1, ref={"key": "r-1"}, chunk_id="c-1"))
    services = make_services(either, collection, PAYLOAD_MAP='{"chunk_id": "ref.key"}')
    assert check(services, "r-1", original_text=TEXT).chunk_id == "r-1"
    with pytest.raises(ChunkNotFoundError):
        check(services, "c-1", original_text=TEXT)


# compared with the original


def test_the_original_text_matches(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1))
    result = check(make_services(either, collection), "1", original_text=TEXT)
    assert (result.matches, result.validation_passed) == (True, True)
    assert (result.original_text, result.mismatch, result.mismatch_details) == (TEXT, None, None)
    assert passed(result) == {"text": True, "content_hash": None, "metadata": True}
    assert result.retrieval_time_ms > 0


def test_a_shortened_text_is_named_and_placed(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1, "To set up a vector dat"))
    original = "To set up a vector database"
    result = check(make_services(either, collection), "1", original_text=original)
    assert (result.matches, result.validation_passed) == (False, False)
    assert result.mismatch_details == "Stored text truncated: 22 of 27 characters kept"
    assert result.mismatch is not None
    assert result.mismatch.kind == "truncated"
    assert result.mismatch.first_difference is not None
    assert result.mismatch.first_difference.model_dump() == {"byte": 22, "char": 22, "line": 1, "column": 23}
    assert (result.mismatch.stored_bytes, result.mismatch.original_bytes) == (22, 27)
    assert result.mismatch.stored_sha256 == sha("To set up a vector dat")
    assert result.mismatch.original_sha256 == sha(original)


def test_a_normalised_text_is_named_with_its_first_byte(either: WritableStore, collection: str) -> None:
    # The original has e + U+0301 (3 bytes), the store é (2 bytes): they part at byte 3, the 4th character.
    fill(either, collection, chunk(1, "caf\u00e9"))
    result = check(make_services(either, collection), "1", original_text="cafe\u0301")
    assert result.mismatch is not None
    assert result.mismatch.kind == "unicode_normalization"
    assert result.mismatch.first_difference is not None
    assert result.mismatch.first_difference.model_dump() == {"byte": 3, "char": 3, "line": 1, "column": 4}
    assert (result.mismatch.stored_bytes, result.mismatch.original_bytes) == (5, 6)
    assert result.mismatch_details is not None
    assert "NFC" in result.mismatch_details
    assert "NFD" in result.mismatch_details


def test_nothing_but_the_same_bytes_matches(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1))
    for original in (TEXT + " ", TEXT.upper(), TEXT.replace(" ", "\u00a0"), "\ufeff" + TEXT, ""):
        assert not check(make_services(either, collection), "1", original_text=original).matches


def test_the_hash_of_the_original_is_enough(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1))
    services = make_services(either, collection)
    for digest in (sha(TEXT), sha(TEXT).upper()):
        result = check(services, "1", original_sha256=digest)
        assert (result.matches, result.validation_passed, result.original_text) == (True, True, None)
    result = check(services, "1", original_sha256=sha("another"))
    assert (result.matches, result.original_text) == (False, None)
    assert result.mismatch is not None
    assert (result.mismatch.kind, result.mismatch.first_difference) == ("different", None)
    assert result.mismatch.original_sha256 == sha("another")


def test_an_empty_stored_text_is_a_mismatch_of_its_own_kind(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1, ""))
    result = check(make_services(either, collection), "1", original_text=TEXT)
    assert (result.matches, result.stored_text) == (False, "")
    assert result.mismatch is not None
    assert result.mismatch.kind == "empty"


def test_a_point_without_readable_text_is_corrupt(either: WritableStore, collection: str) -> None:
    payloads: list[dict[str, Any]] = [{}, {"text": None}, {"text": 5}, {"text": {"a": "b"}}, {"body": "x"}]
    fill(either, collection, *(Point(n, payload, vector=(1.0, 0.0)) for n, payload in enumerate(payloads)))
    for number in range(len(payloads)):
        with pytest.raises(CorruptChunkError) as caught:
            check(make_services(either, collection), str(number), original_text=TEXT)
        assert (caught.value.code, caught.value.status) == ("CORRUPT_CHUNK", 500)
        assert caught.value.message == f"Chunk {number} has no readable text"


def test_text_without_a_utf8_form_is_corrupt(memory_store: MemoryStore, collection: str) -> None:
    fill(memory_store, collection, chunk(1))
    memory_store.changed_texts[1] = "half \ud83d"
    with pytest.raises(CorruptChunkError):
        check(make_services(memory_store, collection), "1", original_text=TEXT)


# compared with the chunk's own hashes


@pytest.mark.parametrize("digits", [16, 64])
def test_a_content_hash_proves_the_text(either: WritableStore, collection: str, digits: int) -> None:
    fill(
        either,
        collection,
        chunk(1, content_hash=sha(TEXT)[:digits]),
        chunk(2, content_hash=sha(TEXT)[:digits].upper()),
        chunk(3, content_hash=sha("another")[:digits]),
    )
    services = make_services(either, collection)
    for good in ("1", "2"):
        result = check(services, good)
        assert (result.matches, result.validation_passed) == (True, True)
        assert passed(result) == {"text": None, "content_hash": True, "chunk_id": None, "metadata": True}
    damaged = check(services, "3")
    assert (damaged.matches, damaged.validation_passed, damaged.mismatch) == (False, False, None)
    assert damaged.mismatch_details == "The stored text does not match content_hash"


def test_a_content_hash_is_checked_next_to_the_original(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1, content_hash=sha("another")), chunk(2, content_hash=sha(TEXT)))
    result = check(make_services(either, collection), "1", original_text=TEXT)
    assert (result.matches, result.validation_passed) == (True, False)
    assert passed(result) == {"text": True, "content_hash": False, "metadata": True}


def test_a_content_hash_of_another_kind_does_not_apply(either: WritableStore, collection: str) -> None:
    kinds = ["abc123def456", "sha1:0123456789abcdef", "g" * 64, "a" * 65, 5, ["x"]]
    fill(either, collection, *(chunk(n, content_hash=stored) for n, stored in enumerate(kinds)))
    for number in range(len(kinds)):
        result = check(make_services(either, collection), str(number), original_text=TEXT)
        assert passed(result)["content_hash"] is None
        assert details(result, "content_hash")
        assert result.validation_passed


@pytest.mark.parametrize("first", ["MD5 of text", "SHA-256 of url and text", "SHA-1 of text"])
def test_two_kinds_of_hashes_in_one_collection_fail_no_equal_bytes(
    either: WritableStore, collection: str, first: str
) -> None:
    kinds = (KINDS[first], KINDS["SHA-256 of text"])
    points = [chunk(n, f"text {n}", content_hash=kinds[n % 2](f"text {n}", URL)) for n in range(1, 12)]
    fill(either, collection, *points, chunk(20, "changed", content_hash=kinds[0]("as it was", URL)))
    services = make_services(either, collection)
    for number in range(1, 12):
        result = check(services, str(number), original_text=f"text {number}")
        assert (result.validation_passed, passed(result)["content_hash"]) == (True, True)
    assert passed(check(services, "20", original_text="changed"))["content_hash"] is False


KINDS: dict[str, Callable[[str, str], str]] = {
    "SHA-256 of text": lambda text, _url: sha(text),
    "MD5 of text": lambda text, _url: md5(text.encode()).hexdigest(),
    "SHA-1 of text": lambda text, _url: sha1(text.encode()).hexdigest(),
    "SHA-256 of url and text": lambda text, url: sha(url + text),
    "MD5 of url and text": lambda text, url: md5((url + text).encode()).hexdigest(),
    "SHA-256 of text and a newline": lambda text, _url: sha(text + "\n"),
    'SHA-256 of text and "None"': lambda text, _url: sha(text + "None"),
}


@pytest.mark.parametrize("digits", [16, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_a_content_hash_is_found_from_the_first_points(
    memory_store: WritableStore, collection: str, kind: str, digits: int
) -> None:
    texts = {n: f"the text of chunk {n}" for n in range(1, 7)}
    points = [chunk(n, text, content_hash=KINDS[kind](text, URL)[:digits]) for n, text in texts.items()]
    damaged = chunk(7, "changed", content_hash=KINDS[kind]("as it was", URL)[:digits])
    fill(memory_store, collection, *points, damaged)
    services = make_services(memory_store, collection)
    assert str(services.collection(collection, Deadline(60_000)).hashes.content_hash) == kind
    for number in texts:
        assert check(services, str(number)).validation_passed
    assert not check(services, "7").validation_passed
    assert not check(services, "7", original_text="changed").validation_passed


@pytest.mark.parametrize(
    "stored",
    [
        lambda number: sha(f"source {number // 3}"),
        lambda number: sha(f"something else {number}"),
        lambda number: md5(f"path/{number}".encode()).hexdigest(),
        lambda number: "0123456789abcdef" * 4,
    ],
    ids=["per source", "of other things", "MD5 of other things", "constant"],
)
def test_a_content_hash_of_anything_else_is_ignored_with_a_note(
    either: WritableStore, collection: str, stored: Callable[[int], str]
) -> None:
    fill(either, collection, *(chunk(n, f"text {n}", content_hash=stored(n)) for n in range(1, 10)))
    services = make_services(either, collection)
    for number in range(1, 10):
        result = check(services, str(number), original_text=f"text {number}")
        assert result.validation_passed
        assert passed(result)["content_hash"] is None
        assert str(details(result, "content_hash")).startswith("Ignored: ")
    with pytest.raises(InvalidParameterError, match="There is nothing to compare chunk 1 with"):
        check(services, "1")


def test_a_hash_of_the_source_is_none_of_its_only_chunk(either: WritableStore, collection: str) -> None:
    single = [chunk(n, f"text {n}", content_hash=sha(f"text {n}")) for n in range(1, 5)]
    fill(either, collection, *single, *(chunk(n, f"part {n}", content_hash=sha("parts")) for n in range(5, 8)))
    services = make_services(either, collection)
    assert all(check(services, str(n), original_text=f"part {n}").validation_passed for n in range(5, 8))


def test_an_empty_stored_text_never_passes(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1, "", content_hash=sha("")), chunk(2, content_hash=sha(TEXT)))
    services = make_services(either, collection)
    for original in ({}, {"original_text": ""}, {"original_sha256": sha("")}):
        result = check(services, "1", **original)
        assert (result.validation_passed, result.mismatch_details) == (False, "The stored text is empty")
    assert check(services, "1", original_text="").matches, "byte equality is what it is"


@pytest.mark.parametrize(("newline", "hashed"), [("\n", False), ("\r\n", False), ("\n", True)])
def test_one_trailing_newline_is_called_that(
    memory_store: WritableStore, collection: str, newline: str, hashed: bool
) -> None:
    fill(memory_store, collection, chunk(1), chunk(2, TEXT + newline))
    services = make_services(memory_store, collection)
    for chunk_id, original, whose in (("1", TEXT + newline, "the original"), ("2", TEXT, "the stored text")):
        given = {"original_sha256": sha(original)} if hashed else {"original_text": original}
        result = check(services, chunk_id, **given)
        assert result.mismatch is not None
        assert result.mismatch.kind == "whitespace"
        assert result.mismatch_details == f"Whitespace differs: only one trailing newline, which {whose} has"


def test_an_id_that_is_the_hash_of_url_and_text_proves_both(either: WritableStore, collection: str) -> None:
    good = sha(URL + TEXT)
    wrong_text, wrong_url = sha(URL + "another"), sha("https://docs.example.com/b" + TEXT)
    points = (chunk(n, chunk_id=name) for n, name in enumerate((good, wrong_text, wrong_url), start=1))
    fill(either, collection, *points)
    services = make_services(either, collection)
    assert passed(check(services, good)) == {
        "text": None,
        "content_hash": None,
        "chunk_id": True,
        "metadata": True,
    }
    for damaged in (wrong_text, wrong_url):
        result = check(services, damaged)
        assert (result.matches, result.validation_passed) == (False, False)
        assert result.mismatch_details == "The id is a SHA-256, but not of the stored url and text"


def test_with_nothing_to_compare_with_the_request_is_refused(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1), chunk(2, content_hash="abc123def456"))
    for chunk_id in ("1", "2"):
        with pytest.raises(InvalidParameterError) as caught:
            check(make_services(either, collection), chunk_id)
        assert (caught.value.code, caught.value.status) == ("INVALID_REQUEST", 400)
        assert "give original_text or original_sha256" in caught.value.message


# metadata

METADATA = [
    ({}, None),
    ({"url": "http://docs.example.com:8080/a?b=c#d"}, None),
    ({"url": None}, "url is missing"),
    ({"url": ""}, "url is missing"),
    ({"url": "ftp://docs.example.com/a"}, "url is not an http or https address"),
    ({"url": "docs/a.md"}, "url is not an http or https address"),
    ({"url": "https://"}, "url is not an http or https address"),
    ({"url": "https://[::1"}, "url is not an http or https address"),
    ({"url": 5}, "url is not an http or https address"),
    ({"timestamp": "2025-12-15T10:30:00Z"}, None),
    ({"timestamp": "2025-12-10T15:30:00.123456"}, None),
    ({"timestamp": "2025-12-10"}, None),
    ({"timestamp": "2025-12-15x10:30:00"}, "timestamp is not ISO 8601"),
    ({"timestamp": "yesterday"}, "timestamp is not ISO 8601"),
    ({"timestamp": "2025-13-10T00:00:00Z"}, "timestamp is not ISO 8601"),
    ({"timestamp": 1765794600}, "timestamp is not ISO 8601"),
    ({"position": 0}, None),
    ({"position": -1}, "position is not a non-negative integer"),
    ({"position": 1.5}, "position is not a non-negative integer"),
    ({"position": True}, "position is not a non-negative integer"),
    ({"position": "3"}, "position is not a non-negative integer"),
    ({"document_title": "t" * 500}, None),
    ({"document_title": "t" * 501}, "document_title is not a text of at most 500 characters"),
    ({"document_title": 5}, "document_title is not a text of at most 500 characters"),
    (
        {"url": "x", "position": -1},
        "url is not an http or https address; position is not a non-negative integer",
    ),
]


@pytest.mark.parametrize(("payload", "problem"), METADATA, ids=[str(row[0])[:60] for row in METADATA])
def test_metadata_passes_or_says_what_is_wrong(
    memory_store: WritableStore, collection: str, payload: dict[str, Any], problem: str | None
) -> None:
    fill(memory_store, collection, chunk(1, **payload))
    services = make_services(memory_store, collection)
    result = check(services, "1", original_text=TEXT)
    assert (passed(result)["metadata"], details(result, "metadata")) == (problem is None, problem)
    assert (result.matches, result.validation_passed) == (True, True), "without strict, it is a note"
    result = check(services, "1", original_text=TEXT, strict=True)
    assert (result.matches, result.validation_passed) == (True, problem is None)
    assert len(ask(services, query_vector=[1.0, 0.0]).results) == 1, "a search returns such values as they are"
