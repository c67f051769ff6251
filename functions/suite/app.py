"""Steps of a suite run in AWS: split the cases, run a shard, merge the results. And the check of canaries."""

from collections.abc import Callable, Mapping
from typing import Any

from chunkproof.clients.job_folder import JobFolder
from chunkproof.clients.s3 import Bucket
from chunkproof.errors import InvalidParameterError
from chunkproof.retrieval.backend import LocalBackend
from chunkproof.retrieval.canary import TOLERANCE, check_canaries, record_canaries
from chunkproof.runtime import canary_metrics
from chunkproof.runtime.container import lambda_deadline, services, settings
from chunkproof.runtime.suite_metrics import emit
from chunkproof.suite.shards import ShardedSuite, SuiteRequest

# With less time left than this, a shard starts no further case and is called again. A case takes at most the longest
# pause after a 429 (a minute), a search and a diagnosis.
RESERVE_MS = 300_000

Event = Mapping[str, Any]
Output = dict[str, Any]


def lambda_handler(event: Event, context: Any) -> Output:
    """Run one step of the state machine. Errors are raised, so that Step Functions retries and shows them."""
    if event["step"] == "canary":
        return _canary(event, context)
    suite = ShardedSuite(Bucket(event["bucket"]), event["run_id"])
    backend = LocalBackend(services(), lambda: lambda_deadline(context))
    return STEPS[event["step"]](suite, backend, event, context)


def _split(suite: ShardedSuite, backend: LocalBackend, event: Event, _context: Any) -> Output:
    request = SuiteRequest(
        suite=event["suite"],
        collection=event["collection"],
        default_collection=settings().collection,
        shard_cases=int(event["shard_cases"]),
        source=event["source"],
    )
    return suite.split(request, backend).model_dump(mode="json")


def _shard(suite: ShardedSuite, backend: LocalBackend, event: Event, context: Any) -> Output:
    progress = suite.run(
        event["shard"], backend, should_stop=lambda: context.get_remaining_time_in_millis() < RESERVE_MS
    )
    return progress.model_dump(mode="json")


def _merge(suite: ShardedSuite, backend: LocalBackend, _event: Event, context: Any) -> Output:
    report = suite.merge(backend, latency_target_ms=settings().latency_target_ms)
    emit(report, settings().environment, context.function_name)
    result = report.result
    return {
        "report": suite.report_address(),
        "versions": report.suite.versions,
        "cases": result.total_tests,
        "passed": result.passed,
        "failed": result.failed,
        "errors": result.errors,
    }


def _canary(event: Event, context: Any) -> Output:
    given, records = event["canary"], JobFolder(Bucket(event["bucket"]), "canaries")
    match given:
        case {"action": "record"}:
            found = record_canaries(services(), records)
        case {"action": "check"}:
            tolerance, record_missing = given.get("tolerance", TOLERANCE), given.get("record_missing", False)
            found = check_canaries(services(), records, tolerance=tolerance, record_missing=record_missing)
        case _:
            raise InvalidParameterError('canary must be an object whose action is "check" or "record"')
    canary_metrics.emit(found, settings().environment, context.function_name)
    return {"canaries": [canary.model_dump(mode="json") for canary in found]}


STEPS: Mapping[str, Callable[[ShardedSuite, LocalBackend, Event, Any], Output]] = {
    "split": _split,
    "shard": _shard,
    "merge": _merge,
}
