"""The steps of a suite in the cloud: split its cases, run a shard, merge the results."""

from collections.abc import Callable, Mapping
from typing import Any

from chunkproof.api import deadline_of
from chunkproof.clients.s3 import Bucket
from chunkproof.connect import services, settings
from chunkproof.suite.diagnosis import Diagnostician
from chunkproof.suite.door import InProcess
from chunkproof.suite.emitting import emit
from chunkproof.suite.shards import ShardedSuite, SuiteOrder

# With less left than this, a shard begins no further case and is called again. The longest that one can take is a
# minute that a service asks for, a search, and a look into why it failed.
RESERVE_MS = 300_000

Event = Mapping[str, Any]
Answer = dict[str, Any]


def lambda_handler(event: Event, context: Any) -> Answer:
    """What the state machine asks for. An error is raised, so that it is retried and shown."""
    suite = ShardedSuite(Bucket(event["bucket"]), event["run_id"])
    door = InProcess(services(), lambda: deadline_of(context))
    return STEPS[event["step"]](suite, door, event, context)


def _split(suite: ShardedSuite, door: InProcess, event: Event, _context: Any) -> Answer:
    order = SuiteOrder(
        suite=event["suite"],
        collection=event["collection"],
        default_collection=settings().collection,
        shard_cases=int(event["shard_cases"]),
        source=event["source"],
    )
    return suite.split(order, door).model_dump(mode="json")


def _shard(suite: ShardedSuite, door: InProcess, event: Event, context: Any) -> Answer:
    progress = suite.run(
        event["shard"],
        door,
        Diagnostician(door.witness(), suite.plan().source),
        enough=lambda: context.get_remaining_time_in_millis() < RESERVE_MS,
    )
    return progress.model_dump(mode="json")


def _merge(suite: ShardedSuite, door: InProcess, _event: Event, context: Any) -> Answer:
    report = suite.merge(door, latency_target_ms=settings().latency_target_ms)
    emit(report, settings().environment, context.function_name)
    result = report.result
    return {
        "report": suite.report_address(),
        "cases": result.total_tests,
        "passed": result.passed,
        "failed": result.failed,
        "errors": result.errors,
    }


STEPS: Mapping[str, Callable[[ShardedSuite, InProcess, Event, Any], Answer]] = {
    "split": _split,
    "shard": _shard,
    "merge": _merge,
}
