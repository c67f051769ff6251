"""Bodies of six megabytes that repeat one small thing; the search keeps what costs the most processor time per byte.

`slowest.json` has the slowest that were ever found. They are sent first, so that CI notices when one gets slow again;
`record` adds what this run found.
"""

import json
from pathlib import Path

from chunkproof.service.api import MAX_REQUEST_BYTES

from support.api import Reply
from support.floods import Flood, floods, random_flood, send
from support.memory_handlers import in_memory_handlers
from tools.checks.attack.attack import Attack

MAX_SECONDS = 0.5
# Another process may have used the caches, or the processor may be slow for a moment: then it is sent again.
MAX_TRIES = 4
RECORD = Path(__file__).with_name("slowest.json")
RECORDED = 20
# The search tries small bodies, and then the costliest of them in full size.
SMALL_BYTES = 100_000


def run(attack: Attack, record: bool = False) -> None:
    """Send the recorded floods, then new ones."""
    known = [Flood(**found) for found in json.loads(RECORD.read_text("utf-8"))]
    everything = list(floods())
    costs: dict[Flood, float] = {}
    with in_memory_handlers():
        send(known[0], 1_000)  # builds what is built once
        while attack.goes_on():
            if known:
                flood = known.pop(0)
            else:
                tried = [
                    attack.rng.choice(everything) if attack.rng.random() < 0.5 else random_flood(attack.rng)
                    for _ in range(8)
                ]
                flood = max(tried, key=lambda flood: send(flood, SMALL_BYTES)[1])
            costs[flood], wrong = judge(flood)
            attack.note(costs[flood], wrong)
    if record:
        worst = sorted(costs, key=costs.__getitem__, reverse=True)[:RECORDED]
        RECORD.write_text(json.dumps([flood.as_json() for flood in worst], indent=1) + "\n", "utf-8")


def judge(flood: Flood) -> tuple[float, str | None]:
    """Return the seconds of processor time, and what is wrong with the response."""
    spent = MAX_SECONDS
    for _ in range(MAX_TRIES):
        if spent >= MAX_SECONDS:
            reply, took, _ = send(flood, MAX_REQUEST_BYTES)
            spent = took
    is_wrong = (_is_refused(reply) and spent >= MAX_SECONDS) or reply.status >= 500
    return spent, f"{reply.status} after {spent:.2f} s: {flood}" if is_wrong else None


def _is_refused(reply: Reply) -> bool:
    """Whether the request is refused, or each of its queries."""
    if reply.status >= 400:
        return True
    responses = reply.json.get("responses") or ()
    return bool(responses) and all(response["status"] == "error" for response in responses)
