"""Every committed event, through the very handlers, against a real Qdrant server and Cohere's API."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from chunkproof.base.request import Deadline
from chunkproof.contract import SearchQuery
from chunkproof.net.transport import DeadlineTransport
from chunkproof.search.single import search
from chunkproof.service import container
from chunkproof.stores.server import ServerStore
from chunkproof_cli.local.gateway import LambdaContext
from chunkproof_cli.local.sandbox_services import OTHER_MODEL, OTHER_SIZE

from support import openapi
from support.api import EVENTS, Reply, committed_event, invoke, new_process
from support.cohere_server import KEY, CohereServer
from support.handbook import COLLECTION, chunks, loaded_handbook
from support.qdrant_server import QdrantServer
from support.sdk import sdk

pytestmark = pytest.mark.server
NAMES = sorted(file.name for file in EVENTS.glob("*.json"))
FIRST = "vectordb-text-hygiene-00"


@pytest.fixture(scope="module")
def cohere(served_qdrant: QdrantServer) -> Iterator[CohereServer]:
    with loaded_handbook(served_qdrant.url) as api:
        yield api


@pytest.fixture(scope="module")
def _other_model(served_qdrant: QdrantServer) -> Iterator[None]:
    """A collection whose vectors have another size than the embedder's, as the sandbox has one."""
    store = ServerStore(served_qdrant.url, DeadlineTransport())
    store.create(OTHER_MODEL, OTHER_SIZE, Deadline(60_000))
    yield
    sdk(store).delete_collection(OTHER_MODEL)
    store.close()


@pytest.fixture(autouse=True)
def _deployed(
    cohere: CohereServer, _other_model: None, served_qdrant: QdrantServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    monkeypatch.setenv("COHERE_API_KEY", KEY)
    monkeypatch.setenv("COHERE_BASE_URL", cohere.url)
    monkeypatch.setenv("CHUNKPROOF_DEADLINE_MS", "20000")
    with new_process():
        yield


def answer(name: str) -> Reply:
    return invoke(committed_event(name))


def stored_text(chunk_id: str) -> str:
    return next(chunk.text for chunk in chunks() if chunk.chunk_id == chunk_id)


def found(reply: Reply) -> list[tuple[str, float]]:
    return [(r["metadata"]["chunk_id"], r["similarity_score"]) for r in reply.json["results"]]


# what every event has in common


def test_there_is_an_event_for_every_route() -> None:
    assert {name.split(".")[0] for name in NAMES} == {
        "search",
        "validate-chunk",
        "validate-chunks",
        "collections",
        "health",
        "mcp",
    }


@pytest.mark.parametrize("name", NAMES)
def test_an_event_is_answered_with_the_status_in_its_name(name: str) -> None:
    assert answer(name).status == (int(name.split(".")[1].split("-", maxsplit=1)[0]) if name.count(".") > 1 else 200)


# POST /mcp answers as its protocol says (test_agents.py), not as the OpenAPI document does.
@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("mcp.")])
def test_an_answer_is_what_the_openapi_document_promises(name: str) -> None:
    event = committed_event(name)
    reply = invoke(event)
    http = event["requestContext"]["http"]
    assert openapi.problems(http["method"], http["path"], reply.status, reply.json) == []


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_json_in_the_clear_and_carries_the_request_id(name: str) -> None:
    context = LambdaContext(aws_request_id="c6af9ac6-7b61-11e6-9a41-93e8deadbeef")
    reply = invoke(committed_event(name), context)
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"] == "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"
    assert reply.proxy["isBase64Encoded"] is False
    assert isinstance(json.loads(reply.proxy["body"]), dict)


@pytest.mark.parametrize("name", [name for name in NAMES if ".400" in name or ".404" in name])
def test_a_failure_is_the_contracts_envelope(name: str) -> None:
    reply = answer(name)
    body = reply.json
    assert (body["status"], body["results"]) == ("error", [])
    assert body["errors"][0] == body["error"]["message"]
    execution = body["execution"]
    assert (execution["result_count"], execution["threshold_applied"]) == (0, 0.0)
    assert (execution["embedding_time_ms"], execution["latency_ms"] >= 0) == (0.0, True)


# search


def test_a_collection_of_another_model_is_a_mismatch_that_names_both_sizes() -> None:
    reply = answer("search.400-other-model.json")
    assert reply.code == "DIMENSION_MISMATCH"
    assert "384" in reply.errors[0]
    assert "collection other-model" in reply.errors[0]


def test_an_embedder_that_is_down_is_a_503() -> None:
    assert answer("search.503-embedder-down.json").code == "EMBEDDING_FAILED"


def test_a_query_given_as_a_vector_finds_what_its_text_finds() -> None:
    assert found(answer("search.200-query-vector.json"))[0][0] == found(answer("search.json"))[0][0]


def test_the_explained_event_is_reranked_and_has_all_additions() -> None:
    body = answer("search.200-explained.json").json
    assert (body["execution"]["rerank"]["status"], body["execution"]["rerank"]["candidates"]) == ("applied", 5)
    assert body["explain"]["random_scores"]["sample_size"] > 10
    for result in body["results"]:
        assert {"scores", "highlight", "neighbours", "explain"} <= set(result)
        sentence = result["highlight"]["sentence"]
        assert result["text"][sentence["start"] : sentence["end"]] == sentence["text"]
        assert result["explain"]["confidence"]["percentile"] > 50


@pytest.mark.parametrize("name", ["search.200.json", "search.200-filtered.json", "search.200-no-match.json"])
def test_a_search_finds_what_the_use_case_finds(name: str) -> None:
    asked = SearchQuery.parse(json.loads(committed_event(name)["body"]))
    expected = search(asked, container.services().collection(asked.collection, Deadline(60_000)))
    reply = answer(name)
    assert [chunk_id for chunk_id, _ in found(reply)] == [r.metadata.chunk_id for r in expected.results]
    assert [score for _, score in found(reply)] == pytest.approx(
        [r.similarity_score for r in expected.results], abs=1e-5
    )


def test_a_result_is_the_stored_chunk_with_all_that_is_known_of_it() -> None:
    body = answer("search.200.json").json
    assert body["query"] == "How many neighbours should each node of the graph have?"
    assert [result["rank"] for result in body["results"]] == [1, 2, 3]
    best = body["results"][0]
    assert best["metadata"]["document_id"] == "vectordb-hnsw"
    source = next(c for c in chunks() if c.chunk_id == best["metadata"]["chunk_id"])
    assert best["text"] == source.text
    assert best["metadata"]["url"] == source.url
    assert best["metadata"]["timestamp"] == "2026-01-15T09:00:00Z"
    assert set(best) == {"rank", "text", "similarity_score", "point_id", "metadata", "integrity"}
    assert (body["execution"]["requested_top_k"], body["execution"]["collection"]) == (3, COLLECTION)
    assert body["errors"] == []
    assert "error" not in body


def test_times_are_written_as_in_the_contract() -> None:
    execution = answer("search.200.json").json["execution"]
    assert execution["timestamp"].endswith("Z")
    assert execution["query_embedded_at"].endswith("Z")


def test_a_filter_keeps_to_its_document_and_positions() -> None:
    body = answer("search.200-filtered.json").json
    assert body["query_id"] == "q-filtered"
    assert body["execution"]["threshold_applied"] == 0.2
    places = {(r["metadata"]["document_id"], r["metadata"]["position"] < 5) for r in body["results"]}
    assert places == {("vectordb-operations", True)}
    assert all(r["similarity_score"] >= 0.2 for r in body["results"])


def test_no_match_is_a_success_with_no_results() -> None:
    body = answer("search.200-no-match.json").json
    assert (body["status"], body["results"], body["errors"]) == ("success", [], [])
    assert (body["execution"]["result_count"], body["execution"]["threshold_applied"]) == (0, 0.95)


def test_the_embedder_gets_the_question_as_a_question(cohere: CohereServer) -> None:
    cohere.requests.clear()
    first, second = answer("search.200.json").json, answer("search.200.json").json
    assert [(sent["input_type"], sent["texts"]) for sent in cohere.requests] == [
        ("search_query", ["How many neighbours should each node of the graph have?"])
    ]
    assert first["execution"]["embedding_cached"] is False
    assert second["execution"]["embedding_cached"] is True
    assert first["execution"]["embedding_model"] == "embed-english-v3.0"


@pytest.mark.parametrize(
    ("name", "code", "messages"),
    [
        ("search.400-empty-query.json", "INVALID_REQUEST", ["query_text cannot be empty"]),
        ("search.400-top-k-zero.json", "INVALID_REQUEST", ["top_k must be between 1 and 1000"]),
        (
            "search.400-unknown-field.json",
            "INVALID_REQUEST",
            ["topk is not a known field; did you mean top_k?"],
        ),
        ("search.404-unknown-collection.json", "COLLECTION_NOT_FOUND", ["Collection handbok not found"]),
        (
            "validate-chunk.400-bad-hash.json",
            "INVALID_REQUEST",
            ["original_sha256 must be 64 hexadecimal digits"],
        ),
        ("validate-chunk.404-unknown-chunk.json", "CHUNK_NOT_FOUND", ["Chunk nobody not found"]),
        ("collections.404-unknown-collection.json", "COLLECTION_NOT_FOUND", ["Collection handbok not found"]),
    ],
)
def test_a_refusal_is_in_the_contracts_words(name: str, code: str, messages: list[str]) -> None:
    reply = answer(name)
    assert (reply.code, reply.errors) == (code, messages)


def test_a_body_that_is_no_json_is_refused_with_the_place() -> None:
    reply = answer("search.400-not-json.json")
    assert reply.code == "INVALID_REQUEST"
    assert reply.errors[0].startswith("The request body is not valid JSON: ")
    assert "at line 1 column" in reply.errors[0]
    assert reply.json["query"] is None


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("search.400-empty-query.json", "   "),
        ("search.400-top-k-zero.json", "backups"),
        ("search.404-unknown-collection.json", "backups"),
        ("validate-chunk.404-unknown-chunk.json", None),
    ],
)
def test_a_failure_echoes_the_query(name: str, query: str | None) -> None:
    assert answer(name).json["query"] == query


# validation


def test_the_very_text_matches() -> None:
    body = answer("validate-chunk.200-match.json").json
    assert (body["chunk_id"], body["matches"], body["validation_passed"]) == (FIRST, True, True)
    assert body["stored_text"] == body["original_text"] == stored_text(FIRST)
    assert (body["mismatch"], body["mismatch_details"]) == (None, None)
    assert [(check["name"], check["passed"]) for check in body["checks"]] == [
        ("text", True),
        ("content_hash", True),
        ("metadata", True),
    ]


def test_of_several_chunks_each_has_its_own_verdict() -> None:
    body = answer("validate-chunks.200-partial.json").json
    counts = {name: body[name] for name in ("total", "passed", "failed", "errors")}
    assert counts == {"total": 3, "passed": 1, "failed": 1, "errors": 1}
    good, other, unknown = body["results"]
    assert good["result"]["stored_text"] == stored_text(FIRST)
    assert other["result"]["mismatch"]["kind"] == "different"
    assert unknown["result"] is None
    assert unknown["error"] == {"code": "CHUNK_NOT_FOUND", "message": "Chunk no-such-chunk not found"}


def test_a_text_that_only_looks_the_same_has_its_kind() -> None:
    body = answer("validate-chunk.200-mismatch.json").json
    assert (body["matches"], body["validation_passed"]) == (False, False)
    assert body["mismatch"]["kind"] == "unicode_normalization"
    stored, original = stored_text(FIRST), body["original_text"]
    # The stored text has one decomposed é: e and U+0301, three bytes against two.
    assert len(stored) - len(original) == 1
    assert body["mismatch"]["stored_bytes"] - body["mismatch"]["original_bytes"] == 1
    at = body["mismatch"]["first_difference"]
    assert at["char"] == stored.index("e\u0301")
    assert (stored[: at["char"]], at["line"]) == (original[: at["char"]], 3)
    assert at["byte"] == len(stored[: at["char"]].encode())


def test_without_an_original_the_stored_hash_is_checked() -> None:
    body = answer("validate-chunk.200-own-hash.json").json
    assert (body["matches"], body["validation_passed"], body["original_text"]) == (True, True, None)
    assert {check["name"]: check["passed"] for check in body["checks"]} == {
        "text": None,
        "content_hash": True,
        "chunk_id": None,
        "metadata": True,
    }


# collection and health


def test_a_collection_is_described() -> None:
    body = answer("collections.200.json").json
    assert (body["name"], body["vector_size"], body["distance_metric"]) == (COLLECTION, 384, "Cosine")
    assert body["points_count"] == len(chunks())
    assert body["payload_map"]["text"] == "text"
    fields: dict[str, dict[str, Any]] = {field["name"]: field for field in body["payload_fields"]}
    assert (fields["chunk_id"]["type"], fields["chunk_id"]["share"]) == ("string", 1.0)
    assert (fields["chunk_id"]["indexed"], fields["text"]["indexed"]) == (True, False)


def test_health_is_two_facts() -> None:
    assert answer("health.200.json").json == {"status": "ok", "contract_version": "1.0"}


def test_deep_health_asks_both_dependencies(cohere: CohereServer) -> None:
    cohere.requests.clear()
    body = answer("health.200-deep.json").json
    assert (body["qdrant"]["status"], body["embedder"]["status"]) == ("ok", "ok")
    assert (body["qdrant"]["message"], body["embedder"]["message"]) == (None, None)
    assert len(cohere.requests) == 1


# modes and several queries


def test_a_hybrid_search_states_its_scores() -> None:
    body = answer("search.200-hybrid.json").json
    assert body["execution"]["mode"] == "hybrid"
    assert body["execution"]["text_search"] == {"by": "sparse_vector", "name": "bm25"}
    assert [set(result["scores"]) for result in body["results"]] == [{"dense", "text", "fused"}] * 3
    assert body["results"][0]["metadata"]["document_id"] == "vectordb-hnsw"


def test_several_queries_have_a_response_each() -> None:
    body = answer("search.200-queries.json").json
    assert (body["status"], body["results"], len(body["responses"])) == ("success", [], 3)
    backup, accents, blank = body["responses"]
    assert [len(one["results"]) for one in (backup, accents, blank)] == [2, 2, 0]
    assert accents["query_id"] == "accents"
    assert accents["results"][0]["metadata"]["chunk_id"] == FIRST
    assert blank["error"] == {"code": "INVALID_REQUEST", "message": "query_text cannot be empty"}


def test_a_list_is_answered_for_every_query_and_not_for_the_first_alone() -> None:
    body = answer("search.200-array.json").json
    assert [one["results"][0]["metadata"]["document_id"] for one in body["responses"]] == [
        "vectordb-operations",
        "robotics-control",
    ]


def test_a_page_has_the_cursor_of_the_next() -> None:
    event = committed_event("search.200-pages.json")
    first = invoke(event).json
    request = {**json.loads(event["body"]), "cursor": first["next_cursor"]}
    second = invoke({**event, "body": json.dumps(request)}).json
    ids = [result["metadata"]["chunk_id"] for page in (first, second) for result in page["results"]]
    assert len(set(ids)) == 4
