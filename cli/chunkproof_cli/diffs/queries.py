"""Search for the queries of a suite in both collections, and compare the results by their texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from chunkproof.audit.reader import Reader, in_batches
from chunkproof.errors import CorruptChunkError
from chunkproof.models import RetrievalResponse
from chunkproof.retrieval.integrity import digest
from chunkproof.runtime.local import local_backend
from chunkproof.suite.case_runner import run_case
from chunkproof.suite.cases import Suite
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof_cli.diffs.report import QueryDiff, RankChange
from chunkproof_cli.suites.compare import CHANCE, measure_changes

ROUNDS, SEED = 10_000, 20_250_101
MAX_ROWS = 200
SHOWN_METRICS = ("pass rate", "hit_rate@5", "recall@5", "recall@10", "mrr@10", "ndcg@10")


def compare_queries(suite: Suite, a: Reader, b: Reader, done: Callable[[int], None]) -> QueryDiff:
    """Run every case in both collections. An expected chunk of A counts in B under any id, if its text is there."""
    ids = _find_expected_texts(suite, a)
    pairs: list[tuple[TestCaseResult, TestCaseResult]] = []
    for case in suite.cases:
        own = case.model_copy(update={"collection_name": a.collection, "max_latency_ms": None})
        other = case.model_copy(update={"collection_name": b.collection, "max_latency_ms": None})
        pairs.append((run_case(own, local_backend(a.services).search), run_case(other, _Relabelled(b, ids).search)))
        done(1)
    return summarize(suite.name, pairs)


def summarize(suite: str, pairs: Sequence[tuple[TestCaseResult, TestCaseResult]]) -> QueryDiff:
    """Compare the results of each case, and the metrics over all that both sides could answer."""
    judged = [(left, right) for left, right in pairs if left.status.is_judged and right.status.is_judged]
    rows = [_compare_results(left, right) for left, right in judged]
    low, high = bootstrap_mean([row.overlap for row in rows])
    changes = [each for each in measure_changes(judged) if each.name in SHOWN_METRICS] if judged else []
    return QueryDiff(
        suite=suite,
        queries=len(pairs),
        top_k=max((left.top_k for left, _ in pairs), default=0),
        overlap=sum(row.overlap for row in rows) / len(rows) if rows else 0.0,
        overlap_low=low,
        overlap_high=high,
        same_first=sum(row.same_first for row in rows),
        same_order=sum(row.overlap == 1 and row.largest_move == 0 for row in rows),
        changes=tuple(changes),
        confidence=1 - 2 * CHANCE,
        newly_failing=tuple(right.name for left, right in judged if _is_passed(left) and not _is_passed(right)),
        newly_passing=tuple(right.name for left, right in judged if _is_passed(right) and not _is_passed(left)),
        not_judged=tuple(left.name for left, right in pairs if (left, right) not in judged),
        reason=next((each.error_message for pair in pairs for each in pair if not each.status.is_judged), None),
        rows=tuple(sorted(rows, key=lambda row: (row.overlap, row.name))[:MAX_ROWS]),
    )


def bootstrap_mean(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean: of resampled values, with a fixed seed."""
    if not values:
        return 0.0, 0.0
    import numpy as np  # a tenth of a second to import

    drawn = np.random.default_rng(SEED).integers(0, len(values), (ROUNDS, len(values)))
    means = np.array(values)[drawn].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def _compare_results(left: TestCaseResult, right: TestCaseResult) -> RankChange:
    of_a, of_b = (_rank_texts(result) for result in (left, right))
    common = of_a.keys() & of_b.keys()
    most = max(len(of_a), len(of_b))
    return RankChange(
        name=left.name,
        query=left.query_text,
        overlap=len(common) / most if most else 1.0,
        same_first=next(iter(of_a), None) == next(iter(of_b), None),
        largest_move=max((abs(of_a[text] - of_b[text]) for text in common), default=0),
        status_a=left.status.value,
        status_b=right.status.value,
    )


def _rank_texts(result: TestCaseResult) -> dict[str, int]:
    """Return the rank of each text, the first one where it is repeated."""
    ranks: dict[str, int] = {}
    for chunk in result.actual_results or ():
        ranks.setdefault(chunk.text_sha256, chunk.rank)
    return ranks


def _is_passed(result: TestCaseResult) -> bool:
    return result.status is TestStatus.PASSED


def _find_expected_texts(suite: Suite, a: Reader) -> dict[str, str]:
    """Return the hash of the text of each expected chunk of A, with its id; documents are no chunks."""
    expected = dict.fromkeys(key for case in suite.cases for key in case.grades)
    found: dict[str, str] = {}
    for batch in in_batches(expected):
        for chunk_id, points in a.find(dict.fromkeys(batch)).points.items():
            try:
                found.setdefault(digest(a.services.payloads.text_of(points[0])), chunk_id)
            except CorruptChunkError:
                continue
    return found


@dataclass(frozen=True)
class _Relabelled:
    """The search of a collection, in which an expected text has the id that the suite expects."""

    reader: Reader
    ids: dict[str, str]

    def search(self, request: dict[str, Any]) -> RetrievalResponse:
        """Search, and replace the ids of expected texts."""
        response = local_backend(self.reader.services).search(request)
        results = []
        for result in response.results:
            known = self.ids.get(digest(result.text))
            if known is not None and known != result.metadata.chunk_id:
                metadata = result.metadata.model_copy(update={"chunk_id": known})
                result = result.model_copy(update={"metadata": metadata})  # noqa: PLW2901 - the same result
            results.append(result)
        return response.model_copy(update={"results": tuple(results)})
