"""A suite run as a sharded job: split the cases into shards, run each shard, merge the results into one report.

A shard is a series of consecutive cases, so that the shards' results, one after the other, are in the suite's order. A
retried shard continues its earlier attempt: verdicts are kept, cases that failed with a service are tried again. Beside
the objects of any job, `suite.json` is the suite as it was when the run began.
"""

from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from chunkproof.base import errors
from chunkproof.contract import Model
from chunkproof.contract.model import format_path, read_json
from chunkproof.net.s3 import JobPlan, ShardedJob, map_in_parallel, parse_address
from chunkproof.proof.backend import LocalBackend
from chunkproof.suite.cases import BrokenSuiteError, Suite, assign_collection, read_suite
from chunkproof.suite.diagnosis import Diagnoser
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.runner import CaseRunner, RunPlan, collections_of, inspect_collections, mark_as_error, run_suite
from chunkproof.suite.suite_report import SuiteReport
from chunkproof.why.explainer import make_explainer

# The suite that the stack runs on its schedule and after a deployment.
PUBLISHED = "suite.json"
# One function merges all results in memory: 10,000 cases of ten results take 0.8 GB and ten seconds.
MAX_CASES = 10_000
HOW_TO_UPLOAD = "chunkproof suite publish and suite run --stack upload any kind of suite as JSON"


class ShardFailedError(errors.UnavailableError):
    """A shard has cases that could not be judged."""

    code = "SHARD_FAILED"


class NotPublishedError(errors.NotFoundError):
    """The stack has no suite yet: a run that its schedule or a deployment started ends without a failure."""


class SuitePlan(JobPlan):
    """What is run, and in how many shards."""

    run_id: str
    source: str
    cases: int


class ShardProgress(Model):
    """How far a shard is; one that is not finished has to be called again."""

    shard: int
    cases: int
    finished: bool


class _Results(Model):
    results: tuple[TestCaseResult, ...]


class ShardedSuite(ShardedJob[SuitePlan]):
    """The steps of one sharded run."""

    FOLDER, ID, PLAN = "runs", "run_id", SuitePlan

    def split(self, address: str, collection: str, shard_cases: int, backend: LocalBackend, source: str) -> SuitePlan:
        """Check the suite and its collections, and write its shards; cases that name no collection get this one."""
        started_at = datetime.now(UTC)
        try:
            suite = read_stored_suite(address)
        except errors.NotFoundError as error:
            if address == self.bucket.address(PUBLISHED):
                raise NotPublishedError(error.message) from None
            raise
        default = collection or suite.collection or backend.services.settings.collection
        cases = assign_collection(suite.cases, default)
        if len(cases) > MAX_CASES:
            raise errors.InvalidParameterError(
                f"{address} has {len(cases):,} cases, more than {MAX_CASES:,}: run it in parts"
            )
        versions = backend.services.pin(collections_of(cases))
        inspect_collections(cases, backend.at(versions))
        shards = range(-(-len(cases) // shard_cases))

        def write(shard: int) -> None:
            part = cases[shard * shard_cases : (shard + 1) * shard_cases]
            self._write_results(shard, map(TestCaseResult.pending, part), "shards")

        deque(map_in_parallel(write, shards), maxlen=0)
        self.write("suite.json", suite.to_json())
        return self._write_plan(
            [{"shard": shard} for shard in shards],
            source=source or address,
            cases=len(cases),
            started_at=started_at,
            versions=versions,
        )

    def run(self, shard: int, backend: LocalBackend, should_stop: Callable[[], bool]) -> ShardProgress:
        """Run one shard until `should_stop` returns true.

        Cases that failed with a service are stored and then raised as `ShardFailedError`, so that the shard is retried.
        """
        plan = self.plan()
        with self._recording_failure(shard):
            pinned = backend.at(plan.versions)
            before = self._load_results(shard)
            cases = (TestCaseResult.pending(result) if _is_retryable(result) else result for result in before)
            runner = CaseRunner(
                cases, pinned.search, should_stop=should_stop, embed_ahead=pinned.embed_ahead, shards=plan.shards
            )
            results = list(runner.execute())
            self._write_results(shard, results)
            diagnoser = Diagnoser(make_explainer(pinned))
            results = [
                result if _is_finished(result) or should_stop() else diagnoser.diagnose([result])[0]
                for result in results
            ]
            self._write_results(shard, results)
            failed = [result for result in results if _is_retryable(result)]
            if failed and not any(result.status is TestStatus.PENDING for result in results):
                raise ShardFailedError(
                    f"{len(failed)} of {len(results)} cases of shard {shard} could not be judged: "
                    f"{failed[0].error_message}"
                )
        return ShardProgress(shard=shard, cases=len(results), finished=all(map(_is_finished, results)))

    def merge(self, backend: LocalBackend) -> SuiteReport:
        """Write one report on all cases; cases of a failed shard are in error, with the reason."""
        plan = self.plan()
        results = [result for shard in map_in_parallel(self._final_results, self.shards()) for result in shard]
        whole = RunPlan(
            Suite.model_validate_json(self.read("suite.json")),
            plan.source,
            results,
            latency_target_ms=backend.services.settings.latency_target_ms,
            started_at=plan.started_at,
            versions=plan.versions,
        )
        report = run_suite(whole, backend.at(plan.versions))
        self.write("report.json", report.canonical_json())
        return report

    def _load_results(self, shard: int) -> tuple[TestCaseResult, ...]:
        """Return the results of earlier attempts, else the cases as pending."""
        content = self.read_if_exists(f"results/{shard:05d}.json") or self.read(f"shards/{shard:05d}.json")
        return _Results.model_validate_json(content).results

    def _final_results(self, shard: int) -> list[TestCaseResult]:
        error = ShardFailedError(f"Shard {shard} could not be run: {self.read_failure(shard)}")
        return [
            mark_as_error(result, error) if result.status is TestStatus.PENDING else result
            for result in self._load_results(shard)
        ]

    def _write_results(self, shard: int, results: Iterable[TestCaseResult], folder: str = "results") -> None:
        self.write(f"{folder}/{shard:05d}.json", _Results(results=tuple(results)).to_json())


def read_stored_suite(address: str) -> Suite:
    """Read the suite at `s3://BUCKET/KEY`, which must be JSON; all problems are reported, each with its place."""
    bucket, key = parse_address(address)
    try:
        content = bucket.read(key)
    except errors.NotFoundError as error:
        raise errors.NotFoundError(f"{error}: upload the suite with chunkproof suite publish") from None
    try:
        return read_suite(read_json(content, "it"))
    except BrokenSuiteError as error:
        places = [f": {format_path(problem.path)}" if problem.path else "" for problem in error.problems]
        problems = [f"{address}{at}: {each.message}" for at, each in zip(places, error.problems, strict=True)]
        raise errors.InvalidParameterError.listing(problems) from None
    except errors.InvalidParameterError as error:
        raise errors.InvalidParameterError(
            f"{address} cannot be read as a suite: {error.message}. A suite in S3 is JSON; {HOW_TO_UPLOAD}"
        ) from None


def _is_retryable(result: TestCaseResult) -> bool:
    """Return whether it is in error because a service was unavailable, which may pass."""
    temporary = {errors.RateLimitedError.code, *(kind.code for kind in errors.error_classes(errors.UnavailableError))}
    return result.status is TestStatus.ERROR and result.error_code in temporary


def _is_finished(result: TestCaseResult) -> bool:
    """Return whether nothing is left to do: it has a result, and a diagnosis where it failed."""
    if result.status is TestStatus.FAILED:
        return bool(result.diagnosis)
    return result.status is not TestStatus.PENDING
