"""A suite embeds the queries of most cases together, and measures latency on the others."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from chunkproof.base.request import Deadline
from chunkproof.collection.reader import Reader
from chunkproof.collection.services import Services
from chunkproof.embedders.cohere import CohereEmbedder
from chunkproof.embedders.embedder_port import InputType
from chunkproof.net.transport import DeadlineTransport
from chunkproof.proof.backend import LocalBackend
from chunkproof.service.terminal import local_backend
from chunkproof.stores.store_port import Point, WritableStore
from chunkproof.suite.cases import assign_collection
from chunkproof.suite.outcome import TestStatus
from chunkproof.suite.runner import MEASURED, InterruptedRun, RunPlan, run_suite
from chunkproof.suite.suite_report import SuiteReport
from chunkproof_cli.commands.diff import _compare_queries
from chunkproof_cli.reports.outputs import SUITE

from support.chunks import fill, make_services
from support.cohere_server import KEY, CohereServer, hashed
from support.recording_server import CannedResponse
from support.suites import suite

CASES = 200
SIZE = 1024
Started = Callable[..., LocalBackend]


@pytest.fixture
def start(memory_store: WritableStore, collection: str, cohere_api: CohereServer) -> Iterator[Started]:
    """Makes the backend of a collection in which each question of `plan` finds its chunk, with Cohere behind HTTP."""
    transport = DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"})
    embedder = CohereEmbedder(transport, model="embed-english-v3.0", base_url=cohere_api.url)
    points = [Point(n, {"chunk_id": f"d{n}", "text": f"q{n}"}, vector=tuple(hashed(SIZE)(f"q{n}"))) for n in range(5)]
    fill(memory_store, collection, *points, size=SIZE)

    def started(**settings: str) -> LocalBackend:
        return local_backend(make_services(memory_store, collection, embedder, **settings))

    yield started
    embedder.close()


def plan(backend: LocalBackend, count: int = CASES, *more: dict[str, Any], **how: Any) -> RunPlan:
    """Cases c0, c1 …; those of the first five questions pass."""
    asked = ({"name": f"c{n}", "query_text": f"q{n}", "expected_doc_ids": [f"d{n % 5}"]} for n in range(count))
    made = suite(*asked, *more)
    return RunPlan(made, "suite.yaml", assign_collection(made.cases, backend.services.settings.collection), **how)


def sizes(api: CohereServer) -> list[int]:
    """How many texts each embedding call had."""
    return [len(request["texts"]) for request in api.requests]


def details(report: SuiteReport) -> dict[str, str | None]:
    return {one.id: one.details for one in report.criteria}


def refusal(status: int, message: str = "no", **headers: str) -> CannedResponse:
    return CannedResponse(status, json.dumps({"message": message}).encode(), headers)


@pytest.mark.parametrize("jobs", [1, 4])
@pytest.mark.parametrize("entries", ["1000", "0", "5"])
def test_two_hundred_cases_take_a_sample_and_two_batches_of_calls(
    start: Started, cohere_api: CohereServer, entries: str, jobs: int
) -> None:
    """Whatever the cache keeps: 1 cold search, 20 warm ones that are measured, 179 in two batches."""
    backend = start(CACHE_ENTRIES=entries)
    report = run_suite(plan(backend, jobs=jobs), backend)
    assert sizes(cohere_api) == [1] * (1 + MEASURED) + [96, 83]
    assert sorted(text for request in cohere_api.requests for text in request["texts"]) == sorted(
        f"q{n}" for n in range(CASES)
    )
    assert {case.status for case in report.result.test_results} <= {TestStatus.PASSED, TestStatus.FAILED}
    assert [case.name for case in report.result.test_results] == [f"c{n}" for n in range(CASES)]
    timings = [case.timing for case in report.result.test_results if case.timing]
    whole = [timing for timing in timings if not timing.embedding_cached]
    assert (len(timings), len(whole), sum(timing.cold for timing in whole)) == (CASES, 1 + MEASURED, 1)


def test_latency_is_that_of_the_searches_that_embedded_and_every_report_says_how_many(
    start: Started, cohere_api: CohereServer
) -> None:
    backend = start()
    report = run_suite(plan(backend), backend)
    whole = [case.timing for case in report.result.test_results if case.timing and not case.timing.embedding_cached]
    warm = [timing.latency_ms for timing in whole if not timing.cold]
    total, embedding, search, _ = report.latency
    assert total.warm is not None
    assert embedding.warm is not None
    assert search.warm is not None
    assert (total.warm.count, embedding.warm.count, search.warm.count) == (MEASURED, MEASURED, CASES - 1)
    assert total.warm.avg_ms == pytest.approx(sum(warm) / MEASURED, abs=0.001)
    assert total.warm.max_ms == max(warm)
    assert embedding.warm.max_ms == max(timing.embedding_ms for timing in whole if not timing.cold)
    assert report.result.performance_metrics.max_retrieval_time_ms == max(warm)
    everything = [timing.latency_ms for timing in whole]
    assert report.validation.avg_query_time == pytest.approx(sum(everything) / len(everything) / 1000)
    found = details(report)
    assert {found[key] for key in ("SC-002", "stage-embedding", "stage-total")} == {"20 warm searches"}
    assert found["stage-search"] == "199 warm searches"
    page = SUITE.render(report, ".html")
    assert "95th percentile of 20 searches" in page


def test_a_small_suite_is_measured_whole(start: Started, cohere_api: CohereServer) -> None:
    backend = start()
    report = run_suite(plan(backend, MEASURED + 1), backend)
    assert sizes(cohere_api) == [1] * (MEASURED + 1)
    assert details(report)["SC-002"] == "20 warm searches"


def test_cases_that_limit_their_latency_embed_their_own_query(start: Started, cohere_api: CohereServer) -> None:
    backend = start()
    limited = [
        {"name": f"fast {n}", "query_text": f"fast {n}", "max_latency_ms": 60_000, "expected_keywords": []}
        for n in range(30)
    ]
    report = run_suite(plan(backend, 40, *limited), backend)
    assert [case.status for case in report.result.test_results[40:]] == [TestStatus.PASSED] * 30
    assert not any(case.timing.embedding_cached for case in report.result.test_results[40:] if case.timing)
    alone = [request["texts"][0] for request in cohere_api.requests if len(request["texts"]) == 1]
    assert {case["query_text"] for case in limited} <= set(alone)
    assert sizes(cohere_api)[-1] > 20


def test_a_batch_that_fails_leaves_each_case_to_its_own_search(start: Started, cohere_api: CohereServer) -> None:
    backend = start()
    served = backend.services.embedder
    assert served is not None
    embed = served.embed

    def refuse_batches(texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        if len(texts) > 1 or texts == ["q30"]:
            cohere_api.responses += [refusal(503)] * 2  # the transport repeats a call once
        return embed(texts, input_type, deadline)

    served.embed = refuse_batches  # type: ignore[method-assign]
    report = run_suite(plan(backend, 60), backend)
    errors = [case for case in report.result.test_results if case.status is TestStatus.ERROR]
    assert [(case.name, case.error_code) for case in errors] == [("c30", "EMBEDDING_FAILED")]
    assert details(report)["SC-002"] == "58 warm searches", "each embedded its own query"


def test_a_batch_that_a_rate_limit_refuses_is_sent_again_after_the_pause(
    start: Started, cohere_api: CohereServer
) -> None:
    backend = start()
    served = backend.services.embedder
    assert served is not None
    embed = served.embed
    refusals = [refusal(429, **{"retry-after": "0"})] * 2

    def refuse_once(texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        if len(texts) > 1:
            cohere_api.responses += refusals
            refusals.clear()
        return embed(texts, input_type, deadline)

    served.embed = refuse_once  # type: ignore[method-assign]
    report = run_suite(plan(backend, 60), backend)
    assert report.result.errors == 0
    assert sizes(cohere_api)[-3:] == [39, 39, 39], "repeated by the transport, then after the pause"


def test_a_query_that_is_too_long_fails_alone(start: Started, cohere_api: CohereServer) -> None:
    backend = start()
    long = [
        {"name": "long", "query_text": "word " * 600, "expected_doc_ids": ["d0"]},
        {"name": "longest", "query_text": "x" * 10_001, "expected_doc_ids": ["d0"]},
    ]
    made = plan(backend, 100, *long)
    cases = (*made.cases[:50], *made.cases[100:], *made.cases[50:100])
    report = run_suite(RunPlan(made.suite, "s", cases), backend)
    errors = {case.name: case.error_code for case in report.result.test_results if case.status is TestStatus.ERROR}
    assert errors == {"long": "QUERY_TOO_LONG", "longest": "INVALID_REQUEST"}
    assert not any(len(text) > 10_000 for request in cohere_api.requests for text in request["texts"])


def test_repeated_runs_embed_nothing_again(start: Started, cohere_api: CohereServer) -> None:
    backend = start()
    report = run_suite(plan(backend, repeat=3), backend)
    assert sizes(cohere_api) == [1] * (1 + MEASURED) + [96, 83]
    assert {one.id: one.verdict.value for one in report.criteria}["SC-006"] == "met"


@pytest.mark.parametrize("jobs", [1, 4])
def test_an_interruption_between_batches_leaves_the_verdicts_so_far(
    start: Started, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    backend = start()
    search = backend.search

    def interrupt(request: dict[str, Any]) -> Any:
        if request["query_text"] == "q150":
            raise KeyboardInterrupt
        return search(request)

    monkeypatch.setattr(backend, "search", interrupt)
    with pytest.raises(InterruptedRun) as stopped:
        run_suite(plan(backend, 300, jobs=jobs), backend)
    report = stopped.value.report
    states = [case.status for case in report.result.test_results]
    assert states.count(TestStatus.PENDING) > 100
    assert states.count(TestStatus.PENDING) + sum(state.is_judged for state in states) == 300
    monkeypatch.setattr(backend, "search", search)
    rest = run_suite(RunPlan(plan(backend, 300).suite, "s", report.result.test_results), backend)
    assert rest.result.errors == 0
    assert all(case.status.is_judged for case in rest.result.test_results)


def test_collections_with_models_of_their_own_are_embedded_by_these(
    memory_store: WritableStore, collection: str
) -> None:
    class Counting:
        max_batch, dimension = 96, 4

        def __init__(self, model: str) -> None:
            self.model, self.calls = model, list[list[str]]()

        def excess(self, _text: str) -> str | None:
            return None

        def embed(self, texts: Sequence[str], _input_type: InputType, _deadline: Deadline) -> list[list[float]]:
            self.calls.append(list(texts))
            return [hashed(4)(f"{self.model} {text}") for text in texts]

    general, own = Counting("general"), Counting("own")
    for name in (collection, f"{collection}-b"):
        fill(memory_store, name, Point(1, {"chunk_id": "d", "text": "text"}, vector=(1.0, 0, 0, 0)), size=4)
    settings = make_services(memory_store, collection).settings
    services = Services(settings, memory_store, general, embedders={f"{collection}-b": own})
    made = suite(
        *(
            {"name": f"c{n}", "query_text": f"q{n}", "expected_doc_ids": ["d"], "collection_name": name}
            for n, name in enumerate([collection, f"{collection}-b"] * 50)
        )
    )
    report = run_suite(RunPlan(made, "s", made.cases), local_backend(services))
    assert report.result.errors == 0
    for model, parity in ((general, 0), (own, 1)):
        assert sorted(text for call in model.calls for text in call) == sorted(f"q{n}" for n in range(parity, 100, 2))
        assert [len(call) for call in model.calls] == [1] * 11 + [39]
    assert [stage.cold.count for stage in report.latency if stage.cold] == [2, 2, 2, 2]


def test_a_diff_embeds_the_queries_of_its_suite_together(start: Started, cohere_api: CohereServer) -> None:
    backend = start()
    reader = Reader(backend.services, backend.services.settings.collection)
    asked = [{"name": f"c{n}", "query_text": f"q{n}", "expected_doc_ids": [f"d{n % 5}"]} for n in range(CASES)]
    found = _compare_queries(suite(*asked), (reader, reader))
    assert (found.queries, found.overlap) == (CASES, 1.0)
    # Alone: the first query, and those that a suite would measure. The second collection takes all from the cache.
    rest = CASES - 1 - MEASURED
    assert sizes(cohere_api) == [*[1] * (1 + MEASURED), *[96] * (rest // 96), rest % 96]
