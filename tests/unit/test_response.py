"""The envelope of an answer, as it goes over the wire."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from chunkproof.base.errors import EmbeddingError, InvalidParameterError
from chunkproof.contract import ChunkMetadata, ExecutionMetadata, RetrievalResponse, SearchResult, SourceMetadata

AT = datetime(2025, 12, 16, 14, 30, 1, tzinfo=UTC)
EXECUTION = ExecutionMetadata(latency_ms=145, result_count=0, threshold_applied=0.7, timestamp=AT)


def result(**fields: object) -> SearchResult:
    given_fields = {"rank": 1, "text": "t", "similarity_score": 0.5, "metadata": SourceMetadata(chunk_id="7")}
    return SearchResult(**(given_fields | fields))


def success(*results: SearchResult) -> dict[str, object]:
    execution = EXECUTION.model_copy(update={"result_count": len(results)})
    response = RetrievalResponse(query="q", query_id="id", status="success", results=results, execution=execution)
    return json.loads(response.to_json())


def failure(error: Exception) -> dict[str, object]:
    return json.loads(RetrievalResponse.from_error(error, EXECUTION, query=None, query_id=None).to_json())


def test_a_success_has_no_error_and_an_empty_list_of_errors():
    envelope = success()

    assert "error" not in envelope
    assert {name: envelope[name] for name in ("query", "query_id", "status", "results", "errors")} == {
        "query": "q", "query_id": "id", "status": "success", "results": [], "errors": [],
    }  # fmt: skip


def test_a_failure_has_the_same_envelope_with_code_and_messages():
    envelope = failure(InvalidParameterError("first", "second"))

    assert envelope["status"] == "error"
    assert envelope["results"] == []
    assert envelope["errors"] == ["first", "second"]
    assert envelope["error"] == {"code": "INVALID_REQUEST", "message": "first"}
    assert (envelope["query"], envelope["query_id"]) == (None, None)


def test_a_failure_states_latency_count_and_threshold():
    execution = failure(EmbeddingError("no answer"))["execution"]

    assert (execution["latency_ms"], execution["result_count"], execution["threshold_applied"]) == (
        145,
        0,
        0.7,
    )
    assert execution["embedding_time_ms"] == 0


def test_the_execution_has_every_field_of_the_contract():
    assert success()["execution"] == {
        "latency_ms": 145, "result_count": 0, "threshold_applied": 0.7, "skipped": 0,
        "query_embedded_at": None, "embedding_time_ms": 0.0, "qdrant_query_time_ms": None,
        "requested_top_k": None, "collection": None, "embedding_model": None,
        "embedding_cached": False, "timestamp": "2025-12-16T14:30:01Z",
    }  # fmt: skip


def test_full_metadata_has_every_name_even_when_nothing_is_known():
    [shown] = success(result(metadata=ChunkMetadata(chunk_id="7")))["results"]

    assert shown["metadata"] == {
        "chunk_id": "7", "document_id": None, "url": None, "position": None, "timestamp": None,
        "document_title": None, "section_heading": None, "section_headers": [], "breadcrumb": None,
        "total_chunks": None, "tokens": None, "content_type": None, "has_code": None,
        "content_hash": None, "embedding_model": None,
    }  # fmt: skip


def test_source_metadata_is_the_id_and_the_url_only():
    [shown] = success(result(metadata=SourceMetadata(chunk_id="7", url="https://a.example")))["results"]

    assert shown["metadata"] == {"chunk_id": "7", "url": "https://a.example"}


def test_payload_and_vector_are_absent_unless_asked_for():
    plain, full = success(result(), result(payload={"a": [1]}, vector=(0.6, 0.8)))["results"]

    assert set(plain) == {"rank", "text", "similarity_score", "metadata", "integrity"}
    assert (full["payload"], full["vector"]) == ({"a": [1]}, [0.6, 0.8])


def test_an_empty_payload_that_was_asked_for_is_shown():
    [shown] = success(result(payload={}))["results"]

    assert shown["payload"] == {}


def test_metadata_is_shown_as_stored_whatever_its_type():
    odd = ChunkMetadata(chunk_id="7", url=["a", {"b": None}], position="third", has_code=1, timestamp=12.5)
    [shown] = success(result(metadata=odd))["results"]

    assert [shown["metadata"][name] for name in ("url", "position", "has_code", "timestamp")] == [
        ["a", {"b": None}], "third", 1, 12.5,
    ]  # fmt: skip


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), [-float("inf")]])
def test_an_answer_is_valid_json_whatever_number_is_stored(odd):
    written = ChunkMetadata(chunk_id="7", url=odd).to_json()

    assert "NaN" not in written
    assert "Infinity" not in written
    json.loads(written)


@given(st.text())
def test_text_survives_the_wire_code_point_for_code_point(text):
    [shown] = success(result(text=text))["results"]

    assert shown["text"] == text


@pytest.mark.parametrize(
    "wrong",
    [{"rank": 0}, {"similarity_score": 1.0000001}, {"similarity_score": -0.1}, {"text": None}, {"rank": "1"}],
)
def test_a_result_outside_the_contract_cannot_be_built(wrong):
    with pytest.raises(ValidationError):
        result(**wrong)


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_scores_of_zero_and_one_are_scores(score):
    assert result(similarity_score=score).similarity_score == score
