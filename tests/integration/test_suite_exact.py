"""`--exact`: a bad index is not mistaken for bad embeddings."""

import time
from collections.abc import Sequence
from random import Random

import pytest
from qdrant_client import models

from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType
from chunkproof.service.terminal import local_backend
from chunkproof.stores.store_port import Point, WritableStore
from chunkproof.suite.diagnosis import Diagnoser
from chunkproof.suite.outcome import TestStatus
from chunkproof.suite.runner import RunPlan, run_suite
from chunkproof.suite.suite_report import SuiteReport
from chunkproof.why.causes import Cause
from chunkproof.why.explainer import make_explainer
from chunkproof_cli.reports.suite_blocks import explain_result

from support.chunks import make_services
from support.sdk import sdk
from support.suites import suite

POINTS = 2000
pytestmark = pytest.mark.server


class Scattered:
    """Each text somewhere on a sphere, by chance, always at the same place."""

    model = "scattered"
    dimension = 32
    max_batch = 1

    def excess(self, _text: str) -> str | None:
        return None

    def embed(self, texts: Sequence[str], _input_type: InputType, _deadline: Deadline) -> list[list[float]]:
        return [self.at(text) for text in texts]

    def at(self, text: str) -> list[float]:
        random = Random(text)
        return [random.gauss(0, 0.1) for _ in range(self.dimension)]


def collection_with(store: WritableStore, name: str, index: models.HnswConfigDiff) -> None:
    """Points under an index that was made with these settings, and is in use."""
    sdk(store).create_collection(
        name,
        vectors_config=models.VectorParams(size=Scattered.dimension, distance=models.Distance.COSINE),
        hnsw_config=index,
        optimizers_config=models.OptimizersConfigDiff(indexing_threshold=1, default_segment_number=1),
    )
    points = [
        Point(n, {"text": f"text {n}", "chunk_id": f"c{n}"}, vector=tuple(Scattered().at(f"text {n}")))
        for n in range(POINTS)
    ]
    store.upsert(name, points, "", Deadline(60_000))
    give_up = time.monotonic() + 30
    while store.describe(name, Deadline(60_000)).indexed_vectors_count < POINTS:
        assert time.monotonic() < give_up
        time.sleep(0.05)


def run(store: WritableStore, name: str) -> SuiteReport:
    """Each query is the text of a chunk: its vector is the nearest there can be."""
    cases = [{"name": f"{n}", "query_text": f"text {n}", "expected_doc_ids": [f"c{n}"]} for n in range(0, POINTS, 50)]
    made = suite(*cases)
    local = local_backend(make_services(store, name, Scattered()))
    diagnoser = Diagnoser(make_explainer(local))
    plan = RunPlan(made, "s", made.cases)
    return run_suite(plan, local, exact_search=local.search_exactly, diagnoser=diagnoser)


def test_a_poor_index_lowers_ann_recall_and_is_diagnosed_by_the_exact_search(
    server_store: WritableStore, collection: str
) -> None:
    collection_with(server_store, collection, models.HnswConfigDiff(m=4, ef_construct=4, full_scan_threshold=10))
    report = run(server_store, collection)
    assert report.approximation is not None
    assert report.approximation.ann_recall < 0.8
    missed = [r for r in report.result.test_results if r.approximation and r.approximation.missed_by_index]
    assert report.approximation.missed_by_index == len(missed) > 0
    assert all(result.status is TestStatus.FAILED for result in missed)
    assert {found.cause for result in missed for found in result.diagnosis} == {Cause.MISSED_BY_INDEX}
    assert missed[0].diagnosis[0].message == (
        f"c{missed[0].name} was missed by the index; with an exact search, it is at rank 1 (1.000)"
    )
    assert (missed[0].diagnosis[0].command or "").startswith(f'curl -X PATCH "$QDRANT_URL/collections/{collection}" ')
    assert explain_result(missed[0]) == (
        f"Not in the top 10: c{missed[0].name} (an exact search finds c{missed[0].name}: the index missed it)"
    )


def test_a_good_index_misses_almost_nothing(server_store: WritableStore, collection: str) -> None:
    collection_with(server_store, collection, models.HnswConfigDiff(m=16, ef_construct=200, full_scan_threshold=10))
    report = run(server_store, collection)
    assert report.approximation is not None
    assert report.approximation.ann_recall > 0.95
    assert report.result.passed == report.result.total_tests
