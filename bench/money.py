"""What a million searches cost in Lambda with each size of memory, from processor times that were measured here.

A function is billed for milliseconds × memory, and gets a processor in proportion to its memory: less memory takes
longer for the same work, but waits for its services as long. One search in a hundred meets a cold start.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from chunkproof.suite.criteria import LATENCY_TARGET_MS
from chunkproof_cli.suites.configurations import PRICES

from bench.contestants import CHUNKPROOF
from bench.results import Part
from bench.share import share_of

SIZES_MB = (256, 512, 1_024, 1_769, 2_048)
# One round trip to Cohere and one to Qdrant; a first answer takes three and three, with those that open connections.
WARM_WAIT_MS, COLD_WAIT_MS = 120 + 2, 3 * (120 + 2)
COLD_SHARE = 0.01
# More than the peak, because a function's runtime, logs and large answers need memory too.
HEADROOM = 1.5


@dataclass(frozen=True)
class Size:
    """A size of memory; times as a caller of the function sees them."""

    memory_mb: int
    warm_ms: float
    cold_ms: float
    usd: float
    has_room: bool

    @property
    def is_within_target(self) -> bool:
        """Whether a cold start too is answered within the suites' target, and the memory is enough."""
        return self.has_room and max(self.warm_ms, self.cold_ms) <= LATENCY_TARGET_MS


def sizes(warm: Part, cold: Part) -> list[Size]:
    """What each size takes and costs; x86_64 is dearer than arm64, which was not measured."""
    price, request = PRICES["gigabyte_second"]["lambda_x86_64"], PRICES["million"]["lambda_request"]
    warm_cpu, cold_cpu = (part.figure(CHUNKPROOF, "cpu_ms").median for part in (warm, cold))
    peak = max(part.figure(CHUNKPROOF, "peak_mb").median for part in (warm, cold))
    found = []
    for memory in SIZES_MB:
        warm_ms, cold_ms = WARM_WAIT_MS + warm_cpu / share_of(memory), COLD_WAIT_MS + cold_cpu / share_of(memory)
        billed_s = (1 - COLD_SHARE) * warm_ms * 1_000 + COLD_SHARE * cold_ms * 1_000  # of a million
        usd = billed_s * memory / 1_024 * price + request
        found.append(Size(memory, warm_ms, cold_ms, usd, peak * HEADROOM <= memory))
    return found


def money_lines(warm: Part, cold: Part) -> Iterator[str]:
    """A line for each size, and which is the cheapest within the target."""
    found = sizes(warm, cold)
    yield (
        f"memory and money: a million searches, {COLD_SHARE:.0%} of them cold, Cohere 120 ms and Qdrant 2 ms away; "
        "computed from the processor times above and list prices of x86_64"
    )
    for size in found:
        note = "" if size.is_within_target else "  over the target" if size.has_room else "  too little memory"
        times = f"warm {size.warm_ms:5,.0f} ms  cold {size.cold_ms:5,.0f} ms"
        yield f"  {size.memory_mb:5,} MB  {times}  {size.usd:6.2f} USD{note}"
    fitting = [size for size in found if size.is_within_target]
    best = min(fitting, key=lambda size: size.usd).memory_mb if fitting else None
    target = f"within {LATENCY_TARGET_MS:,.0f} ms, cold starts too"
    yield f"  cheapest {target}: {f'{best:,} MB' if best else 'none of them'}"
