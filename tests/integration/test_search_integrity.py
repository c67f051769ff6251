"""Search verifies: each result says whether its text matches its hash."""

import logging
from base64 import b64encode
from collections.abc import Callable, Sequence
from hashlib import blake2b, md5, sha256
from random import Random
from typing import Any
from unicodedata import normalize
from uuid import UUID, uuid5

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
    assert answer.notes == ("2 chunks left out: their text does not match its hash (points 1, 3)",)
    (warning,) = [r for r in caplog.records if r.message == "Stored text does not match its hash"]
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


def flat(text: str) -> str:
    return " ".join(text.split())


TEXTS = [
    "A first text.",
    "Two  spaces here",
    "A line\nand another ",
    "Café, one more",
    "Cafe\u0301 in NFD",
    "Cafe\u0301s",
    "the end",
]
OF_SOMETHING_ELSE: dict[str, Callable[[str, int], Any]] = {
    "of the text without surrounding whitespace": lambda text, _: sha(text.strip()),
    "of the text with single spaces, in lower case": lambda text, _: sha(flat(text.lower())),
    "of text and metadata, as LlamaIndex": lambda text, n: sha(text + str({"n": n})),
    "of text and position": lambda text, n: sha(f"{text}{n}"),
    "of the document": lambda _, n: sha(f"document {n // 2}"),
    "of the url": lambda _, n: md5(f"{URL}/{n}".encode()).hexdigest(),
    "of UTF-16": lambda text, _: sha256(text.encode("utf-16")).hexdigest(),
    "BLAKE2": lambda text, _: blake2b(text.encode(), digest_size=32).hexdigest(),
    "of 64 bits": lambda text, _: blake2b(text.encode(), digest_size=8).hexdigest(),
    "base64": lambda text, _: b64encode(sha256(text.encode()).digest()).decode(),
    "a number": lambda text, _: str(int(sha(text)[:16], 16)),
    "a UUID of SHA-1, as LangChain's record manager": lambda text, _: str(uuid5(UUID(int=1), sha(text))),
    "a commit": lambda *_: "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "a list": lambda text, _: [sha(text)],
}


@pytest.mark.parametrize("kind", OF_SOMETHING_ELSE)
def test_no_hash_of_something_else_accuses_a_chunk(memory_store: MemoryStore, collection: str, kind: str) -> None:
    points = [hashed(n, stored=t, content_hash=OF_SOMETHING_ELSE[kind](t, n)) for n, t in enumerate(TEXTS, 1)]
    fill(memory_store, collection, *points)
    answer = ask(make_services(memory_store, collection), query_vector=EAST, top_k=7)
    assert len(found(answer)) == 7
    assert "changed" not in found(answer).values()


SPELLINGS: dict[str, Callable[[str], str]] = {
    "upper case": lambda text: sha(text).upper(),
    "with a prefix": lambda text: "sha256:" + sha(text),
    "half of it": lambda text: sha(text)[:32],
    "as long as a SHA-1": lambda text: sha(text)[:40],
    "MD5": lambda text: md5(text.encode()).hexdigest(),
    "with url": lambda text: sha(URL + text),
    "in lower case": lambda text: sha(text.strip().lower()),
    "with single spaces": lambda text: sha(flat(text)),
    "NFC": lambda text: sha(normalize("NFC", text)),
}


@pytest.mark.parametrize("kind", SPELLINGS)
def test_a_hash_of_the_text_accuses_only_what_was_changed(
    memory_store: MemoryStore, collection: str, kind: str
) -> None:
    points = [hashed(n, stored=text, content_hash=SPELLINGS[kind](text)) for n, text in enumerate(TEXTS, 1)]
    changed = hashed(9, stored="it says something else now", content_hash=SPELLINGS[kind]("as it was"))
    fill(memory_store, collection, *points, changed)
    judged = found(ask(make_services(memory_store, collection), query_vector=EAST, top_k=8))
    assert judged.pop(9) == "changed"
    assert "changed" not in judged.values()
    assert list(judged.values()).count("verified") >= 5


DAMAGES: dict[str, Callable[[str], str]] = {
    "a line break at the end": lambda text: text + "\n",
    "a space at the beginning": lambda text: " " + text,
    "two spaces": lambda text: text.replace(" ", "  "),
    "upper case": str.upper,
    "line ends": lambda text: text.replace("\n", "\r\n"),
    "NFD": lambda text: normalize("NFD", text),
    "cut": lambda text: text[:-1],
    "the last line break is gone": str.rstrip,
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_the_smallest_damage_is_a_change(memory_store: MemoryStore, collection: str, kind: str) -> None:
    texts = [f"Text {n} of the café,\nin two lines\n" for n in range(1, 9)]
    damaged = [hashed(9, stored=DAMAGES[kind](texts[0]), content_hash=sha(texts[0]))]
    fill(
        memory_store, collection, *(hashed(n, stored=t, content_hash=sha(t)) for n, t in enumerate(texts, 1)), *damaged
    )
    judged = found(ask(make_services(memory_store, collection), query_vector=EAST, top_k=9))
    assert judged.pop(9) == "changed"
    assert set(judged.values()) == {"verified"}


@pytest.mark.parametrize("trait", [{"position": 2}, {"document_title": "Another"}, {}])
def test_a_hash_of_a_source_that_comes_after_the_sample_accuses_no_chunk(
    either: WritableStore, collection: str, trait: dict[str, Any]
) -> None:
    """The first hundred sources have one chunk each; a changed chunk has a hash that no other chunk has."""
    single = [hashed(n, url=f"{URL}/{n}", document_title=None) for n in range(200, 320)]
    parts = [
        hashed(n, url=f"{URL}/x", content_hash=sha("whole"), **({"document_title": None} | trait)) for n in (900, 901)
    ]
    changed = hashed(902, stored="changed", url=f"{URL}/902", document_title=None)
    fill(either, collection, *single, *parts, changed)
    services = make_services(either, collection)
    asked = {"query_vector": [0.0, 1.0], "top_k": 3}
    assert found(ask(services, **asked)) == {902: "changed", 901: "unknown", 900: "unknown"}
    assert found(ask(services, **asked, require_integrity=True)).keys() >= {901, 900}


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


MIXED: dict[str, Callable[[str], str]] = {
    "stripped": str.strip,
    "in NFC": lambda text: normalize("NFC", text),
    "title and text": lambda text: "A\n" + text,
    "text and title": lambda text: text + "A",
}


@pytest.mark.parametrize("kind", MIXED)
@pytest.mark.parametrize("percent", [1, 3, 10, 34, 50, 66, 90, 97, 99])
@pytest.mark.parametrize("spread", ["anywhere", "at the end"])
def test_two_pipelines_that_hash_other_forms_of_a_text_accuse_no_chunk(
    memory_store: MemoryStore, collection: str, kind: str, percent: int, spread: str
) -> None:
    random, count = Random(f"{kind} {percent}"), 130
    texts = [f" {word} cafe\u0301 of text {n}\n" for n, word in enumerate(random.choices("abc", k=count), 1)]
    other = {*random.sample(range(1, count + 1), max(1, count * percent // 100))}
    if spread == "at the end":
        other = {*range(count + 1 - len(other), count + 1)}
    points = [
        hashed(n, stored=text, content_hash=sha(MIXED[kind](text) if n in other else text))
        for n, text in enumerate(texts, 1)
    ]
    edited = sorted(random.sample(sorted({*range(1, count + 1)} - other), 1) + random.sample(sorted(other), 1))
    for n in edited:
        payload = {**points[n - 1].payload, "text": f"something else is here {n}"}
        points[n - 1] = Point(n, payload, vector=points[n - 1].vector)
    fill(memory_store, collection, *points)
    judged = found(ask(make_services(memory_store, collection), query_vector=EAST, top_k=100))
    judged |= found(ask(make_services(memory_store, collection), query_vector=[0.0, 1.0], top_k=100))
    assert len(judged) == count
    assert [n for n, integrity in sorted(judged.items()) if integrity == "changed"] == edited
