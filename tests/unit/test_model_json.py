"""Every model can be read back from its own JSON."""

import gc
import importlib
import pkgutil
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from pydantic.fields import FieldInfo

import chunkproof
from chunkproof.audit.manifest_file import ManifestLine
from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract.model import Model, Request
from chunkproof.contract.profiles import Query
from chunkproof.contract.query import SearchQuery
from chunkproof.contract.query_options import FusionOptions, IndexParams, LegScore, Mode, RerankOptions, Weights
from chunkproof.contract.response import (
    ChunkMetadata,
    ErrorDetail,
    ExecutionMetadata,
    RetrievalResponse,
    RetrievalResult,
    SearchResult,
    Shaped,
    SourceMetadata,
)
from chunkproof.contract.validation import (
    ChunkOriginal,
    ChunkValidation,
    ChunkValidations,
    ChunkVerdict,
    OfCollection,
    ValidationResult,
    ValidationResults,
)
from chunkproof.suite.cases import CaseDefaults, Suite, TestCase, _Shared
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.suite_report import (
    CollectionStats,
    ForeignValidationReport,
    PerformanceMetrics,
    TestSuiteResult,
    ValidationReport,
)

for found in pkgutil.walk_packages(chunkproof.__path__, "chunkproof."):
    importlib.import_module(found.name)


def models(root: type[Model] = Model) -> Iterator[type[Model]]:
    for kind in root.__subclasses__():
        if kind.__module__.startswith("chunkproof."):
            yield kind
        yield from models(kind)


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NAME = st.text("abcxyz09", min_size=1, max_size=8)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SHARES = st.floats(0, 1)
COUNTS = st.integers(0, 10**9)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=8))])
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=ZONES)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
VALUES = TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | FLOATS
DATES = st.builds(lambda time: time.isoformat(), TIMES)
BOUNDS = st.sampled_from(["gte", "gt", "lte", "lt"])
CONDITIONS = (
    VALUES
    | st.lists(VALUES, min_size=1, max_size=3)
    | st.dictionaries(BOUNDS, FLOATS, min_size=1)
    | st.dictionaries(BOUNDS, DATES, min_size=1)
)
FILTERS = st.dictionaries(NAME, CONDITIONS, max_size=3).flatmap(
    lambda plain: (
        st.dictionaries(NAME, CONDITIONS, min_size=1, max_size=2).map(lambda no: {**plain, "not": no}) | st.just(plain)
    )
)


def values(annotation: Any, metadata: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Values of a field's type, within its limits."""
    if annotation is JsonValue or annotation == JsonValue:
        return JSON
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return values(arguments[0], (*metadata, *arguments[1:]))
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(NAME, values(arguments[1]), max_size=3)
    if arguments and origin is not None and "Literal" in str(origin):
        return st.sampled_from(arguments)
    if arguments:  # a union
        return st.one_of([values(kind) for kind in arguments])
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return instances(annotation)
    limits = {name: getattr(one, name) for one in _flat(metadata) for name in ("ge", "le", "gt") if hasattr(one, name)}
    low = limits.get("ge", limits["gt"] + 1 if "gt" in limits else None)
    known = {
        str: TEXT,
        bool: st.booleans(),
        int: st.integers(0 if low is None else int(low), 10**6),
        float: st.floats(low, limits.get("le"), allow_nan=False, allow_infinity=False),
        datetime: TIMES,
        type(None): st.none(),
    }
    return known[annotation] if annotation in known else st.from_type(annotation)


def _flat(metadata: tuple[Any, ...]) -> Iterator[Any]:
    for one in metadata:
        yield from one.metadata if isinstance(one, FieldInfo) else (one,)


def fields(kind: type[Model], **given_fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Values for every field; the default is one of them where there is one."""
    chosen = {
        name: given_fields[name] if name in given_fields else values(field.annotation, tuple(field.metadata))
        for name, field in kind.model_fields.items()
        if name not in given_fields or given_fields[name] is not OMITTED
    }
    required = {
        name: one for name, one in chosen.items() if name in given_fields or kind.model_fields[name].is_required()
    }
    optional = {name: one for name, one in chosen.items() if name not in required}
    return st.fixed_dictionaries(required, optional=optional)


OMITTED: Any = None
CASE_FIELDS: dict[str, Any] = {
    "name": NAME,
    "query_text": NAME,
    "collection_name": st.none() | NAME,
    "relevance_threshold": SHARES,
    "top_k": st.integers(1, 1000),
    "filters": FILTERS,
    "tags": st.lists(NAME, max_size=2).map(tuple),
    "max_latency_ms": st.none() | st.floats(0.1, 1e6),
    "expected_doc_ids": st.lists(NAME, min_size=1, max_size=3, unique=True).map(tuple),
    "judgments": OMITTED,
    "expected_keywords": st.lists(NAME, max_size=2).map(tuple),
    "expect_no_results": OMITTED,
}
SHARED_FIELDS = {name: one for name, one in CASE_FIELDS.items() if name in CaseDefaults.model_fields}
DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)


def _response(
    results: list[SearchResult], execution: ExecutionMetadata, error: ErrorDetail | None
) -> RetrievalResponse:
    execution = execution.model_copy(update={"result_count": 0 if error else len(results)})
    return RetrievalResponse(
        query="q",
        query_id=None,
        status="error" if error else "success",
        results=[] if error else results,
        execution=execution,
        errors=[error.message] if error else [],
        error=error,
    )


def _validation_result(values: dict[str, Any], matches: bool, passed: bool, details: str) -> ValidationResult:
    about = {"matches": matches, "validation_passed": matches and passed}
    return ValidationResult(**values | about | {"mismatch_details": None if matches else details})


def _verdict(chunk_id: str, result: ValidationResult | None, error: ErrorDetail) -> ChunkVerdict:
    if result is None:
        return ChunkVerdict(chunk_id=chunk_id, status="error", error=error)
    return ChunkVerdict(chunk_id=chunk_id, status="success", result=result)


def _verdicts(verdicts: list[ChunkVerdict], time: float) -> ValidationResults:
    errors = sum(verdict.status == "error" for verdict in verdicts)
    return ValidationResults(
        total=len(verdicts),
        passed=len(verdicts) - errors,
        failed=0,
        errors=errors,
        results=verdicts,
        retrieval_time_ms=time,
    )


def _report(
    kind: type[ValidationReport], values: dict[str, Any], successful: int, failed: int, seconds: float
) -> ValidationReport:
    counts = {"successful_queries": successful, "failed_queries": failed, "total_queries": successful + failed}
    return kind(**values | counts | {"completed_at": values["started_at"] + timedelta(seconds=seconds)})


def _reports(kind: type[ValidationReport], scores: st.SearchStrategy[float]) -> st.SearchStrategy[ValidationReport]:
    computed = ("successful_queries", "failed_queries", "total_queries", "completed_at", "duration_seconds")
    chosen = fields(kind, **dict.fromkeys((*computed, "success_rate"), OMITTED), avg_similarity_score=scores)
    return st.builds(_report, st.just(kind), chosen, COUNTS, COUNTS, st.floats(0, 1e6))


def _suite_result(values: dict[str, Any]) -> TestSuiteResult:
    states = [result.status for result in values["test_results"]]
    counts = {"total_tests": len(states), "passed": states.count(TestStatus.PASSED)}
    counts |= {"failed": states.count(TestStatus.FAILED), "errors": states.count(TestStatus.ERROR)}
    return TestSuiteResult(**values | counts)


def _make(kind: type[Model], chosen: dict[str, Any]) -> Model:
    return kind(**{kind.model_fields[name].alias or name: value for name, value in chosen.items()})


def instances(kind: type[Model]) -> st.SearchStrategy[Any]:
    """Instances of a model; those whose fields depend on each other have a recipe."""
    recipe = RECIPES.get(kind)
    return recipe() if recipe else fields(kind).map(lambda chosen: _make(kind, chosen))


def of(kind: type[Model], **given_fields: Any) -> Any:
    return lambda: fields(kind, **given_fields).map(lambda chosen: kind(**chosen))


QUERY: dict[str, Any] = {
    "query_text": NAME,
    "query_vector": OMITTED,
    "top_k": st.integers(1, 1000),
    "similarity_threshold": SHARES,
    "collection": st.none() | NAME,
    "filters": FILTERS,
    "query_id": NAME,
    "created_at": TIMES | st.datetimes(datetime(1970, 1, 1)),
    "mode": st.just(Mode.HYBRID),
    "fusion": st.deferred(lambda: st.none() | instances(FusionOptions)),
    "params": st.deferred(lambda: st.none() | instances(IndexParams)),
    "group_by": NAME,
    "group_size": st.none() | st.integers(1, 100),
    "diversity": OMITTED,
    "cursor": OMITTED,
    "rerank": st.sampled_from([None, False]),
    "neighbours": st.just(0),
    "queries": OMITTED,
}
OF_A_VECTOR = {
    "highlight": OMITTED,
    **dict.fromkeys(("query_text", "mode", "fusion", "group_by", "group_size"), OMITTED),
    "diversity": SHARES,
}
VECTORS = st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=4).filter(any)
ORIGINAL: dict[str, Any] = {"chunk_id": NAME, "original_text": st.none() | TEXT, "original_sha256": OMITTED}
RECIPES: dict[type[Model], Any] = {
    Query: of(Query, text=NAME),
    SearchQuery: lambda: st.one_of(
        of(SearchQuery, **QUERY)(), of(SearchQuery, **QUERY | OF_A_VECTOR | {"query_vector": VECTORS})()
    ),
    RerankOptions: of(
        RerankOptions, model=st.sampled_from([None, "rerank-v3.5"]), candidates=st.none() | st.integers(1, 1000)
    ),
    LegScore: of(LegScore, rank=st.none() | st.integers(1, 99)),
    Weights: of(Weights, dense=st.floats(0.1, 1000), text=st.floats(0, 1000)),
    FusionOptions: of(
        FusionOptions,
        method=st.just("rrf"),
        k=st.none() | st.integers(1, 10_000),
        candidates=st.none() | st.integers(1, 1000),
    ),
    IndexParams: of(
        IndexParams, hnsw_ef=st.none() | st.integers(1, 10_000), oversampling=st.none() | st.floats(1, 100)
    ),
    OfCollection: of(OfCollection, collection=st.none() | NAME),
    ChunkOriginal: of(ChunkOriginal, **ORIGINAL),
    ChunkValidation: of(
        ChunkValidation, **ORIGINAL | {"original_text": OMITTED, "original_sha256": DIGESTS, "collection": NAME}
    ),
    ChunkValidations: lambda: st.lists(fields(ChunkOriginal, **ORIGINAL), min_size=1, max_size=3).map(
        lambda originals: ChunkValidations(chunks=originals)
    ),
    ManifestLine: of(
        ManifestLine,
        chunk_id=NAME,
        point_id=st.none() | st.integers(0, 2**64 - 1) | st.uuids().map(str),
        original_text=st.just("text"),
        original_sha256=OMITTED,
        present=OMITTED,
        metadata=st.none() | st.dictionaries(st.sampled_from(["url", "document_title"]), TEXT),
        vector=st.none() | st.lists(st.binary(min_size=4, max_size=4)).map(lambda v: b64encode(b"".join(v)).decode()),
    ),
    RetrievalResult: of(
        RetrievalResult,
        similarity_score=SHARES,
        chunk_text=st.none() | NAME,
        source_url=st.none() | st.just("https://example.com/a"),
        chunk_index=st.none() | COUNTS,
        rank=st.integers(1, 99),
        retrieval_time_ms=st.floats(0, 1e6),
    ),
    SearchResult: lambda: fields(
        SearchResult, metadata=instances(SourceMetadata) | instances(ChunkMetadata), rank=st.integers(1, 9)
    ).map(lambda chosen: SearchResult(**chosen)),
    RetrievalResponse: lambda: st.builds(
        _response,
        st.lists(instances(SearchResult), max_size=2),
        instances(ExecutionMetadata),
        st.none() | instances(ErrorDetail),
    ),
    ValidationResult: lambda: st.builds(
        _validation_result,
        fields(ValidationResult, matches=OMITTED, validation_passed=OMITTED, mismatch_details=OMITTED),
        st.booleans(),
        st.booleans(),
        NAME,
    ),
    ChunkVerdict: lambda: st.builds(_verdict, NAME, st.none() | instances(ValidationResult), instances(ErrorDetail)),
    ValidationResults: lambda: st.builds(_verdicts, st.lists(instances(ChunkVerdict), max_size=3), st.floats(0, 1e6)),
    _Shared: of(_Shared, **SHARED_FIELDS),
    CaseDefaults: of(CaseDefaults, **SHARED_FIELDS),
    TestCase: of(TestCase, **CASE_FIELDS),
    TestCaseResult: of(TestCaseResult, **CASE_FIELDS),
    Suite: lambda: st.lists(instances(TestCase), min_size=1, max_size=2).map(
        lambda cases: Suite(name="suite", cases=cases)
    ),
    CollectionStats: lambda: st.builds(
        lambda known, more: CollectionStats(**more | known),
        fields(CollectionStats),
        st.dictionaries(NAME.map("x_{}".format), TEXT, max_size=2),
    ),
    ValidationReport: lambda: _reports(ValidationReport, SHARES),
    ForeignValidationReport: lambda: _reports(ForeignValidationReport, st.floats(1.5, 99)),
    TestSuiteResult: lambda: fields(
        TestSuiteResult,
        **dict.fromkeys(("total_tests", "passed", "failed", "errors", "pass_rate", "failure_rate")),
        performance_metrics=instances(PerformanceMetrics),
    ).map(_suite_result),
}
ABSTRACT = {Model, Request, Shaped}


@pytest.mark.parametrize(
    "kind", sorted({*models()} - ABSTRACT, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__
)
@settings(max_examples=max(10, settings().max_examples // 5))  # of each of some sixty models
@given(st.data())
def test_a_model_is_what_its_json_says(kind, data):
    made = data.draw(instances(kind))
    written = made.to_json()

    assert kind.model_validate_json(written) == made
    assert kind.model_validate_json(written.encode()).to_json() == written


def test_requests_that_are_refused_leave_nothing_in_memory() -> None:
    def refuse(times: int) -> int:
        for _ in range(times):
            for document in ({}, [], {"query_text": 5}):
                with suppress(InvalidParameterError):
                    SearchQuery.parse(document)
        gc.collect()
        return len(gc.get_objects())

    before = refuse(10)
    assert refuse(100) - before < 100
