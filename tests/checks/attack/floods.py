"""Bodies of six megabytes that repeat one small thing; the search keeps what costs the most processor time per byte.

`slowest.json` has the slowest that were ever found. They are sent first, so that CI notices when one gets slow again;
`--record` adds what this run found.
"""

import json
import random
import time
from pathlib import Path

from chunkproof.http.events import MAX_REQUEST_BYTES

from checks.attack.result import Result
from support.floods import Flood, floods, random_flood, send
from support.fuzzing import in_memory_handlers

MAX_SECONDS = 0.5
RECORD = Path(__file__).with_name("slowest.json")
RECORDED = 20
# The search tries small bodies, and then the costliest of them in full size.
SMALL_BYTES = 100_000


def run(seed: int, seconds: float, record: bool = False) -> Result:
    """Send the recorded floods, then new ones until the time is over."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    costs: dict[Flood, float] = {}
    slips: list[str] = []
    known = [Flood(**found) for found in json.loads(RECORD.read_text("utf-8"))]
    everything = list(floods())
    with in_memory_handlers():
        send(known[0], 1_000)  # builds what is built once
        while known or time.monotonic() < end:
            if known:
                candidate = known.pop(0)
            else:
                tried = [rng.choice(everything) if rng.random() < 0.5 else random_flood(rng) for _ in range(8)]
                candidate = max(tried, key=lambda flood: send(flood, SMALL_BYTES)[1])
            costs[candidate] = _cost(candidate, slips)
    if record:
        worst = sorted(costs, key=costs.__getitem__, reverse=True)[:RECORDED]
        RECORD.write_text(json.dumps([flood.as_json() for flood in worst], indent=1) + "\n", "utf-8")
    return Result("floods of 6 MB", len(costs), len(costs) - len(slips), max(costs.values()), tuple(slips))


def _cost(flood: Flood, slips: list[str]) -> float:
    """Return the seconds of processor time, the best of four tries: another process may have used the caches."""
    spent = MAX_SECONDS
    for _ in range(4):
        if spent >= MAX_SECONDS:
            reply, spent, _ = send(flood, MAX_REQUEST_BYTES)
    if (reply.status >= 400 and spent >= MAX_SECONDS) or reply.status >= 500:
        slips.append(f"{reply.status} after {spent:.2f} s: {flood}")
    return spent
