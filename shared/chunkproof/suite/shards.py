"""A sharded suite run: split the cases into shards in S3, run each shard, merge the results into one report.

A run reads one version of each published collection: `split` notes the versions in force, and every later step reads
these, wherever the pointers are by then.

A shard is a series of consecutive cases, so that the shards' results, one after the other, are in the suite's order. A
retried shard continues its earlier attempt: verdicts are kept, cases that failed with a service are tried again.

    runs/ID/plan.json            what is run, and in how many shards
    runs/ID/suite.json           the suite, as it was when the run began
    runs/ID/shards.json          the shards, for the Distributed Map
    runs/ID/shards/N.json        their cases
    runs/ID/results/N.json       their results so far
    runs/ID/errors/N.json        why the last attempt at a shard failed
    runs/ID/report.json          the canonical report
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import Field

from chunkproof.clients.job_folder import JobFolder, map_in_parallel
from chunkproof.clients.s3 import Bucket, parse_address
from chunkproof.errors import (
    ChunkproofError,
    InvalidParameterError,
    NotFoundError,
    RateLimitedError,
    UnavailableError,
    error_classes,
)
from chunkproof.models import Model
from chunkproof.models.json import format_path, read_json
from chunkproof.retrieval.backend import Backend, LocalBackend
from chunkproof.suite.case_runner import CaseRunner, mark_as_error
from chunkproof.suite.cases import Suite, TestCase, assign_collection, read_suite
from chunkproof.suite.diagnosis import Diagnoser
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.problems import BrokenSuiteError
from chunkproof.suite.report import SuiteReport
from chunkproof.suite.run import RunPlan, collections_of, inspect_collections, run_suite
from chunkproof.suite.store_evidence import collect_evidence

# The suite that the stack runs on its schedule and after a deployment.
PUBLISHED = "suite.json"
# One function merges all results in memory: 10,000 cases of ten results take 0.8 GB and ten seconds.
MAX_CASES = 10_000
HOW_TO_UPLOAD = "chunkproof suite publish and suite run --stack upload any kind of suite as JSON"


class ShardFailedError(UnavailableError):
    """A shard has cases that could not be judged."""

    code = "SHARD_FAILED"


class NotPublishedError(NotFoundError):
    """The stack has no suite yet: a run that its schedule or a deployment started ends without a failure."""


@dataclass(frozen=True, slots=True)
class SuiteRequest:
    """What to run: the suite's address, and the collection of cases that name none."""

    suite: str
    collection: str
    default_collection: str
    shard_cases: int
    source: str = ""


class ShardPlan(Model):
    """What is run, and in how many shards."""

    run_id: str
    bucket: str
    shards_key: str
    source: str
    cases: int
    shards: int
    started_at: datetime
    versions: dict[str, str] = Field(default_factory=dict, description="Of published collections: what is searched")


class ShardProgress(Model):
    """How far a shard is; one that is not finished has to be called again."""

    shard: int
    cases: int
    finished: bool


class _Cases(Model):
    cases: tuple[TestCase, ...]


class _Results(Model):
    results: tuple[TestCaseResult, ...]


class ShardedSuite:
    """The steps of one sharded run."""

    def __init__(self, bucket: Bucket, run_id: str) -> None:
        self._folder = JobFolder(bucket, f"runs/{run_id}")
        self._id = run_id

    def split(self, request: SuiteRequest, backend: LocalBackend) -> ShardPlan:
        """Check the suite and its collections, and write its shards."""
        started_at, address = datetime.now(UTC), request.suite
        try:
            suite = read_stored_suite(address)
        except NotFoundError as error:
            if address == self._folder.bucket.address(PUBLISHED):
                raise NotPublishedError(error.message) from None
            raise
        cases = assign_collection(suite.cases, request.collection or suite.collection or request.default_collection)
        if len(cases) > MAX_CASES:
            raise InvalidParameterError(f"{address} has {len(cases):,} cases, more than {MAX_CASES:,}: run it in parts")
        versions = backend.services.pin(collections_of(cases))
        inspect_collections(cases, backend.at(versions))
        size = request.shard_cases
        parts = [cases[start : start + size] for start in range(0, len(cases), size)]
        deque(map_in_parallel(self._write_cases, enumerate(parts)), maxlen=0)
        self._folder.write("suite.json", suite.to_json())
        plan = ShardPlan(
            run_id=self._id,
            bucket=self._folder.bucket.name,
            shards_key=self._folder.write_shards(
                [{"run_id": self._id, "shard": number} for number in range(len(parts))]
            ),
            source=request.source or address,
            cases=len(cases),
            shards=len(parts),
            started_at=started_at,
            versions=versions,
        )
        self._folder.write("plan.json", plan.to_json())
        return plan

    def run(self, shard: int, backend: LocalBackend, should_stop: Callable[[], bool]) -> ShardProgress:
        """Run one shard until `should_stop` returns true.

        Cases that failed with a service are stored and then raised as `ShardFailedError`, so that the shard is retried.
        """
        plan = self.plan()
        try:
            pinned = backend.at(plan.versions)
            results = self._run_pending(shard, pinned, should_stop)
            results = self._diagnose(shard, results, Diagnoser(collect_evidence(pinned), plan.source), should_stop)
            failed = [result for result in results if _is_retryable(result)]
            if failed and not any(result.status is TestStatus.PENDING for result in results):
                raise ShardFailedError(
                    f"{len(failed)} of {len(results)} cases of shard {shard} could not be judged: "
                    f"{failed[0].error_message}"
                )
        except ChunkproofError as error:
            self._folder.write_failure(shard, error)
            raise
        return ShardProgress(shard=shard, cases=len(results), finished=all(map(_is_finished, results)))

    def merge(self, backend: LocalBackend, *, latency_target_ms: float) -> SuiteReport:
        """Write one report on all cases; those of a failed shard are in error, with the reason."""
        plan = self.plan()
        suite = Suite.model_validate_json(self._folder.read("suite.json"))
        shards = map_in_parallel(self._final_results, self._folder.read_shards())
        results = [result for shard in shards for result in shard]
        whole = RunPlan(
            suite,
            plan.source,
            results,
            latency_target_ms=latency_target_ms,
            started_at=plan.started_at,
            versions=plan.versions,
        )
        report = run_suite(whole, backend.at(plan.versions))
        self._folder.write("report.json", report.canonical_json())
        return report

    def plan(self) -> ShardPlan:
        """Read the plan that `split` wrote."""
        return ShardPlan.model_validate_json(self._folder.read("plan.json"))

    def report_address(self) -> str:
        """Return the address of the report."""
        return self._folder.address("report.json")

    def _run_pending(self, shard: int, backend: Backend, should_stop: Callable[[], bool]) -> list[TestCaseResult]:
        run = CaseRunner(map(_reset_if_retryable, self._load_results(shard)), backend.search, should_stop=should_stop)
        run.execute()
        self._write(shard, run.results)
        return run.results

    def _diagnose(
        self,
        shard: int,
        results: list[TestCaseResult],
        diagnoser: Diagnoser,
        should_stop: Callable[[], bool],
    ) -> list[TestCaseResult]:
        found = [
            result if _is_finished(result) or should_stop() else diagnoser.diagnose([result])[0] for result in results
        ]
        self._write(shard, found)
        return found

    def _load_results(self, shard: int) -> tuple[TestCaseResult, ...]:
        """Return the results of earlier attempts, else the cases as pending."""
        content = self._folder.read_if_exists(f"results/{shard:05d}.json")
        if content is not None:
            return _Results.model_validate_json(content).results
        cases = _Cases.model_validate_json(self._folder.read(f"shards/{shard:05d}.json")).cases
        return tuple(map(TestCaseResult.pending, cases))

    def _final_results(self, shard: int) -> list[TestCaseResult]:
        error = ShardFailedError(f"Shard {shard} could not be run: {self._folder.read_failure(shard)}")
        return [
            mark_as_error(result, error) if result.status is TestStatus.PENDING else result
            for result in self._load_results(shard)
        ]

    def _write_cases(self, numbered: tuple[int, Sequence[TestCase]]) -> None:
        number, cases = numbered
        self._folder.write(f"shards/{number:05d}.json", _Cases(cases=tuple(cases)).to_json())

    def _write(self, shard: int, results: list[TestCaseResult]) -> None:
        self._folder.write(f"results/{shard:05d}.json", _Results(results=tuple(results)).to_json())


def read_stored_suite(address: str) -> Suite:
    """Read the suite at `s3://BUCKET/KEY`, which must be JSON; all problems are reported, each with its place."""
    bucket, key = parse_address(address)
    try:
        content = bucket.read(key)
    except NotFoundError as error:
        raise NotFoundError(f"{error}: upload the suite with chunkproof suite publish") from None
    try:
        return read_suite(read_json(content, "it"))
    except BrokenSuiteError as error:
        problems = [_locate(address, format_path(problem.path), problem.message) for problem in error.problems]
        raise InvalidParameterError.listing(problems) from None
    except InvalidParameterError as error:
        raise InvalidParameterError(
            f"{address} cannot be read as a suite: {error.message}. A suite in S3 is JSON; {HOW_TO_UPLOAD}"
        ) from None


def _locate(address: str, where: str, message: str) -> str:
    return f"{address}: {message}" if where == format_path(()) else f"{address}: {where}: {message}"


def _is_retryable(result: TestCaseResult) -> bool:
    """Return whether it is in error because a service was unavailable, which may pass."""
    temporary = {RateLimitedError.code, *(kind.code for kind in error_classes(UnavailableError))}
    return result.status is TestStatus.ERROR and result.error_code in temporary


def _reset_if_retryable(result: TestCaseResult) -> TestCaseResult:
    return TestCaseResult.pending(result) if _is_retryable(result) else result


def _is_finished(result: TestCaseResult) -> bool:
    """Return whether nothing is left to do: it has a result, and a diagnosis where it failed."""
    if result.status is TestStatus.FAILED:
        return bool(result.diagnosis)
    return result.status is not TestStatus.PENDING
