"""Attack the product with generators of its own, seeded, and print what held (`make attack`).

Exit code 1 when anything slips. The same seed makes the same attempts, as far as the time allows.
"""

import argparse
import sys
import time
from importlib import import_module

from checks.attack.result import Result
from support.quiet import silence_handlers

# The module of each kind, and its share of the time. Those that start commands come last: they fork.
KINDS = {
    "floods": 0.25,
    "events": 0.1,
    "marks": 0.1,
    "tenants": 0.1,
    "outputs": 0.05,
    "concurrency": 0.2,
    "kills": 0.15,
    "shards": 0.05,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="How long to attack, for all kinds together.")
    parser.add_argument("--seed", type=int, default=None, help="Repeat an earlier run.")
    parser.add_argument("--parts", default=",".join(KINDS), help="Some kinds; concurrency:100,kills:200 counts them.")
    parser.add_argument("--record", action="store_true", help="Write the slowest floods to slowest.json.")
    given = parser.parse_args()
    seed = time.time_ns() % 1_000_000 if given.seed is None else given.seed
    parts = {kind: number for kind, _, number in (part.partition(":") for part in given.parts.split(","))}
    if unknown := [kind for kind in parts if kind not in KINDS]:
        parser.error(f"--parts: no attack is called {unknown[0]}; there are {', '.join(KINDS)}")
    whole = sum(KINDS[kind] for kind in parts)
    slipped = False
    with silence_handlers() as say:
        say(f"seed {seed}, {given.seconds:.0f} seconds")
        say(f"{'kind':<22}{'tried':>9}{'held':>9}{'slowest':>11}")
        for kind, number in parts.items():
            options: dict[str, int] = {"record": given.record} if kind == "floods" else {}
            if number:
                options["most"] = int(number)
            seconds = float("inf") if number else given.seconds * KINDS[kind] / whole
            result: Result = import_module(f"checks.attack.{kind}").run(seed, seconds, **options)
            say(f"{result.kind:<22}{result.tried:>9,}{result.held:>9,}{result.slowest:>9.3f} s")
            for detail in result.details[:10]:
                say(f"  slipped: {detail}")
            slipped = slipped or result.held < result.tried
    return int(slipped)


if __name__ == "__main__":
    sys.exit(main())
