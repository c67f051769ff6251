"""A server in strict mode, the default of Qdrant Cloud: filters need an index, and reads are limited."""

import re
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from qdrant_client import models

from chunkproof.base.errors import IndexRequiredError, RateLimitedError, VectorStoreRefusedError
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import parse_filters
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import (
    DenseLeg,
    Grouping,
    Point,
    StoreQuery,
    TextLeg,
    VectorConfig,
    WritableStore,
)
from chunkproof_cli.commands.copying import read_all

from support.chunks import nearest
from support.sdk import sdk

pytestmark = pytest.mark.server

PAYLOAD = {
    "text": "one",
    "language": "en",
    "pages": 10,
    "price": 0.25,
    "free": True,
    "published": "2025-12-15T10:30:00Z",
    "meta": {"author": "Ada"},
    "tags": ["a", "b"],
    "reading level": "easy",
}
ADVICE = re.compile(r'create_payload_index\("(.+?)", field_name="(.+)", field_schema="(\w+)"\)')

Strict = Callable[..., str]


@pytest.fixture
def strict(server_store: WritableStore, collection: str, deadline: Deadline) -> Strict:
    """Creates a collection of one point with the given strict-mode settings."""

    def make(**rules: Any) -> str:
        sdk(server_store).create_collection(
            collection,
            vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE),
            strict_mode_config=models.StrictModeConfig(enabled=True, **rules),
        )
        server_store.upsert(collection, [Point(1, PAYLOAD, vector=(1.0, 0.0))], "", deadline)
        return collection

    return make


def test_the_error_of_a_filter_without_an_index_names_the_field_and_the_call(
    server_store: WritableStore, strict: Strict, deadline: Deadline
) -> None:
    name = strict(unindexed_filtering_retrieve=False)
    where = parse_filters({"language": "en"})
    calls: list[Callable[[], object]] = [
        lambda: server_store.scroll(name, deadline, limit=5, where=where),
        lambda: nearest(server_store, name, (1.0, 0.0), where=where),
    ]
    for call in calls:
        with pytest.raises(IndexRequiredError) as caught:
            call()
        assert (caught.value.code, caught.value.status) == ("INDEX_REQUIRED", 400)
        assert caught.value.messages == (
            f"Collection {name} needs a payload index on language to filter by it: "
            f'create_payload_index("{name}", field_name="language", field_schema="keyword")',
        )


def test_without_a_filter_no_index_is_needed(server_store: WritableStore, strict: Strict, deadline: Deadline) -> None:
    name = strict(unindexed_filtering_retrieve=False)
    assert [point.id for point in server_store.scroll(name, deadline, limit=5).points] == [1]


def select_after_indexing(
    server_store: WritableStore, name: str, filters: dict[str, Any], deadline: Deadline
) -> list[Any]:
    """Create every index that the errors name, and return what the filter selects."""
    for _ in range(4):
        try:
            page = server_store.scroll(name, deadline, limit=5, where=parse_filters(filters))
        except IndexRequiredError as error:
            advised = ADVICE.search(error.message)
            assert advised is not None
            _, field, schema = advised.groups()
            sdk(server_store).create_payload_index(name, field, field_schema=schema, wait=True)
        else:
            return [point.id for point in page.points]
    raise AssertionError("the advice does not help")


@pytest.mark.parametrize(
    "filters",
    [
        {"language": "en"},
        {"language": ["en", "de"]},
        {"pages": 10},
        {"pages": [10, 20]},
        {"pages": {"gte": 10}},
        {"price": 0.25},
        {"price": {"lt": 1}},
        {"free": True},
        {"published": {"gte": "2025-12-01"}},
        {"meta.author": "Ada"},
        {"tags[]": "a"},
        {"tags": ["a", "x"]},
        {"not": {"language": "de"}},
        {"language": "en", "pages": 10, "not": {"free": False}},
        {"reading level": "easy"},
    ],
    ids=str,
)
def test_the_filter_works_after_the_named_indexes_are_created(
    server_store: WritableStore, strict: Strict, deadline: Deadline, filters: dict[str, Any]
) -> None:
    name = strict(unindexed_filtering_retrieve=False)
    assert select_after_indexing(server_store, name, filters, deadline) == [1]


def test_an_integer_index_serves_a_range(server_store: WritableStore, strict: Strict, deadline: Deadline) -> None:
    name = strict(unindexed_filtering_retrieve=False)
    sdk(server_store).create_payload_index(name, "pages", field_schema="integer", wait=True)
    assert select_after_indexing(server_store, name, {"pages": {"gte": 10}}, deadline) == [1]


def test_an_index_of_another_type_is_not_reported_as_unavailable(
    server_store: WritableStore, strict: Strict, deadline: Deadline
) -> None:
    name = strict(unindexed_filtering_retrieve=False)
    sdk(server_store).create_payload_index(name, "pages", field_schema="keyword", wait=True)
    with pytest.raises(IndexRequiredError):
        server_store.scroll(name, deadline, limit=5, where=parse_filters({"pages": {"gte": 10}}))


def test_only_strict_mode_requires_an_index(server_store: WritableStore, collection: str, deadline: Deadline) -> None:
    server_store.create(collection, 2, deadline)
    of_another_size = VectorConfig("", 3, "Cosine")
    where = parse_filters({"pages": 10})
    try:
        nearest(server_store, collection, (1.0, 0.0, 0.0), config=of_another_size, where=where)
    except IndexRequiredError as error:
        pytest.fail(f"nothing is missing here, yet: {error}")
    except Exception:  # noqa: BLE001 - whatever else it is
        return


def test_a_rate_limit_is_a_429_with_retry_after(
    server_store: WritableStore, strict: Strict, deadline: Deadline
) -> None:
    name = strict(read_rate_limit=1)
    server_store.scroll(name, deadline, limit=1)
    with pytest.raises(RateLimitedError) as caught:
        server_store.scroll(name, deadline, limit=1)
    assert (caught.value.code, caught.value.status) == ("RATE_LIMITED", 429)
    assert caught.value.retry_after is not None
    assert 0 < caught.value.retry_after <= 60


@pytest.mark.parametrize("most", [1, 7, 40])
def test_reads_are_made_in_pages_that_the_highest_limit_allows(
    server_store: WritableStore, collection: str, most: int, deadline: Deadline
) -> None:
    assert isinstance(server_store, ServerStore)
    points = [
        Point(n, {"text": f"pump {n}", "chunk_id": str(n), "document": f"d{n % 9}"}, vector=(1.0, n / 50))
        for n in range(1, 41)
    ]
    server_store.create(collection, 2, deadline, text_search=True)
    server_store.upsert(collection, points, "", deadline, text_vector="bm25")
    sdk(server_store).create_payload_index(collection, "document", field_schema="keyword", wait=True)
    text, dense = TextLeg("pump", sparse_vector="bm25"), DenseLeg(VectorConfig("", 2, "Cosine"), (1.0, 0.0))
    grouped = StoreQuery(collection, 5, dense, grouping=Grouping("document", 3))
    reads: dict[str, Callable[[ServerStore], object]] = {
        "search": lambda store: store.search([StoreQuery(collection, 30, dense)], deadline),
        "searches": lambda store: store.search([StoreQuery(collection, n, dense) for n in (3, 30)], deadline),
        "words": lambda store: {p.id for p in store.search([StoreQuery(collection, 40, text=text)], deadline)[0]},
        "groups": lambda store: store.search([grouped], deadline),
        "pages": lambda store: store.scroll(collection, deadline, limit=33),
        "rest": lambda store: store.scroll(collection, deadline, limit=33, start=35),
        "points": lambda store: sorted(p.id for p in store.fetch(collection, range(1, 41), deadline)),
        "count": lambda store: store.count(collection, (), deadline),
        "copied": lambda store: [point["id"] for point in read_all(store, collection)],
    }
    without = {name: read(server_store) for name, read in reads.items()}
    rules = models.StrictModeConfig(enabled=True, max_query_limit=most, search_allow_exact=False)
    sdk(server_store).update_collection(collection, strict_mode_config=rules)
    for name, read in reads.items():
        with closing(ServerStore(server_store.url, DeadlineTransport())) as unaware:
            assert read(unaware) == without[name], name
        with closing(ServerStore(server_store.url, DeadlineTransport())) as aware:
            assert aware.describe(collection, deadline).max_limit == most
            assert read(aware) == without[name], name
    facets = server_store.facet(collection, "document", (), deadline, limit=5)
    assert facets is not None
    assert len(facets) == min(5, most)
    hybrid = StoreQuery(collection, 5, dense, text, candidates=20)
    assert 1 <= len(server_store.search([hybrid], deadline)[0]) <= 5
    with pytest.raises(VectorStoreRefusedError, match=f"at most {most} results with diversity"):
        server_store.search([StoreQuery(collection, 41, dense, diversity=0.5)], deadline)
