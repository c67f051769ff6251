"""Canaries of a deployed stack, which embeds the texts with its own keys and settings."""

import json
from typing import Any

from chunkproof.errors import InvalidParameterError
from chunkproof.retrieval.canary import Canary
from chunkproof_cli.aws.executions import Machine, new_name
from chunkproof_cli.aws.stack import find_stack

OUTPUT = "CanaryRecords"


def run_in_cloud(stack: str, request: dict[str, Any]) -> tuple[Canary, ...]:
    """Let the stack record or check its canaries, and return what it found."""
    if OUTPUT not in find_stack(stack).outputs:
        raise InvalidParameterError(f"Stack {stack} has no canaries: deploy it with Suite=true and Canary=true")
    machine = Machine.find(stack, "Suite")
    output = machine.wait_for(machine.start(f"canary-{new_name()}", {"canary": request}))
    return tuple(Canary.model_validate_json(json.dumps(one)) for one in json.loads(output)["canaries"])
