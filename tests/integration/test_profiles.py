"""Clients of five data models send their own requests and get their own shapes, from the real handlers."""

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from chunkproof import RetrievalResponse, RetrievalResult
from chunkproof.contract.profiles import PROFILES

from support import openapi
from support.api import Event, Reply, invoke, new_process, post, request
from support.cohere_server import KEY, CohereServer
from support.handbook import COLLECTION, chunks, loaded_handbook
from support.qdrant_server import QdrantServer

pytestmark = pytest.mark.server
TEXT = "How do I take a backup?"


@pytest.fixture(scope="module")
def cohere(served_qdrant: QdrantServer) -> Iterator[CohereServer]:
    with loaded_handbook(served_qdrant.url) as api:
        yield api


@pytest.fixture(autouse=True)
def _deployed(cohere: CohereServer, served_qdrant: QdrantServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    monkeypatch.setenv("COHERE_API_KEY", KEY)
    monkeypatch.setenv("COHERE_BASE_URL", cohere.url)
    monkeypatch.setenv("CHUNKPROOF_COLLECTION", COLLECTION)
    monkeypatch.setenv("CHUNKPROOF_DEADLINE_MS", "20000")
    with new_process():
        yield


def ask(profile: str | None, document: Any, *, by_header: bool = True) -> Reply:
    accept = {"accept": f'text/html, application/json; profile="{profile}"'} if profile and by_header else {}
    event: Event = post("/search", document, accept)
    if profile and not by_header:
        event |= {"rawQueryString": f"profile={profile}", "queryStringParameters": {"profile": profile}}
    return invoke(event)


def stored(chunk_id: str) -> str:
    return next(chunk.text for chunk in chunks() if chunk.chunk_id == chunk_id)


def check_schema(profile: str, body: Any, status: int = 200) -> None:
    content = openapi.document()["paths"]["/search"]["post"]["responses"][str(status)]["content"]
    schema = content[PROFILES[profile].media_type]["schema"]
    Draft202012Validator({**schema, "components": openapi.document()["components"]}).validate(body)


@pytest.mark.parametrize("by_header", [True, False])
def test_flat_results_have_content_and_times_in_metadata(by_header: bool) -> None:
    reply = ask("flat", {"query_text": TEXT, "top_k": 2, "threshold": 0.1}, by_header=by_header)

    assert (reply.status, reply.headers["content-type"]) == (200, 'application/json; profile="flat"')
    check_schema("flat", reply.json)
    assert reply.json.keys() == {"query", "results", "metadata"}
    assert reply.json["metadata"].keys() == {"query_time_ms", "total_results", "timestamp"}
    first = reply.json["results"][0]
    assert first.keys() == {"content", "url", "position", "similarity_score", "chunk_id", "created_at"}
    assert first["content"] == stored(first["chunk_id"])
    assert reply.json["metadata"]["total_results"] == len(reply.json["results"]) == 2


def test_chunks_are_a_list_that_reads_back_as_retrieval_results() -> None:
    reply = ask("chunks", {"query_text": TEXT, "query_id": "q-1", "top_k": 3})

    check_schema("chunks", reply.json)
    results = [RetrievalResult.model_validate(result) for result in reply.json]
    assert [result.rank for result in results] == [1, 2, 3]
    assert {result.query_id for result in results} == {"q-1"}
    assert results[0].metadata["text"] == results[0].chunk_text  # the payload, whole
    assert reply.json[0].keys() == {
        *("query_id", "chunk_text", "source_url", "page_title", "section_heading", "breadcrumb", "chunk_index"),
        *("similarity_score", "metadata", "rank"),
    }


def test_points_are_a_list_of_ids_scores_and_payloads_ten_by_default(cohere: CohereServer) -> None:
    reply = ask("points", {"query_text": TEXT, "collection_name": COLLECTION, "score_threshold": None, "filters": None})
    check_schema("points", reply.json)
    with_vectors = ask("points", {"query_text": TEXT, "top_k": 1, "with_vectors": True})
    by_vector = ask("points", {"query_vector": with_vectors.json[0]["vector"], "top_k": 1})

    assert len(reply.json) == 10
    assert reply.json[0].keys() == {"id", "score", "payload", "vector", "retrieval_time_ms"}
    assert reply.json[0]["vector"] is None
    assert by_vector.json[0]["id"] == with_vectors.json[0]["id"]
    assert RetrievalResult.model_validate(reply.json[0]).chunk_text == reply.json[0]["payload"]["text"]


def test_nested_has_the_query_as_an_object_both_ways() -> None:
    query = {"text": TEXT, "query_id": "q_2025_12_25_001", "timestamp": ""}
    reply = ask("nested", {"query": query, "top_k": 2})

    check_schema("nested", reply.json)
    assert reply.json["query"] == {"text": TEXT, "query_id": "q_2025_12_25_001"}
    assert (reply.json["status"], reply.json["total_results"], reply.json["requested_top_k"]) == ("success", 2, 2)
    assert reply.json["execution_metrics"].keys() == {
        *("query_embedding_time_ms", "vector_search_time_ms", "total_execution_time_ms"),
        *("embedding_model", "collection_name"),
    }
    first = reply.json["results"][0]
    assert first.keys() == {"chunk_id", "chunk_text", "similarity_score", "rank", "metadata"}
    assert first["metadata"].keys() == {"source_url", "page_title", "section_headers", "chunk_index", "tokens"}
    assert "error" not in reply.json


def test_times_have_their_fractions_and_add_up() -> None:
    metrics = ask("nested", {"text": TEXT, "top_k": 1}).json["execution_metrics"]
    parts = metrics["query_embedding_time_ms"] + metrics["vector_search_time_ms"]
    (point,) = ask("points", {"text": TEXT, "top_k": 1}).json

    assert 0 < metrics["vector_search_time_ms"] < parts <= metrics["total_execution_time_ms"]
    assert metrics["vector_search_time_ms"] % 1
    assert point["retrieval_time_ms"] % 1


def test_what_is_left_out_or_unknown_keeps_its_type() -> None:
    (result,) = ask("nested", {"text": TEXT, "top_k": 1, "include_metadata": False}).json["results"]
    assert result["metadata"]["section_headers"] == []
    assert result["metadata"]["source_url"]

    vector = ask("points", {"text": TEXT, "top_k": 1, "with_vectors": True}).json[0]["vector"]
    assert ask("flat", {"query_vector": vector}).json["query"] == ""
    assert ask("nested", {"query_vector": vector}).json["query"]["text"] == ""


def test_a_point_without_its_payload_is_read_back() -> None:
    (point,) = ask("points", {"text": TEXT, "top_k": 1, "with_payload": False}).json

    assert point["payload"] is None
    assert RetrievalResult(**point).payload == {}


@pytest.mark.parametrize("accept", ["APPLICATION/JSON; PROFILE=flat", 'application/json; q=1; Profile="flat"'])
def test_names_in_accept_have_any_case(accept: str) -> None:
    assert invoke(post("/search", {"text": TEXT}, {"accept": accept})).headers["content-type"].endswith('"flat"')


def test_the_canonical_shape_is_the_default() -> None:
    for reply in (ask(None, {"text": TEXT}), ask("canonical", {"text": TEXT})):
        assert reply.json.keys() == {"query", "query_id", "status", "results", "execution", "errors"}


@pytest.mark.parametrize(
    ("profile", "error"),
    [
        ("flat", {"code": "COLLECTION_NOT_FOUND", "message": "Collection nowhere not found"}),
        ("nested", {"code": "COLLECTION_NOT_FOUND", "message": "Collection nowhere not found"}),
        ("chunks", "CollectionNotFoundError"),
        ("points", "CollectionNotFoundError"),
    ],
)
def test_an_error_has_the_shape_of_the_profile(profile: str, error: Any) -> None:
    reply = ask(profile, {"query": {"text": TEXT, "query_id": ""}, "collection": "nowhere"})

    assert (reply.status, reply.json["error"]) == (404, error)
    check_schema(profile, reply.json, 404)
    if profile in ("flat", "nested"):
        assert reply.json["results"] == []
    if profile == "nested":
        assert reply.json["query"]["text"] == TEXT


@pytest.mark.parametrize("profile", PROFILES)
def test_a_request_that_cannot_be_read_is_refused_in_the_shape_of_the_profile(profile: str) -> None:
    reply = ask(profile, {"top_k": 0})

    assert reply.status == 400
    assert "query_text is required" in reply.text
    assert reply.headers["content-type"] == f'application/json; profile="{profile}"'


def test_several_queries_have_a_response_each() -> None:
    reply = ask("nested", {"queries": [TEXT, {"text": ""}]})

    check_schema("nested", reply.json)
    check_schema("chunks", ask("chunks", {"queries": [TEXT, {"text": ""}]}).json)
    first, second = reply.json["responses"]
    assert (first["status"], second["status"]) == ("success", "error")


def test_what_a_profile_cannot_show_is_refused() -> None:
    reply = ask("flat", {"text": TEXT, "with_vectors": True, "highlight": True})

    assert reply.status == 400
    assert reply.json["error"]["message"] == (
        "profile flat has no place for highlight; profile flat has no place for with_vectors"
    )


def test_an_unknown_profile_is_refused_with_the_names() -> None:
    reply = ask("other", {"text": TEXT})

    assert (reply.status, reply.errors) == (400, ["profile must be one of canonical, flat, chunks, points, nested"])


def test_an_error_of_a_list_is_the_name_of_a_class() -> None:
    def name(event: Event) -> Any:
        return invoke(
            event | {"rawQueryString": "profile=points", "queryStringParameters": {"profile": "points"}}
        ).json["error"]

    assert name(post("/search", {"text": "word " * 1900})) == "QueryTooLongError"
    assert name(post("/search", {"text": TEXT, "query_vector": [1.0]})) == "InvalidParameterError"
    assert name(request("GET", "/search")) == "MethodNotAllowedError"


def test_null_and_empty_are_the_same_as_nothing() -> None:
    nothing = dict.fromkeys(("top_k", "similarity_threshold", "filters", "collection", "query_vector", "queries"))
    reply = ask(None, {"text": TEXT, **nothing, "query_id": "", "timestamp": "", "with_payload": None, "mode": None})

    assert (reply.status, len(reply.json["results"])) == (200, 5)
    assert reply.json["query_id"]


def test_a_text_given_twice_is_named() -> None:
    reply = ask(None, {"query": {"text": TEXT}, "text": "another"})

    assert reply.errors == ["query.text and text are the same field: give one of them"]


# A request of each document, the profile that it is sent with, and how its client reads a success and an error.
CLIENTS: list[tuple[str, dict[str, Any], Any, Any]] = [
    (
        "canonical",
        {"query_text": TEXT, "top_k": 10, "similarity_threshold": 0.1},
        lambda body: RetrievalResponse.model_validate(body).results[0].text,
        lambda body: (body["status"], body["errors"][0]),
    ),
    (
        "flat",
        {"query_text": TEXT, "top_k": 5, "threshold": 0.0, "include_metadata": True},
        lambda body: body["results"][0]["content"],
        lambda body: ("error", body["error"]["message"]),
    ),
    (
        "chunks",
        {
            "query_text": TEXT,
            "top_k": 5,
            "similarity_threshold": 0.0,
            "query_id": "q",
            "created_at": "2025-12-27T10:30:00",
        },
        lambda body: RetrievalResult(**body[0]).chunk_text,
        lambda body: ("error", body["message"]),
    ),
    (
        "points",
        {
            "collection_name": COLLECTION,
            "query_text": TEXT,
            "score_threshold": None,
            "filters": None,
            "with_vectors": False,
            "with_payload": True,
        },
        lambda body: RetrievalResult(**body[0]).payload["text"],
        lambda body: ("error", body["message"]),
    ),
    (
        "nested",
        {"text": TEXT, "query_id": "q_2025_12_25_001", "timestamp": "2025-12-25T21:30:00Z"},
        lambda body: RetrievalResponse(**body).results[0].text,
        lambda body: (RetrievalResponse(**body).status, body["error"]["message"]),
    ),
]


clients = pytest.mark.parametrize(("profile", "sent", "text_of", "error_of"), CLIENTS, ids=[row[0] for row in CLIENTS])


@clients
def test_a_client_of_each_document_reads_results_and_refusals(
    profile: str, sent: dict[str, Any], text_of: Any, error_of: Any
) -> None:
    reply = ask(profile, sent)
    assert reply.status == 200
    assert text_of(reply.json) in [chunk.text for chunk in chunks()]

    refused = ask(profile, {**sent, "top_k": 0})
    assert (refused.status, error_of(refused.json)) == (400, ("error", "top_k must be between 1 and 1000"))


@clients
def test_a_client_of_each_document_reads_that_the_store_is_down(
    profile: str, sent: dict[str, Any], text_of: Any, error_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QDRANT_URL", "http://127.0.0.1:9")
    reply = ask(profile, sent)

    kind, message = error_of(reply.json)
    assert (reply.status, kind) == (503, "error")
    assert message.startswith("Qdrant service unavailable at 127.0.0.1:9")
