"""Find out what brings back the questions that a run newly lost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chunkproof.audit.snapshot import Snapshot
from chunkproof.errors import ChunkproofError
from chunkproof.suite.blame import Blame, BlamedCase, summarize
from chunkproof.suite.case_runner import call_backend
from chunkproof.suite.judge import SHOWN_IDS, find_low_scores
from chunkproof.suite.outcome import TestCaseResult, find_returned
from chunkproof.why.explain import Explainer, Question
from chunkproof.why.report import WhyReport

# Each costs some searches; with more, most of them probably have the same cause.
MAX_CASES = 100


@dataclass(frozen=True)
class Blamer:
    """Explains the failures of cases; `where` has the options with which a command reaches the same store."""

    explainer: Explainer
    snapshot: Snapshot | None = None
    where: str = ""
    on_case: Callable[[int], None] = lambda _count: None

    def blame(self, results: Sequence[TestCaseResult], newly_failing: Sequence[str]) -> Blame:
        """Explain every newly failing case."""
        failing = [result for result in results if result.name in set(newly_failing)]
        if self.snapshot is not None:
            self.snapshot.prefetch(key for case in failing[:MAX_CASES] for key, _ in _list_lost(case))
        blamed: list[BlamedCase] = []
        left_out: dict[str, str] = {}
        for case in failing[:MAX_CASES]:
            try:
                found = self._explain(case)
            except ChunkproofError as error:
                left_out[case.name] = str(error)
            else:
                blamed += found
                if not found:
                    left_out[case.name] = "no expected chunk is missing: see its diagnosis"
            self.on_case(1)
        left_out |= {c.name: f"only the first {MAX_CASES} were looked into" for c in failing[MAX_CASES:]}
        snapshot = self.snapshot
        return Blame(
            summary=summarize(blamed, left_out),
            snapshot=f"{snapshot.path.name} of {snapshot.header.created_at}" if snapshot else None,
            cases=tuple(blamed),
            not_blamed=left_out,
        )

    def _explain(self, case: TestCaseResult) -> list[BlamedCase]:
        return [self._explain_one(case, key, threshold) for key, threshold in _list_lost(case)[:SHOWN_IDS]]

    def _explain_one(self, case: TestCaseResult, key: str, threshold: float) -> BlamedCase:
        request = {**case.request(), **({"similarity_threshold": threshold} if threshold else {})}
        question = Question(request, key, self.snapshot, self.where)
        report: WhyReport = call_backend(lambda: self.explainer.explain(question).report)
        verdict = report.verdict
        return BlamedCase(
            name=case.name,
            expected=key,
            causes=verdict.causes,
            changes=verdict.changes,
            line=verdict.line,
            cost=verdict.cost,
            command=verdict.command,
            then=verdict.then,
            rows=report.rows,
        )


def _list_lost(case: TestCaseResult) -> list[tuple[str, float]]:
    """Return the expected ids that are missing, or that score too low with the score they need."""
    returned = {key: find_returned(case, key) for key in case.expected_doc_ids}
    missing = [key for key, result in returned.items() if result is None]
    lost = [(key, 0.0) for key in missing if case.expect == "all" or len(missing) == len(returned)]
    low = find_low_scores(case, [result for result in returned.values() if result], case.actual_results or ())
    return lost + [(result.chunk_id, case.relevance_threshold) for result in low]
