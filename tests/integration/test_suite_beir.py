"""A BEIR folder of 1,000 documents and 200 queries, run on an embedded store, against trec_eval."""

from pathlib import Path

import pytest

from chunkproof.service.terminal import local_backend
from chunkproof.stores.store_port import WritableStore
from chunkproof.suite.runner import RunPlan, run_suite
from chunkproof.suite.suite_file import SuiteSource, read_source
from chunkproof_cli.loading import Loader, check_chunks

from support import oracle
from support.beir import write_beir
from support.chunks import make_services
from support.words import Words
from tools.checks.suite_oracle import print_table, read_qrels


def test_metrics_of_a_beir_folder_equal_trec_evals(
    memory_store: WritableStore, collection: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, embedder = tmp_path / "machines", Words()
    write_beir(folder)
    chunks = check_chunks(folder, embedder.excess)
    Loader(memory_store, embedder, collection, None).load(chunks)
    found = read_source(SuiteSource(folder, top_k=20)).suite
    assert (chunks.count, len(found.cases)) == (1000, 200)

    backend = local_backend(make_services(memory_store, collection, embedder))
    result = run_suite(RunPlan(found, str(folder), found.cases), backend).result
    ties = sum(
        first.similarity_score == second.similarity_score
        for case in result.test_results
        for first, second in zip(case.actual_results or (), (case.actual_results or ())[1:], strict=False)
    )
    assert ties > 100  # or it would say little

    run = {
        case.name: {chunk.chunk_id: float(-chunk.rank) for chunk in case.actual_results or ()}
        for case in result.test_results
    }
    qrels = read_qrels(folder / "qrels" / "test.tsv")
    theirs: dict[str, float] = {}
    for k in (1, 3, 5, 10, 20):
        theirs |= oracle.means(run, qrels, k)
    assert result.metrics == pytest.approx(theirs, abs=1e-9)
    assert set(result.metric_queries.values()) == {200}

    assert print_table(result.metrics, theirs) == 0
    assert print_table({**result.metrics, "mrr@5": 0.5}, theirs) == 1
    assert "30 metrics, 1 differ by more than 1e-09" in capsys.readouterr().out
