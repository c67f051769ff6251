"""The time that a Lambda invocation may take."""

from typing import Protocol

from chunkproof.deadline import Deadline
from chunkproof.runtime.container import settings

LAMBDA_DEADLINE_MS = 2_000
# Kept back for turning a failure into a response before Lambda stops the function.
RESERVE_MS = 100


class LambdaContext(Protocol):
    """What the functions read of Lambda's context object."""

    aws_request_id: str
    function_name: str

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda stops the function."""
        ...


def lambda_deadline(context: LambdaContext) -> Deadline:
    """Return the deadline in force, which is never later than Lambda's own less a reserve."""
    budget = settings().deadline_ms or LAMBDA_DEADLINE_MS
    left = context.get_remaining_time_in_millis() - RESERVE_MS
    return Deadline(max(0, min(budget, left)))
