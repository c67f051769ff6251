"""Steps of a suite run in AWS: split the cases, run a shard, merge the results. And the check of canaries."""

from collections.abc import Mapping
from typing import Any

from chunkproof.base.errors import InvalidParameterError
from chunkproof.net.s3 import Bucket, JobFolder
from chunkproof.proof.backend import LocalBackend
from chunkproof.proof.canaries import TOLERANCE, check_canaries, record_canaries
from chunkproof.service.container import flush_after, lambda_deadline, services, settings
from chunkproof.service.job_metrics import emit_canaries, emit_suite
from chunkproof.suite.suite_job import ShardedSuite

# With less time left than this, a shard starts no further case and is called again. A case takes at most the longest
# pause after a 429 (a minute), a search and a diagnosis.
RESERVE_MS = 300_000

Event = Mapping[str, Any]
Output = dict[str, Any]


@flush_after
def lambda_handler(event: Event, context: Any) -> Output:
    """Run one step of the state machine. Errors are raised, so that Step Functions retries and shows them."""
    if event["step"] == "canary":
        return _run_canaries(event, context)
    suite = ShardedSuite(Bucket(event["bucket"]), event["run_id"])
    backend = LocalBackend(services(), lambda: lambda_deadline(context))
    if event["step"] == "split":
        size = int(event["shard_cases"])
        plan = suite.split(event["suite"], event["collection"], size, backend, event["source"])
        return plan.model_dump(mode="json")
    if event["step"] == "shard":
        progress = suite.run(
            event["shard"], backend, should_stop=lambda: context.get_remaining_time_in_millis() < RESERVE_MS
        )
        return progress.model_dump(mode="json")
    report = suite.merge(backend)
    emit_suite(report, settings().environment, context.function_name)
    return {
        "report": suite.report_address(),
        "versions": report.suite.versions,
        "cases": report.result.total_tests,
        "passed": report.result.passed,
        "failed": report.result.failed,
        "errors": report.result.errors,
    }


def _run_canaries(event: Event, context: Any) -> Output:
    given, records = event["canary"], JobFolder(Bucket(event["bucket"]), "canaries")
    match given:
        case {"action": "record"}:
            canaries = record_canaries(services(), records)
        case {"action": "check"}:
            tolerance, record_missing = given.get("tolerance", TOLERANCE), given.get("record_missing", False)
            canaries = check_canaries(services(), records, tolerance=tolerance, record_missing=record_missing)
        case _:
            raise InvalidParameterError('canary must be an object whose action is "check" or "record"')
    emit_canaries(canaries, settings().environment, context.function_name)
    return {"canaries": [canary.model_dump(mode="json") for canary in canaries]}
