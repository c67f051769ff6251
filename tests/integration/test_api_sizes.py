"""What Lambda cannot return: compressed where the caller takes gzip, otherwise refused, never cut."""

import json
import random
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from chunkproof.base.errors import ResponseTooLargeError
from chunkproof.base.request import Deadline
from chunkproof.service import container
from chunkproof.service.oversized import MAX_RESPONSE_BYTES, fit_to_lambda_limit
from chunkproof.stores.store_port import Point, WritableStore

from support.api import Reply, get, invoke, post
from support.chunks import fill, make_services
from support.stores import MemoryStore

LIMIT = 6_291_556
URL = "https://docs.example.com/a"
GZIP = {"accept-encoding": "gzip"}
COLLECTION = "big"


def noise(characters: int, seed: int) -> str:
    """Text that gzip can make little smaller: hex digits of random bytes keep half of their size."""
    return random.Random(seed).randbytes(characters // 2).hex()


def chunk(number: int, text: str, **payload: Any) -> Point:
    full = {"text": text, "url": URL, "document_title": "A", **payload}
    return Point(number, full, vector=(1.0, number / 1000))


@pytest.fixture(scope="module")
def store() -> Iterator[WritableStore]:
    """Eight chunks of a megabyte, best first in the order of their numbers."""
    made = MemoryStore()
    fill(made, COLLECTION, *(chunk(n, f"{n} " + 'é\u0301\n"\\' * 166_000) for n in range(1, 9)))
    fill(made, "noise", *(chunk(n, noise(1_300_000, n)) for n in range(1, 9)))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _deployed(store: WritableStore) -> Iterator[None]:
    with container.override(make_services(store, COLLECTION)):
        yield


def search(top_k: int, headers: dict[str, str] | None = None, **fields: Any) -> Reply:
    return invoke(post("/search", {"query_vector": [1, 0], "top_k": top_k, **fields}, headers))


def fitting(reply: Reply) -> int:
    """How many results the refusal says fit."""
    assert (reply.status, reply.code) == (413, "RESPONSE_TOO_LARGE")
    assert reply.json["results"] == []
    said = re.search(r"the first (\d+) of (\d+) results fit", reply.errors[0])
    assert said is not None, reply.errors
    return int(said[1])


def proxy(body: str) -> dict[str, Any]:
    return {
        "statusCode": 200,
        "headers": {"content-type": "application/json", "x-request-id": "r-1"},
        "body": body,
        "isBase64Encoded": False,
    }


def of_size(size: int, filler: str = "a") -> dict[str, Any]:
    """A validation's answer whose JSON-encoded proxy response has exactly this many bytes."""
    empty = len(json.dumps(proxy('{"stored_text":""}'), ensure_ascii=False).encode())
    wide = len(json.dumps(filler, ensure_ascii=False).encode()) - 2
    count, rest = divmod(size - empty, wide)
    made = proxy('{"stored_text":"' + filler * count + "a" * rest + '"}')
    assert len(json.dumps(made, ensure_ascii=False).encode()) == size
    return made


# the limit itself


@pytest.mark.parametrize("filler", ["a", "é", "漢", "🤖", "\\\\"])
def test_an_answer_of_exactly_the_limit_goes_out_as_it_is(filler: str) -> None:
    answer = of_size(LIMIT, filler)
    assert fit_to_lambda_limit(answer, "gzip") is answer


@pytest.mark.parametrize("filler", ["a", "é", "漢", "🤖", "\\\\"])
def test_a_byte_more_does_not(filler: str) -> None:
    answer = of_size(LIMIT + 1, filler)
    with pytest.raises(ResponseTooLargeError, match=rf"^The response has {LIMIT + 1} bytes"):
        fit_to_lambda_limit(answer, "")
    packed = Reply(fit_to_lambda_limit(answer, "gzip"))
    assert packed.text == answer["body"]
    assert packed.size < LIMIT


def test_the_limit_is_lambdas() -> None:
    assert MAX_RESPONSE_BYTES == LIMIT


# search


def test_what_fits_is_returned_whole() -> None:
    reply = search(2)
    assert (reply.status, reply.proxy["isBase64Encoded"]) == (200, False)
    assert "content-encoding" not in reply.headers
    texts = [result["text"] for result in reply.json["results"]]
    assert texts == [f"{n} " + 'é\u0301\n"\\' * 166_000 for n in (1, 2)]


def test_what_does_not_fit_is_compressed_for_a_caller_who_takes_gzip() -> None:
    reply = search(8, GZIP)
    assert (reply.status, reply.proxy["isBase64Encoded"]) == (200, True)
    assert (reply.headers["content-encoding"], reply.headers["vary"]) == ("gzip", "accept-encoding")
    assert reply.headers["x-request-id"]
    assert reply.size <= LIMIT
    assert [r["text"] for r in reply.json["results"]] == [f"{n} " + 'é\u0301\n"\\' * 166_000 for n in range(1, 9)]


@pytest.mark.parametrize(
    "offer",
    [
        "gzip",
        "GZIP",
        "deflate, gzip;q=1.0, *;q=0.5",
        "*",
        "br;q=1.0, gzip;q=0.001",
        pytest.param(
            "gzip ; q=0.8",
        ),
    ],
)
def test_gzip_may_be_offered_in_many_ways(offer: str) -> None:
    assert search(8, {"accept-encoding": offer}).status == 200


def test_the_offer_is_found_whatever_the_case_of_its_header() -> None:
    assert search(8, {"Accept-Encoding": "gzip"}).status == 200


@pytest.mark.parametrize(
    "offer",
    [
        "",
        "identity",
        "br, deflate",
        "gzip;q=0",
        "gzip; q=0.0",
        "*;q=0",
        "gzipped",
        pytest.param(
            "gzip;q=0.000",
        ),
        pytest.param(
            "gzip;q=0.00",
        ),
        pytest.param(
            "gzip;q=0, *",
        ),
    ],
)
def test_without_an_offer_of_gzip_it_is_refused(offer: str) -> None:
    reply = search(8, {"accept-encoding": offer})
    assert (reply.status, reply.code) == (413, "RESPONSE_TOO_LARGE")
    assert "content-encoding" not in reply.headers
    assert reply.errors[0].endswith("lower top_k, or accept gzip")


def test_a_refusal_says_how_many_results_fit() -> None:
    count = fitting(search(8))
    assert 0 < count < 8
    fits = search(count)
    assert (fits.status, len(fits.json["results"])) == (200, count)
    assert fits.size <= LIMIT
    assert fitting(search(count + 1)) == count


def test_a_refusal_names_the_size_and_the_limit() -> None:
    reply = search(8)
    assert re.match(rf"The response has \d{{7,8}} bytes and Lambda returns at most {LIMIT}; ", reply.errors[0])
    assert (reply.json["status"], reply.json["execution"]["result_count"]) == ("error", 0)
    assert reply.size < 2_000


def test_the_count_holds_for_results_with_vectors() -> None:
    result = '{"rank":1,"text":"t","vector":[' + ",".join("0" * 5_000) + "]}"  # one byte a value, one a comma

    def answer(count: int) -> dict[str, Any]:
        return proxy('{"results":[' + ",".join([result] * count) + "]}")

    def size(count: int) -> int:
        return len(json.dumps(answer(count), ensure_ascii=False).encode())

    one_more = size(2) - size(1)
    most = 1 + (LIMIT - size(1)) // one_more
    assert size(most) <= LIMIT < size(most + 1)
    with pytest.raises(ResponseTooLargeError, match=f"the first {most} of 800 results fit"):
        fit_to_lambda_limit(answer(800), "")


def test_what_gzip_cannot_shrink_is_refused_with_what_fits() -> None:
    refused = search(8, GZIP, collection="noise")
    count = fitting(refused)
    assert search(count, GZIP, collection="noise").status == 200
    # One more is over the limit in the clear, and fits compressed.
    assert search(count + 1, collection="noise").status == 413
    assert search(count + 1, GZIP, collection="noise").proxy["isBase64Encoded"] is True


def test_a_first_result_that_is_too_large_alone_is_not_to_be_had_by_a_lower_top_k(store: WritableStore) -> None:
    if "one" not in store.collections(Deadline(60_000)):
        fill(store, "one", chunk(1, "x" * 7_000_000))
    reply = search(1, collection="one")
    assert (reply.status, reply.code) == (413, "RESPONSE_TOO_LARGE")
    assert "lower top_k" not in reply.errors[0]


# validation


def test_a_large_validation_is_compressed_or_refused(store: WritableStore) -> None:
    text = "é" * 1_600_000
    fill(store, "long", chunk(1, text))
    asked = {"chunk_id": "1", "collection": "long", "original_text": text}
    packed = invoke(post("/validate-chunk", asked, GZIP))
    assert (packed.status, packed.proxy["isBase64Encoded"]) == (200, True)
    assert packed.json["matches"] is True
    assert packed.json["stored_text"] == packed.json["original_text"] == text
    refused = invoke(post("/validate-chunk", asked))
    assert (refused.status, refused.code) == (413, "RESPONSE_TOO_LARGE")
    assert refused.errors[0].endswith("; compare by original_sha256, or accept gzip")


def test_the_advice_for_a_large_validation_holds(store: WritableStore) -> None:
    text = "漢" * 1_600_000
    fill(store, "longer", chunk(1, text))
    asked = {"chunk_id": "1", "collection": "longer"}
    assert invoke(post("/validate-chunk", {**asked, "original_text": text[:-1]})).status == 413
    by_hash = {**asked, "original_sha256": sha256(text.encode()).hexdigest()}
    reply = invoke(post("/validate-chunk", by_hash))
    assert (reply.status, reply.json["matches"], reply.json["stored_text"] == text) == (200, True, True)


def test_small_answers_are_never_compressed() -> None:
    reply = invoke({**get("/health"), "headers": GZIP})
    assert (reply.status, reply.proxy["isBase64Encoded"]) == (200, False)
