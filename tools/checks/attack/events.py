"""Events that no gateway sends, and raw bodies: every handler returns an envelope, and raises nothing."""

import base64
import json
import random
import time
from copy import deepcopy
from typing import Any

from chunkproof_cli.local.gateway import FUNCTIONS, LambdaContext, load_function

from support.api import EVENTS
from support.memory_handlers import in_memory_handlers
from tools.checks.attack.attack import Attack

STRANGE: tuple[Any, ...] = (None, [], "x", 5, True, {}, [[]], {"http": None}, {"a": [1]}, "\ud800", 1e400, "é" * 300)


def run(attack: Attack) -> None:
    """Change committed events at random."""
    committed = [json.loads(file.read_text("utf-8")) for file in sorted(EVENTS.glob("*.json"))]
    with in_memory_handlers():
        while attack.goes_on():
            event = _change(deepcopy(attack.rng.choice(committed)), attack.rng)
            started = time.thread_time()
            why = _slip(event, attack.rng.choice(FUNCTIONS))
            attack.note(time.thread_time() - started, f"{why}: {event!r}"[:500] if why else None)


def _change(event: Any, rng: random.Random) -> Any:
    if rng.random() < 0.02:
        return rng.choice(STRANGE)
    if rng.random() < 0.3:
        raw = rng.randbytes(rng.randrange(200))
        event["body"], event["isBase64Encoded"] = base64.b64encode(raw).decode(), True
    for _ in range(rng.randrange(1, 4)):
        target, parents = event, rng.randrange(4)
        while parents and isinstance(target, dict) and (inner := [v for v in target.values() if isinstance(v, dict)]):
            target, parents = rng.choice(inner), parents - 1
        if isinstance(target, dict) and target:
            target[rng.choice(list(target))] = deepcopy(rng.choice(STRANGE))
    return event


def _slip(event: Any, function: str) -> str | None:
    try:
        proxy = load_function(function).lambda_handler(event, LambdaContext())
        json.dumps(proxy, allow_nan=False)
        json.loads(proxy["body"])
        return None if proxy["headers"]["x-request-id"] else "no request id"
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return f"{type(error).__name__}: {error}"
