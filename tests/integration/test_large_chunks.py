"""A collection of chunks of a megabyte each stays usable: pages are limited in bytes too."""

from collections.abc import Iterator

import pytest

from chunkproof.base.errors import ResponseTooLargeError
from chunkproof.base.request import Deadline
from chunkproof.collection.facts import collection_info
from chunkproof.collection.services import PAGE_BYTES, SAMPLE_POINTS, Services
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import Point
from chunkproof_cli.doctor.collection_checks import check_collection
from chunkproof_cli.doctor.doctor_report import Level

from support.chunks import ask, check, fill, make_services
from support.qdrant_server import QdrantServer

pytestmark = pytest.mark.server

SMALL, LARGE = 3, 90
MEGABYTE = 1_000_000
COLLECTION = "large-chunks"
LAMBDA_MS = 2_000


def text_of(number: int) -> str:
    return f"chunk {number} " if number <= SMALL else f"chunk {number} ".ljust(MEGABYTE, "x")


def point(number: int) -> Point:
    payload = {"chunk_id": f"c-{number}", "text": text_of(number), "url": f"https://example.org/{number}"}
    return Point(number, payload, vector=(1.0, number / 100))


@pytest.fixture(scope="module")
def large_chunks(served_qdrant: QdrantServer) -> Iterator[Services]:
    """Three small chunks, then ninety of a megabyte: all of them together exceed what one response may have."""
    store = ServerStore(served_qdrant.url, DeadlineTransport())
    fill(store, COLLECTION, *map(point, range(1, SMALL + 1)))
    for first in range(SMALL + 1, SMALL + LARGE + 1, 15):
        numbers = range(first, min(first + 15, SMALL + LARGE + 1))
        store.upsert(COLLECTION, [point(number) for number in numbers], "", Deadline(60_000))
    yield make_services(store, COLLECTION)
    store.close()


@pytest.fixture
def services(large_chunks: Services) -> Services:
    """Services that know nothing of the collection yet."""
    large_chunks.forget(COLLECTION)
    return large_chunks


def test_the_whole_collection_is_more_than_one_response_may_have(services):
    with pytest.raises(ResponseTooLargeError):
        services.store.scroll(COLLECTION, Deadline(60_000), limit=SAMPLE_POINTS)


def test_a_sample_has_fewer_points_where_they_are_large(services):
    payloads = services.collection(COLLECTION, Deadline(LAMBDA_MS)).sample.payloads

    assert SMALL < len(payloads) < SMALL + LARGE
    assert [payload["chunk_id"] for payload in payloads] == [f"c-{n + 1}" for n in range(len(payloads))]
    assert sum(len(str(payload["text"])) for payload in payloads) <= PAGE_BYTES


def test_a_chunk_is_validated_within_a_functions_deadline(services):
    assert check(services, "c-50", original_text=text_of(50)).matches
    assert check(services, "c-50", original_text=text_of(50) + "!").mismatch.kind == "truncated"


def test_a_filtered_search_finds_a_large_chunk(services):
    found = ask(services, query_vector=[1.0, 0.5], filters={"url": "https://example.org/77"}, top_k=5)

    assert [result.metadata.chunk_id for result in found.results] == ["c-77"]


def test_the_collection_is_described(services):
    info = collection_info(services.collection(COLLECTION, Deadline(LAMBDA_MS)))

    assert info.points_count == SMALL + LARGE
    assert info.payload_map["text"] == "text"


def test_the_doctor_reads_it(services):
    report = check_collection(COLLECTION, services, lambda: Deadline(10_000))

    failed = [found.check for found in report.checks if found.level is Level.FAIL]
    assert failed == ["search"]  # for want of an embedder
    assert report.shares["text"] == 1.0


def test_many_ids_are_found_at_once(services):
    ids = {f"c-{number}": None for number in range(1, 21)}

    found = services.collection(COLLECTION, Deadline(10_000)).find(ids)

    assert sorted(found.points) == sorted(ids)


def test_a_page_that_does_not_fit_is_read_in_parts(services):
    start, limit, seen = None, 50, []
    while True:
        page = services.collection(COLLECTION, Deadline(10_000)).page(limit, start=start)
        limit = len(page.points)
        seen += [found.id for found in page.points]
        if page.next_id is None:
            break
        start = page.next_id

    assert seen == list(range(1, SMALL + LARGE + 1))
