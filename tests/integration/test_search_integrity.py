"""Search verifies: each result says whether its text is the one that was hashed."""

import logging
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pytest

from chunkproof.base.errors import CorruptChunkError, VectorStoreUnavailableError
from chunkproof.base.request import Deadline
from chunkproof.contract import RetrievalResponse, SearchQuery
from chunkproof.search.single import search
from chunkproof.stores.store_port import Page, Point, WritableStore

from support.chunks import ask, fill, make_services
from support.stores import MemoryStore

EAST = [1.0, 0.0]
URL = "https://docs.example.com/a"


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.server)])
def either(request: pytest.FixtureRequest) -> WritableStore:
    """A store in memory and one on a server."""
    chosen: WritableStore = request.getfixturevalue(f"{request.param}_store")
    return chosen


def sha(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def hashed(number: int, *, stored: str | None = None, **payload: Any) -> Point:
    """A point further from the east the higher its number, with the hash of its text and perhaps another text."""
    text = f"text {number}"
    known = {"text": stored or text, "url": URL, "document_title": "A", "content_hash": sha(text)}
    return Point(number, known | payload, vector=(1.0, number / 100))


def found(answer: RetrievalResponse) -> dict[Any, str]:
    return {result.point_id: result.integrity for result in answer.results}


def test_a_result_is_verified_changed_or_unknown(either: WritableStore, collection: str) -> None:
    fill(either, collection, hashed(1), hashed(2, stored="text 2 and more"), hashed(3, content_hash=None), hashed(4))
    answer = ask(make_services(either, collection), query_vector=EAST)
    assert found(answer) == {1: "verified", 2: "changed", 3: "unknown", 4: "verified"}
    assert answer.execution.skipped == 0
    assert answer.notes == ()


def test_a_hash_in_the_id_proves_the_text_too(either: WritableStore, collection: str) -> None:
    ids = [sha(f"{URL}text {number}") for number in range(1, 4)]
    points = [hashed(number, chunk_id=ids[number - 1], content_hash=None) for number in (1, 2)]
    changed = "a text whose hash was made anew"
    fill(either, collection, *points, hashed(3, stored=changed, content_hash=sha(changed), chunk_id=ids[2]))
    assert found(ask(make_services(either, collection), query_vector=EAST)) == {
        1: "verified",
        2: "verified",
        3: "changed",
    }


def test_a_changed_chunk_is_left_out_if_the_request_says_so(
    either: WritableStore, collection: str, caplog: pytest.LogCaptureFixture
) -> None:
    points = [hashed(number, stored="changed" if number in (1, 3) else None) for number in range(1, 8)]
    fill(either, collection, *points)
    with caplog.at_level(logging.WARNING):
        answer = ask(make_services(either, collection), query_vector=EAST, top_k=3, require_integrity=True)
    assert found(answer) == {2: "verified", 4: "verified", 5: "verified"}
    assert [result.rank for result in answer.results] == [1, 2, 3]
    assert answer.execution.skipped == 2
    assert answer.notes == ("2 chunks left out: their text is not the one that was hashed (points 1, 3)",)
    (warning,) = [r for r in caplog.records if r.message == "Stored text is not the one that was hashed"]
    assert warning.point_ids == ["1", "3"]  # type: ignore[attr-defined]


def test_nothing_but_changed_chunks_is_an_error_if_the_request_says_so(either: WritableStore, collection: str) -> None:
    others = [hashed(number) for number in (50, 51, 52)]
    fill(either, collection, hashed(1, stored="changed", part=1), hashed(2, stored="changed", part=1), *others)
    with pytest.raises(CorruptChunkError, match="2 were changed since they were hashed"):
        ask(make_services(either, collection), query_vector=EAST, top_k=3, filters={"part": 1}, require_integrity=True)


def test_one_changed_copy_of_a_text_does_not_make_hashes_useless(memory_store: MemoryStore, collection: str) -> None:
    same = [hashed(n, text="the same", content_hash=sha("the same")) for n in (1, 2)]
    changed = hashed(3, text="another", content_hash=sha("the same"))
    fill(memory_store, collection, *same, changed, hashed(4))
    assert found(ask(make_services(memory_store, collection), query_vector=EAST)) == {
        1: "verified",
        2: "verified",
        3: "changed",
        4: "verified",
    }


def test_a_hash_of_the_source_says_nothing(memory_store: MemoryStore, collection: str) -> None:
    fill(memory_store, collection, *(hashed(number, content_hash=sha("whole page")) for number in (1, 2)))
    assert found(ask(make_services(memory_store, collection), query_vector=EAST)) == {1: "unknown", 2: "unknown"}


def test_ids_of_several_pipelines_accuse_no_chunk(memory_store: MemoryStore, collection: str) -> None:
    ids = [sha(f"{URL}text {number}") if number == 1 else sha(f"random {number}") for number in range(1, 5)]
    fill(memory_store, collection, *(hashed(n, content_hash=None, chunk_id=id_) for n, id_ in enumerate(ids, 1)))
    answer = ask(make_services(memory_store, collection), query_vector=EAST)
    assert found(answer) == {1: "verified", 2: "unknown", 3: "unknown", 4: "unknown"}


def test_hashes_of_sources_whose_other_chunks_are_not_in_the_sample_accuse_no_chunk(
    memory_store: MemoryStore, collection: str
) -> None:
    """Most sources have one chunk, so their hash is that of its text; the second chunks come after the sample."""
    points = [hashed(n, content_hash=sha(f"text {n}" if n % 4 else f"text {n}text {n + 200}")) for n in range(1, 121)]
    points += [hashed(n + 200, content_hash=sha(f"text {n}text {n + 200}")) for n in range(4, 121, 4)]
    fill(memory_store, collection, *points)
    answer = ask(make_services(memory_store, collection), query_vector=EAST, top_k=8)
    assert found(answer) == {n: "verified" if n % 4 else "unknown" for n in range(1, 9)}


class _CountingStore(MemoryStore):
    """Counts how often the first points are read, and can refuse it."""

    scrolls = 0
    refuses = False

    def scroll(self, collection: str, deadline: Deadline, **options: Any) -> Page:
        self.scrolls += 1
        if self.refuses:
            raise VectorStoreUnavailableError("localhost", "test")
        return super().scroll(collection, deadline, **options)


def _search(services: Any, collection: str, **fields: Any) -> RetrievalResponse:
    return ask(services, query_vector=EAST, collection=collection, **fields)


@pytest.mark.parametrize(("points", "scrolls"), [([hashed(1), hashed(2)], 1), ([hashed(1, content_hash=None)], 0)])
def test_the_collection_is_looked_at_once_and_only_if_it_has_hashes(
    collection: str, points: Sequence[Point], scrolls: int
) -> None:
    store = _CountingStore()
    fill(store, collection, *points)
    services = make_services(store, collection)
    store.scrolls = 0
    for _ in range(3):
        _search(services, collection)
    assert store.scrolls == scrolls


def test_a_search_succeeds_although_the_hashes_cannot_be_recognised(collection: str) -> None:
    store = _CountingStore()
    fill(store, collection, hashed(1), hashed(2))
    services = make_services(store, collection)
    store.refuses = True
    assert found(_search(services, collection)) == {1: "unknown", 2: "unknown"}
    with pytest.raises(VectorStoreUnavailableError):
        _search(services, collection, require_integrity=True)
    store.refuses = False
    assert found(_search(services, collection)) == {1: "verified", 2: "verified"}


def test_several_queries_are_verified_each(memory_store: MemoryStore, collection: str) -> None:
    fill(memory_store, collection, hashed(1), hashed(2, stored="changed"))
    queries = [{"query_vector": EAST}, {"query_vector": EAST, "require_integrity": True}]
    services = make_services(memory_store, collection)
    opened = services.collection(collection, Deadline(60_000))
    answer = search(SearchQuery.parse({"queries": queries}), opened)
    assert [found(each) for each in answer.responses or ()] == [{1: "verified", 2: "changed"}, {1: "verified"}]
    assert opened.trace.changed == 2
