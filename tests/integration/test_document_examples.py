"""The code examples of the documents that the contract comes from, with Chunkproof's own classes."""

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

import chunkproof
from chunkproof import (
    CollectionInfo,
    InvalidParameterError,
    RetrievalQuery,
    RetrievalResponse,
    RetrievalResult,
    SearchResult,
    TestCase,
    TestStatus,
    TestSuiteResult,
    ValidationReport,
)
from chunkproof.contract.profiles import PROFILES
from chunkproof.suite.cases import RESULT_FIELDS
from chunkproof.suite.cases import TestCase as SuiteCase
from chunkproof.suite.suite_file import SuiteSource, read_source

COLLECTION_STATS = {
    "collection_name": "documentation",
    "vector_count": 312,
    "vector_dim": 1024,
    "distance": "COSINE",
}
SUMMARY = """\
============================================================
RAG Retrieval Validation Report
============================================================
Run ID: val-2025-12-27-001
Started: 2025-12-27 14:30:00
Completed: 2025-12-27 14:30:08
Duration: 8.2s

CONNECTION STATUS
============================================================
Status: connected
Collection: documentation
Vector Count: 312
Vector Dimensions: 1024
Distance Metric: COSINE

QUERY METRICS
============================================================
Total Queries: 3
Successful: 3
Failed: 0
Success Rate: 100.0%

RETRIEVAL QUALITY
============================================================
Total Results Retrieved: 15
Avg Similarity Score: 0.687
Avg Query Time: 2.73s

METADATA VALIDATION
============================================================
Metadata Completeness: 100.0%

STATUS
============================================================
✅ All validations passed successfully!
============================================================"""


def validation_report(**fields: Any) -> ValidationReport:
    return ValidationReport(
        **{
            "run_id": "val-2025-12-27-001",
            "total_queries": 10,
            "successful_queries": 9,
            "failed_queries": 1,
            "avg_similarity_score": 0.73,
            "avg_query_time": 1.2,
            "metadata_completeness": 1.0,
            "total_results_retrieved": 45,
            "connection_status": "connected",
            "collection_stats": COLLECTION_STATS,
            "errors": ["Query 'What is the weather?' failed: Cohere API timeout"],
            "started_at": datetime(2025, 12, 27, 14, 30, 0),
            "completed_at": datetime(2025, 12, 27, 14, 30, 15),
            **fields,
        }
    )


# queries


def test_a_query_has_the_defaults_of_the_documents():
    query1 = RetrievalQuery(query_text="How do I get started?")
    query2 = RetrievalQuery(query_text="What is authentication?", top_k=10, similarity_threshold=0.5)

    assert (query1.top_k, query1.similarity_threshold) == (5, 0.0)
    assert uuid.UUID(query1.query_id)
    assert isinstance(query1.created_at, datetime)
    assert (query2.top_k, query2.similarity_threshold) == (10, 0.5)


def test_a_query_by_vector_takes_the_other_documents_names():
    query = RetrievalQuery(
        collection_name="textbook_embeddings",
        query_vector=[0.1, 0.2] * 511 + [0.3, 0.5],
        top_k=10,
        score_threshold=0.7,
        filters={"source_url": "https://example.com/chapter1"},
        with_vectors=False,
        with_payload=True,
    )

    assert (query.collection, query.similarity_threshold, query.with_payload) == ("textbook_embeddings", 0.7, True)
    assert len(query.query_vector) == 1024


def test_none_leaves_a_threshold_and_filters_at_their_defaults():
    query = RetrievalQuery(query_text="test", score_threshold=None, filters=None)

    assert (query.similarity_threshold, query.filters) == (0.0, ())


@pytest.mark.parametrize(
    "wrong",
    [
        {"query_text": ""},
        {"query_text": "   "},
        {"query_text": "test", "top_k": -5},
        {"query_text": "test", "top_k": 0},
        {"query_text": "test", "similarity_threshold": 1.5},
        {"query_text": "test", "score_threshold": -0.1},
        {"query_text": "test", "top_k": "5"},
        {"query_text": "test", "limit": 5},
        {},
    ],
)
def test_a_wrong_query_raises_a_value_error(wrong):
    for make in (lambda: RetrievalQuery(**wrong), lambda: RetrievalQuery.model_validate(wrong)):
        with pytest.raises(ValueError) as raised:  # noqa: PT011 - the class is the point
            make()
        assert isinstance(raised.value, InvalidParameterError)


def validate_retrieval_query(query: RetrievalQuery) -> None:
    if not query.query_text.strip():
        raise ValueError("query_text cannot be empty")
    if query.top_k <= 0:
        raise ValueError(f"top_k must be positive, got {query.top_k}")
    if not 0.0 <= query.similarity_threshold <= 1.0:
        raise ValueError(f"similarity_threshold must be in [0.0, 1.0], got {query.similarity_threshold}")


def test_a_query_that_can_be_made_passes_the_documents_own_check():
    validate_retrieval_query(RetrievalQuery(query_text="How do I get started?"))


# results


def test_a_result_has_the_fields_of_both_documents():
    metadata = {
        "chunk_size": 380,
        "content_type": "text",
        "has_code": True,
        "ingested_at": "2025-12-27T10:30:00Z",
        "content_hash": "abc123def456",
        "embedding_model": "embed-english-v3.0",
    }
    result = RetrievalResult(
        query_id="a1b2c3d4",
        chunk_text="To get started, first install the dependencies...",
        source_url="https://docs.example.com/getting-started",
        page_title="Getting Started Guide",
        section_heading="Installation",
        breadcrumb="Docs > Getting Started > Installation",
        chunk_index=2,
        similarity_score=0.87,
        metadata=metadata,
        rank=1,
    )

    assert (result.similarity_score, result.score) == (0.87, 0.87)
    assert result.metadata == result.payload == metadata
    assert (result.page_title, result.chunk_index, result.rank) == ("Getting Started Guide", 2, 1)


def test_a_result_of_a_point_reads_text_and_url_from_the_payload():
    result = RetrievalResult(
        id="uuid-1234-5678",
        score=0.92,
        vector=None,
        payload={
            "content": "ROS 2 is a robot operating system framework...",
            "source_url": "https://example.com/ros2-intro",
            "chunk_id": 3,
            "chunk_index": 2,
            "total_chunks": 10,
            "timestamp": "2025-12-10T15:30:00",
            "embedding_model": "embed-multilingual-v3.0",
        },
        retrieval_time_ms=45.2,
    )

    assert (result.id, result.score, result.retrieval_time_ms) == ("uuid-1234-5678", 0.92, 45.2)
    assert result.chunk_text == "ROS 2 is a robot operating system framework..."
    assert (result.source_url, result.chunk_index) == ("https://example.com/ros2-intro", 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"chunk_text": ""},
        {"source_url": "getting started"},
        {"score": 1.5},
        {"score": -0.1},
        {"rank": 0},
        {"chunk_index": -1},
        {"retrieval_time_ms": -1.0},
    ],
)
def test_a_wrong_result_raises_a_value_error(wrong):
    with pytest.raises(ValueError):  # noqa: PT011
        RetrievalResult(**{"id": 1, "score": 0.5, "payload": {}} | wrong)


# test cases and suites


def case(**fields: Any) -> TestCase:
    return TestCase(
        **{
            "name": "test_ros2_basics_query",
            "query_text": "What is ROS 2 and how does it work?",
            "collection_name": "textbook_embeddings",
            "expected_doc_ids": ["doc_ros2_intro", "doc_ros2_architecture"],
            "expected_keywords": ["ROS 2", "robot", "operating system", "framework"],
            "relevance_threshold": 0.7,
            "top_k": 5,
            "status": "pending",
            "actual_results": None,
            "error_message": None,
            **fields,
        }
    )


def test_a_test_case_has_a_status_and_no_results_before_it_runs():
    test_case = case()

    assert test_case.status is TestStatus.PENDING
    assert (test_case.actual_results, test_case.error_message) == (None, None)


def test_a_test_case_takes_results_that_its_caller_made():
    found = RetrievalResult(id="uuid-1", score=0.9, payload={"content": "ROS 2", "source_url": "https://example.com"})
    [kept] = case(status=TestStatus.PASSED, actual_results=[found]).actual_results

    assert (kept.chunk_id, kept.similarity_score, kept.excerpt) == ("uuid-1", 0.9, "ROS 2")


@pytest.mark.parametrize(
    "wrong", [{"status": "done"}, {"relevance_threshold": 1.5}, {"top_k": 0}, {"query_text": ""}, {"name": ""}]
)
def test_a_wrong_test_case_raises_a_value_error(wrong):
    with pytest.raises(ValueError):  # noqa: PT011
        case(**wrong)


def suite_result(**fields: Any) -> TestSuiteResult:
    return TestSuiteResult(
        **{
            "total_tests": 10,
            "passed": 9,
            "failed": 1,
            "errors": 0,
            "execution_time_ms": 5432.1,
            "test_results": [case(), case(name="another")],
            "performance_metrics": {
                "avg_retrieval_time_ms": 234.5,
                "p95_retrieval_time_ms": 450.2,
                "max_retrieval_time_ms": 502.8,
            },
            "timestamp": "2025-12-12T14:30:00",
            **fields,
        }
    )


def test_a_suite_result_computes_its_rates():
    result = suite_result()

    assert (result.pass_rate, result.failure_rate) == (90.0, 10.0)
    assert result.performance_metrics.p95_retrieval_time_ms == 450.2


@pytest.mark.parametrize(
    "wrong", [{"passed": 10}, {"failed": -1}, {"execution_time_ms": -0.1}, {"pass_rate": 100.0}, {"total_tests": 13}]
)
def test_a_suite_result_whose_counts_do_not_add_up_raises_a_value_error(wrong):
    with pytest.raises(ValueError):  # noqa: PT011
        suite_result(**wrong)


def test_collection_info_needs_six_fields():
    collection_info = CollectionInfo(
        name="textbook_embeddings",
        vector_size=1024,
        distance_metric="Cosine",
        points_count=5432,
        indexed_vectors_count=5432,
        status="green",
    )

    assert collection_info.indexed
    with pytest.raises(ValueError):  # noqa: PT011
        CollectionInfo(**collection_info.model_dump() | {"points_count": -1})


# reports


def test_a_report_computes_duration_and_success_rate():
    report = validation_report()

    assert (report.duration_seconds, report.success_rate) == (15.0, 0.9)
    assert report.collection_stats["vector_count"] == report.collection_stats.get("vector_count") == 312
    assert (
        "\nERRORS\n" + "=" * 60 + "\nQuery 'What is the weather?' failed: Cohere API timeout\n" in report.to_summary()
    )


def test_the_summary_has_the_exact_layout():
    report = validation_report(
        total_queries=3,
        successful_queries=3,
        failed_queries=0,
        avg_similarity_score=0.687,
        avg_query_time=2.73,
        total_results_retrieved=15,
        errors=[],
        completed_at=datetime(2025, 12, 27, 14, 30, 8, 200_000),
    )

    assert report.to_summary() == SUMMARY


def test_a_report_without_results_is_complete_and_scores_nothing():
    report = validation_report(total_results_retrieved=0, avg_similarity_score=0.0, metadata_completeness=1.0)

    assert "Metadata Completeness: 100.0%" in report.to_summary()


def test_a_report_of_failures_only_has_a_success_rate_of_zero():
    errors = [f"Query {number} failed: timeout" for number in range(10)]
    report = validation_report(
        total_queries=10, successful_queries=0, failed_queries=10, success_rate=0.0, errors=errors
    )

    assert report.success_rate == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"failed_queries": 2},
        {"avg_similarity_score": 1.1},
        {"avg_query_time": -1.0},
        {"metadata_completeness": 1.01},
        {"connection_status": "unknown"},
        {"completed_at": datetime(2025, 12, 27, 14, 29)},
        {"success_rate": 1.0},
        {"total_results_retrieved": -1},
    ],
)
def test_a_report_that_the_rules_forbid_raises_a_value_error(wrong):
    with pytest.raises(ValueError):  # noqa: PT011
        validation_report(**wrong)


# the whole flow


def qdrant_result_to_retrieval_result(scored_point: Any, query_id: str, rank: int) -> RetrievalResult:
    payload = scored_point.payload
    return RetrievalResult(
        query_id=query_id,
        chunk_text=payload["chunk_text"],
        source_url=payload["source_url"],
        page_title=payload["page_title"],
        section_heading=payload.get("section_heading"),
        breadcrumb=payload.get("breadcrumb"),
        chunk_index=payload["chunk_index"],
        similarity_score=scored_point.score,
        metadata=payload,
        rank=rank,
    )


def aggregate_results_to_report(
    results: list[RetrievalResult],
    queries: list[RetrievalQuery],
    connection_stats: dict[str, Any],
    errors: list[str],
    started_at: datetime,
    completed_at: datetime,
) -> ValidationReport:
    total_queries = len(queries)
    failed_queries = len(errors)
    similarity_scores = [r.similarity_score for r in results]
    required_fields = ["chunk_text", "source_url", "page_title"]
    complete_count = sum(1 for r in results if all(getattr(r, field, None) for field in required_fields))
    return ValidationReport(
        run_id=str(uuid.uuid4()),
        total_queries=total_queries,
        successful_queries=total_queries - failed_queries,
        failed_queries=failed_queries,
        avg_similarity_score=sum(similarity_scores) / len(similarity_scores) if similarity_scores else 0.0,
        avg_query_time=(completed_at - started_at).total_seconds() / total_queries,
        metadata_completeness=complete_count / len(results) if results else 1.0,
        total_results_retrieved=len(results),
        connection_status=connection_stats.get("status", "unknown"),
        collection_stats=connection_stats,
        errors=errors,
        started_at=started_at,
        completed_at=completed_at,
    )


def search(query: RetrievalQuery) -> list[Any]:
    """A store that knows two chunks, and fails at a question about the weather."""
    if "weather" in query.query_text:
        raise TimeoutError("Cohere API timeout")
    return [
        SimpleNamespace(
            id=f"uuid-{number}",
            score=score,
            payload={
                "chunk_text": "To get started...",
                "source_url": "https://docs.example.com/start",
                "page_title": "Getting Started",
                "section_heading": "Installation",
                "breadcrumb": "Docs > Getting Started",
                "chunk_index": number,
            },
        )
        for number, score in enumerate((0.9, 0.5))
    ]


def test_the_complete_validation_flow_runs():
    queries = [
        RetrievalQuery(query_text="How do I get started?"),
        RetrievalQuery(query_text="What is authentication?"),
        RetrievalQuery(query_text="What is the weather?"),
    ]
    all_results: list[RetrievalResult] = []
    errors: list[str] = []
    started_at = datetime(2025, 12, 27, 14, 30)
    for query in queries:
        try:
            for rank, scored_point in enumerate(search(query), start=1):
                all_results.append(qdrant_result_to_retrieval_result(scored_point, query.query_id, rank))
        except Exception as e:  # noqa: BLE001 - as the document has it
            errors.append(f"Query '{query.query_text}' failed: {e!s}")

    report = aggregate_results_to_report(
        results=all_results,
        queries=queries,
        connection_stats={**COLLECTION_STATS, "status": "connected"},
        errors=errors,
        started_at=started_at,
        completed_at=datetime(2025, 12, 27, 14, 30, 6),
    )

    assert (report.successful_queries, report.total_results_retrieved) == (2, 4)
    assert report.avg_similarity_score == pytest.approx(0.7)
    assert report.avg_query_time == 2.0
    assert report.errors == ("Query 'What is the weather?' failed: Cohere API timeout",)
    assert "Success Rate: 66.7%" in report.to_summary()


# the examples of the documents, read by the classes of their names


@pytest.mark.parametrize(
    ("name", "example"),
    [
        ("ExecutionMetadata", {"latency_ms": 145, "result_count": 5, "threshold_applied": 0.7}),
        (
            "RetrievalResponse",
            {
                "status": "error",
                "results": [],
                "errors": ["Primary error message"],
                "execution": {"latency_ms": 50, "result_count": 0, "threshold_applied": 0.0},
            },
        ),
        (
            "ValidationResult",
            {
                "chunk_id": "550e8400-e29b-41d4-a716-446655440000",
                "matches": False,
                "stored_text": "To set up a vector dat...",
                "original_text": "To set up a vector database...",
                "validation_passed": False,
                "mismatch_details": "Stored text truncated or corrupted (length mismatch: 24 vs 32 chars)",
            },
        ),
        ("Query", {"text": "What is ROS2?", "query_id": "q_2025_12_25_001", "timestamp": "2025-12-25T21:30:00Z"}),
        ("QueryEmbedding", {"query_id": "q_2025_12_25_001", "embedding": [0.123, 0.456]}),
    ],
)
def test_an_example_is_read_by_the_class_of_its_name(name: str, example: dict[str, Any]) -> None:
    read = getattr(chunkproof, name).model_validate_json(json.dumps(example))

    written = json.loads(read.model_dump_json())
    assert {field: written[field] for field in example if field != "execution"} == {
        field: value for field, value in example.items() if field != "execution"
    }


NESTED_RESULT = {
    "chunk_id": "a7f3e2b9c1d4e8f2...",
    "chunk_text": "ROS2 (Robot Operating System 2) is a flexible framework for writing robot software.",
    "similarity_score": 0.876,
    "rank": 1,
    "metadata": {
        "source_url": "https://physical-ai-robotics.vercel.app/docs/module-1-ros2/overview",
        "page_title": "Module 1: ROS2 Overview",
        "section_headers": ["Module 1: ROS2", "Introduction", "What is ROS2?"],
        "chunk_index": 0,
        "tokens": 512,
    },
}
NESTED = {
    "status": "success",
    "query": {"text": "What is ROS2?", "query_id": "q_2025_12_25_001"},
    "results": [NESTED_RESULT, {**NESTED_RESULT, "chunk_id": "b8e4f1c2...", "similarity_score": 0.823, "rank": 2}],
    "total_results": 2,
    "requested_top_k": 5,
    "execution_metrics": {
        "query_embedding_time_ms": 234.5,
        "vector_search_time_ms": 87.0,
        "total_execution_time_ms": 322.0,
        "embedding_model": "embed-english-v3.0",
        "collection_name": "textbook_embeddings",
    },
}
NESTED_ERROR = {
    **NESTED,
    "status": "error",
    "results": [],
    "total_results": 0,
    "execution_metrics": {
        "total_execution_time_ms": 45.0,
        "embedding_model": "embed-english-v3.0",
        "collection_name": "textbook_embeddings",
    },
    "error": {
        "code": "QDRANT_CONNECTION_FAILED",
        "message": "Failed to connect to Qdrant Cloud: Connection timeout after 30s",
    },
}
FLAT = {
    "query": "What is ROS2?",
    "results": [
        {
            "content": "ROS2 is a framework",
            "url": "https://docs.example.com/ros2",
            "position": 0,
            "similarity_score": 0.9,
            "chunk_id": "a7f3e2b9",
            "created_at": "2025-12-15T10:30:00Z",
        }
    ],
    "metadata": {"query_time_ms": 12, "total_results": 1, "timestamp": "2025-12-16T14:30:01Z"},
}
FLAT_ERROR = {
    **FLAT,
    "results": [],
    "metadata": {**FLAT["metadata"], "total_results": 0},  # type: ignore[dict-item]
    "error": {"code": "EMBEDDING_FAILED", "message": "Failed to embed query: down"},
}


@pytest.mark.parametrize(
    ("profile", "example"),
    [("nested", NESTED), ("nested", NESTED_ERROR), ("flat", FLAT), ("flat", FLAT_ERROR)],
    ids=["nested", "nested error", "flat", "flat error"],
)
def test_a_response_of_another_document_is_read_and_written_back(profile: str, example: dict[str, Any]) -> None:
    for response in (
        RetrievalResponse.model_validate(example),
        RetrievalResponse.model_validate_json(json.dumps(example)),
        RetrievalResponse(**example),
    ):
        written = json.loads(PROFILES[profile].write(response.to_json()))
        metrics = written.get("execution_metrics", {})
        if "error" in example:
            assert metrics.pop("query_embedding_time_ms", 0.0) == 0.0  # the document leaves it out of an error
        assert written == example
        assert response.errors == ((example["error"]["message"],) if "error" in example else ())


@pytest.mark.parametrize("example", [NESTED_RESULT, FLAT["results"][0]], ids=["nested", "flat"])  # type: ignore[index]
def test_a_result_of_another_document_is_read_by_search_result(example: dict[str, Any]) -> None:
    for result in (
        SearchResult.model_validate(example),
        SearchResult.model_validate_json(json.dumps(example)),
        SearchResult(**example),
    ):
        assert result.text == example.get("chunk_text", example.get("content"))
        assert (result.rank, result.metadata.chunk_id) == (1, example["chunk_id"])
        assert result.metadata.url.startswith("https://")
        assert result.metadata.position == 0


def test_a_response_is_made_from_the_results_of_its_client() -> None:
    result = SearchResult(**{**NESTED_RESULT, "metadata": {**NESTED_RESULT["metadata"], "language": "en"}})  # type: ignore[dict-item]
    response = RetrievalResponse(**{**NESTED, "results": [result], "total_results": 1, "error": None})

    assert response.results == (result,)


def test_a_blank_question_is_refused() -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        chunkproof.Query(text=" \n")


@pytest.mark.parametrize("wrong", [{"chunk_id": "a", "chunk_text": "b"}, {"content": 3}, {"rank": 1}, "text"])
def test_a_result_that_no_document_has_is_refused(wrong: object) -> None:
    for read in (SearchResult.model_validate, lambda document: SearchResult.model_validate_json(json.dumps(document))):
        with pytest.raises(ValidationError):
            read(wrong)


def test_times_are_read_from_iso_8601_in_a_dict() -> None:
    example = {"latency_ms": 145, "result_count": 5, "threshold_applied": 0.7, "qdrant_query_time_ms": 120}
    read = chunkproof.ExecutionMetadata(**example, query_embedded_at="2025-12-16T14:30:01Z")

    assert read.query_embedded_at == datetime(2025, 12, 16, 14, 30, 1, tzinfo=UTC)


def test_a_test_case_written_as_json_is_read_in_a_suite_file(tmp_path: Path) -> None:
    case = TestCase.model_validate_json(
        json.dumps(
            {
                "name": "test_ros2_basics_query",
                "query_text": "What is ROS 2 and how does it work?",
                "collection_name": "textbook_embeddings",
                "expected_doc_ids": ["doc_ros2_intro", "doc_ros2_architecture"],
                "expected_keywords": ["ROS 2", "robot", "operating system", "framework"],
                "relevance_threshold": 0.7,
                "top_k": 5,
                "status": "passed",
                "actual_results": [{"id": "uuid-1", "score": 0.92, "payload": {"content": "ROS 2 is a robot"}}],
                "error_message": None,
            }
        )
    )
    assert case.actual_results is not None
    assert case.actual_results[0].excerpt == "ROS 2 is a robot"
    file = tmp_path / "suite.json"
    file.write_text(json.dumps({"name": "s", "cases": [json.loads(case.model_dump_json())]}))

    (read,) = read_source(SuiteSource(file)).suite.cases
    assert read == SuiteCase(**{name: getattr(case, name) for name in SuiteCase.model_fields})
    assert TestCase.model_fields.keys() - SuiteCase.model_fields.keys() == RESULT_FIELDS
