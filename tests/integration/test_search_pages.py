"""Pages: each result once, in the order of one long page, whatever is written in between."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.collection.services import Services
from chunkproof.contract import RetrievalResponse, SearchQuery
from chunkproof.embedders.embedder_port import InputType
from chunkproof.net.transport import DeadlineTransport
from chunkproof.search import modes
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import TEXT_VECTOR, Point, PointId, WritableStore

from support.chunks import ask, make_services
from support.stores import MemoryStore

COLLECTION = "pages"
UUID = "00000000-0000-4000-8000-{:012d}"


class East:
    """Every query lies in the east."""

    model, dimension, max_batch = "east", 2, 96

    def excess(self, _text: str) -> str | None:
        return None

    def embed(self, texts: Any, _kind: InputType, _deadline: Deadline) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]


def point(number: int, angle: float) -> Point:
    point_id: PointId = UUID.format(number) if number % 3 == 0 else number
    words = "pump " * (number % 4 + 1) + f"number{number}"
    return Point(point_id, {"text": words, "tenant": "ab"[number % 2]}, vector=(1.0, angle))


POINTS = tuple(point(number, number / 20) for number in range(1, 24))


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.server)])
def services(request: pytest.FixtureRequest, collection: str) -> Iterator[Services]:
    """A collection of its own for each test, which may write to it."""
    if request.param == "memory":
        store = MemoryStore()
    else:
        store = ServerStore(request.getfixturevalue("served_qdrant").url, DeadlineTransport())
    deadline = Deadline(60_000)
    store.create(collection, 2, deadline, text_search=True)
    write(store, collection, *POINTS)
    yield make_services(store, collection, East(), TENANT_CLAIM="org", TENANT_FIELD="tenant")
    store.close()


def write(store: WritableStore, collection: str, *points: Point) -> None:
    deadline = Deadline(60_000)
    fills = store.features(deadline).bm25
    store.upsert(collection, points, "", deadline, text_vector=TEXT_VECTOR if fills else None)


def pages(services: Services, **request: Any) -> Iterator[RetrievalResponse]:
    next_cursor: str | None = modes.START
    while next_cursor is not None:
        answer = ask(services, **{**request, "cursor": next_cursor})
        next_cursor = answer.next_cursor
        yield answer


def ids(*answers: RetrievalResponse) -> list[PointId | None]:
    return [result.point_id for answer in answers for result in answer.results]


@pytest.mark.parametrize("mode", ["dense", "text", "hybrid"])
@pytest.mark.parametrize("top_k", [5, 23])
def test_pages_have_every_result_once_in_the_order_of_one_page(services: Services, mode: str, top_k: int) -> None:
    query = {"query_text": "pump", "mode": mode}
    found = list(pages(services, **query, top_k=top_k))
    whole = ask(services, **query, top_k=100)
    assert sorted(map(str, ids(*found))) == sorted(map(str, ids(whole)))
    assert len(ids(whole)) == 23
    if mode == "dense":  # scores of words are equal in part
        assert ids(*found) == ids(whole)
    assert all(len(page.results) == top_k for page in found[:-1])
    assert [result.rank for result in found[-1].results] == list(range(1, len(found[-1].results) + 1))


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_pages_with_a_threshold_have_every_result_that_reaches_it_once(services: Services, mode: str) -> None:
    # The cosine of a point is 1 / sqrt(1 + angle ** 2): at least 0.8 up to an angle of 0.75, the 15th point.
    found = list(pages(services, query_text="pump number20", mode=mode, similarity_threshold=0.8, top_k=4))
    assert sorted(map(str, ids(*found))) == sorted(str(one.id) for one in POINTS[:15])
    assert [len(page.results) for page in found] == [4, 4, 4, 3]


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_what_is_written_between_pages_repeats_and_skips_nothing(services: Services, mode: str) -> None:
    store, collection = services.store, services.settings.collection
    assert isinstance(store, WritableStore)
    found = []
    for number, page in enumerate(pages(services, query_text="pump", mode=mode, top_k=5)):
        found.append(page)
        write(store, collection, point(100 + number, -0.01))
    seen = ids(*found)
    assert len(seen) == len(set(seen))
    assert {p.id for p in POINTS} <= set(seen)


def test_top_k_may_change_from_page_to_page(services: Services) -> None:
    first = ask(services, query_text="pump", cursor="start", top_k=3)
    second = ask(services, query_text="pump", cursor=first.next_cursor, top_k=20, with_payload=True)
    assert len(ids(first, second)) == len(set(ids(first, second))) == 23
    assert second.next_cursor is None


@pytest.mark.parametrize(
    "other",
    [{"highlight": True}, {"neighbours": 1}, {"explain": True}, {"mode": "dense"}, {"rerank": False}],
    ids=lambda fields: next(iter(fields)),
)
def test_what_does_not_change_the_ranking_may_change_from_page_to_page(
    services: Services, other: dict[str, Any]
) -> None:
    first = ask(services, query_text="pump", cursor="start", top_k=20)
    second = ask(services, query_text="pump", cursor=first.next_cursor, top_k=20, **other)
    assert len(set(ids(first, second))) == 23
    assert refused(services, query_text="pump", cursor=first.next_cursor, mode="hybrid")


def test_without_a_cursor_there_is_none(services: Services) -> None:
    assert ask(services, query_text="pump", top_k=1).next_cursor is None


def refused(services: Services, **request: Any) -> bool:
    try:
        ask(services, **request)
    except InvalidParameterError as error:
        return "does not belong to this query" in str(error)
    return False


def test_a_cursor_of_another_query_is_refused(services: Services) -> None:
    given = ask(services, query_text="pump", cursor="start", top_k=2).next_cursor
    assert given is not None
    assert not refused(services, query_text="pump", cursor=given)
    assert refused(services, query_text="pumps", cursor=given)
    assert refused(services, query_text="pump", cursor=given, mode="hybrid")
    assert refused(services, query_text="pump", cursor=given, similarity_threshold=0.1)
    assert refused(services, query_text="pump", cursor=given, filters={"tenant": "a"})
    assert refused(services.for_tenant("a"), query_text="pump", cursor=given)


def test_a_damaged_cursor_is_refused_wherever_it_was_changed(services: Services) -> None:
    given = ask(services, query_text="pump", cursor="start", top_k=2).next_cursor
    assert given is not None
    for at in range(len(given)):
        other = "A" if given[at] != "A" else "B"
        assert refused(services, query_text="pump", cursor=given[:at] + other + given[at + 1 :]), at
    for damaged in (given[:-4], given + "AAAA", given + "=", given + " ", "é", "!", "start ", "None", "AAAA", "a\x00"):
        assert refused(services, query_text="pump", cursor=damaged), damaged


def test_a_forged_cursor_is_refused(services: Services) -> None:
    """A caller knows its query and the format, but not the deployment's keys."""
    given = ask(services, query_text="pump", cursor="start", top_k=2).next_cursor
    assert given is not None
    other = services.settings.model_copy(update={"qdrant_api_key": SecretStr("another")})
    forging = replace(services, settings=other)
    forged = ask(forging, query_text="pump", cursor="start", top_k=2).next_cursor
    assert forged is not None
    assert refused(services, query_text="pump", cursor=forged)
    assert refused(forging, query_text="pump", cursor=given)
    assert not refused(replace(services), query_text="pump", cursor=given)  # another process of the same deployment


def test_pages_end_after_a_thousand_results(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkproof.search.modes.MAX_PAGED", 7)
    found = list(pages(services, query_text="pump", top_k=3))
    assert [len(page.results) for page in found] == [3, 3, 1]
    assert [page.notes for page in found] == [(), (), ("Pages end after 7 results: narrow the query, or filter",)]


def test_a_cursor_of_a_thousand_results_is_within_its_limit(services: Services) -> None:
    from chunkproof.contract.query import MAX_CURSOR

    query, collection = SearchQuery(query_text="x", cursor="start", top_k=999), services.collection(None)
    points = [Point(UUID.format(n), {}) for n in range(1000)]
    written = modes.Pages(query, collection).next_cursor(points)
    assert written is not None
    assert len(written) < MAX_CURSOR
    repeated = SearchQuery(query_text="x", cursor=written, top_k=999)
    assert len(modes.read_cursor(repeated, collection).seen) == 999


def test_a_cursor_of_more_results_than_pages_can_have_is_refused_whoever_made_it(services: Services) -> None:
    query, collection = SearchQuery(query_text="pump", cursor="start"), services.collection(None)
    packed = b"".join(modes._NUMBER + number.to_bytes(8) for number in range(3_000))
    made = modes.write_base64(modes._digest(packed, query, collection) + packed)
    assert refused(services, query_text="pump", cursor=made)
