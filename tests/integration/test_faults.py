"""Every fault of every service through the real handlers: its error code, in time, and the recovery."""

import os
from collections.abc import Iterator

import pytest

from support.api import Reply
from support.bedrock_server import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN
from support.cohere_server import KEY
from support.fault_table import DEADLINE_MS, Row, Setup, fault_names, fault_setup, run_fault
from support.openai_server import KEY as OPENAI_KEY
from support.qdrant_server import NoServerError

pytestmark = pytest.mark.server

# fault: (code, status, calls made to the service); a dash is a success.
FINE = ("-", 200, 1)
FAILED, LATE = ("EMBEDDING_FAILED", 503), ("EMBEDDING_TIMEOUT", 503)
DOWN, SILENT = ("QDRANT_UNAVAILABLE", 503), ("QDRANT_TIMEOUT", 503)
LIMITED = ("RATE_LIMITED", 429)


def common(failed: tuple[str, int], late: tuple[str, int]) -> dict[str, tuple[str, int, int]]:
    """The outcomes of the faults that every service has, in the codes of one service."""
    return {
        "latency": FINE,
        "connection refused": (*failed, 0),
        # A kept-alive connection is replaced once; a service that closes twice is not called again.
        "reset before any response": (*failed, 2),
        "closed before any response": (*failed, 2),
        "reset in mid-body": (*failed, 1),
        "truncated body": (*failed, 1),
        "truncated headers": (*failed, 2),
        "garbage": (*failed, 2),
        "stale keep-alive, reset": ("-", 200, 2),
        "stale keep-alive, closed": ("-", 200, 2),
        "half-open silence": (*late, 1),
        "never reads": (*late, 1),
        "slow drip": (*late, 1),
        "a web page": (*failed, 1),
        "another service's JSON": (*failed, 1),
        "JSON nested without end": (*failed, 1),
        "a gzip bomb": (*failed, 1),
        "status 400": (*failed, 1),
        "status 401": (*failed, 1),
        "status 403": (*failed, 1),
        "status 404": (*failed, 1),
        "status 408": (*late, 1),
        "status 409": (*failed, 1),
        "status 413": (*failed, 1),
        "status 422": (*failed, 1),
        "status 429": (*LIMITED, 2),
        "status 500": (*failed, 2),
        "status 502": (*failed, 2),
        "status 503": (*failed, 2),
        "status 504": (*late, 2),
        # Seven seconds exceed the deadline: the caller gets retry-after, and the handler does not wait.
        "status 429, retry in 7 s": (*LIMITED, 1),
        "status 429, retry at a date": (*LIMITED, 1),
        "status 503, retry in 7 s": (*failed, 1),
        "status 503, retry at a date": (*failed, 1),
    }


MISSING = ("COLLECTION_NOT_FOUND", 404)
NOT_RERANKED = ("marked RERANK_FAILED", 200, 1)
TOO_LARGE = ("RESPONSE_TOO_LARGE", 413, 1)
EMBEDDER = {
    **common(FAILED, LATE),
    "embeddings missing": (*FAILED, 1),
    "no embeddings": (*FAILED, 1),
    "wrong dimension": ("DIMENSION_MISMATCH", 400, 1),
    "an embedding with NaN": (*FAILED, 1),
    "an embedding without values": (*FAILED, 1),
    "an embedding of nulls": (*FAILED, 1),
    "an embedding of zeros": (*FAILED, 1),
}
EXPECTED: dict[str, dict[str, tuple[str, int, int]]] = {
    "cohere": EMBEDDER,
    "openai": {**EMBEDDER, "wrong indexes": (*FAILED, 1)},
    "bedrock": EMBEDDER,
    # The answer is that of the search, and says so.
    "rerank": {
        **{
            name: (code if code == "-" else f"marked {code}", 200, calls)
            for name, (code, _, calls) in common(("RERANK_FAILED", 503), ("RERANK_TIMEOUT", 503)).items()
        },
        "results missing": NOT_RERANKED,
        "no results": NOT_RERANKED,
        "a wrong index": NOT_RERANKED,
        "a negative index": NOT_RERANKED,
        "an index twice": NOT_RERANKED,
        "one result too many": NOT_RERANKED,
        "a score of NaN": NOT_RERANKED,
        "a score of null": NOT_RERANKED,
    },
    "rerank, required": {
        "connection refused": ("RERANK_FAILED", 503, 0),
        "half-open silence": ("RERANK_TIMEOUT", 503, 1),
        "garbage": ("RERANK_FAILED", 503, 2),
        "status 429, retry in 7 s": (*LIMITED, 1),
        "status 500": ("RERANK_FAILED", 503, 2),
        "a score of NaN": ("RERANK_FAILED", 503, 1),
    },
    "qdrant": {
        **common(DOWN, SILENT),
        "a gzip bomb": TOO_LARGE,
        # A refusal may mean that the collection was created anew, so it is described once more.
        "status 400": (*DOWN, 2),
        "status 404": (*MISSING, 2),
        "status 422": (*DOWN, 2),
        "result missing": (*DOWN, 1),
        "result null": (*DOWN, 1),
        "result of the wrong type": (*DOWN, 1),
        "points without score": (*DOWN, 1),
        "score NaN": (*DOWN, 1),
        "score null": (*DOWN, 1),
        "payload null": ("CORRUPT_CHUNK", 500, 1),
        "payload a string": (*DOWN, 1),
        "collection dropped": (*MISSING, 2),
        "collection made anew": FINE,
        "server killed": (*DOWN, 2),
        "server killed and restarted": FINE,
    },
    # Both legs are one request.
    "qdrant, hybrid": {
        "connection refused": (*DOWN, 0),
        "half-open silence": (*SILENT, 1),
        "slow drip": (*SILENT, 1),
        "status 400": (*DOWN, 2),
        "status 404": (*MISSING, 2),
        "status 429, retry in 7 s": (*LIMITED, 1),
        "result missing": (*DOWN, 1),
        "result of the wrong type": (*DOWN, 1),
        "points without score": (*DOWN, 1),
        "score NaN": (*DOWN, 1),
        "payload null": ("CORRUPT_CHUNK", 500, 1),
        "collection dropped": (*MISSING, 2),
        "collection made anew": FINE,
        "server killed": (*DOWN, 2),
        "server killed and restarted": FINE,
    },
    # A chunk is looked up by its point id only: payloads have no id here.
    "qdrant by id": {
        **common(DOWN, SILENT),
        "latency": ("-", 200, 1),
        "stale keep-alive, reset": ("-", 200, 2),
        "stale keep-alive, closed": ("-", 200, 2),
        "a gzip bomb": TOO_LARGE,
        "status 404": (*MISSING, 1),
        "result missing": (*DOWN, 1),
        "result null": (*DOWN, 1),
        "result of the wrong type": (*DOWN, 1),
        "points without score": ("-", 200, 1),
        "score NaN": ("-", 200, 1),
        "score null": ("-", 200, 1),
        "payload null": ("CORRUPT_CHUNK", 500, 1),
        "payload a string": (*DOWN, 1),
        "collection dropped": (*MISSING, 1),
        "collection made anew": ("-", 200, 1),
        "server killed": (*DOWN, 2),
        "server killed and restarted": ("-", 200, 1),
    },
}
# What each message must name.
HINTS = {
    "EMBEDDING_FAILED": "Failed to embed query: ",
    "EMBEDDING_TIMEOUT": "Failed to embed query: ",
    "RERANK_FAILED": "Failed to rerank: ",
    "RERANK_TIMEOUT": "Failed to rerank: ",
    "QDRANT_UNAVAILABLE": "Qdrant service unavailable at 127.0.0.1:",
    "QDRANT_TIMEOUT": "Qdrant service unavailable at 127.0.0.1:",
    "COLLECTION_NOT_FOUND": "Collection faults not found",
}


@pytest.fixture(scope="module")
def setup() -> Iterator[Setup]:
    try:
        with fault_setup() as made:
            if not made.server.command:
                pytest.skip("the server at TEST_QDRANT_URL is not ours to stop")
            yield made
    except NoServerError as reason:
        if os.environ.get("CHUNKPROOF_REQUIRE_SERVER"):
            pytest.fail(f"a Qdrant server is required here: {reason}")
        pytest.skip(f"no Qdrant server: {reason}")


@pytest.fixture(autouse=True)
def _nothing_configured() -> None:
    """No settings: those of this module come from the setup."""


def test_every_fault_has_an_expected_outcome() -> None:
    assert {(dependency, name) for dependency, rows in EXPECTED.items() for name in rows} == set(fault_names())


@pytest.mark.parametrize(("dependency", "name"), list(fault_names()), ids=lambda part: part.replace(" ", "-"))
def test_a_fault_has_its_error_code_in_time_and_the_next_request_succeeds(
    setup: Setup, dependency: str, name: str
) -> None:
    row = run_fault(setup, dependency, name)
    assert (row.code, row.status, row.calls) == EXPECTED[dependency][name]
    assert row.is_in_time, f"{row.ms:.0f} of {DEADLINE_MS} ms"
    assert row.recovered
    assert_words(row, name)


def assert_words(row: Row, name: str) -> None:
    reply: Reply = row.reply
    if row.status == 200:
        assert "http://" not in reply.text
        return
    assert reply.errors[0].startswith(HINTS.get(row.code, ""))
    assert reply.headers.get("retry-after") == ("7" if "retry" in name else None)
    keys = (KEY, OPENAI_KEY, ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)
    for secret in (*keys, "/v2/embed", "/v2/rerank", "/v1", "/model", "/points", "http://", "Traceback"):
        assert secret not in reply.text
