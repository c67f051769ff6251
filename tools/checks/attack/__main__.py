"""Attack the product with generators of its own, seeded, and print what held (`make attack`).

Exit code 1 when anything slips. The same seed makes the same attempts, as far as the time allows.
"""

import argparse
import sys
import time
import traceback
from importlib import import_module

from support.quiet import silence_handlers
from tools.checks.attack.attack import Attack

# The module of each kind, and its share of the time. Those that start commands come last: they fork.
KINDS = {
    "floods": 0.10,
    "originals": 0.08,
    "searches": 0.06,
    "budgets": 0.06,
    "absence": 0.04,
    "scans": 0.05,
    "repairs": 0.05,
    "events": 0.04,
    "marks": 0.04,
    "tenants": 0.06,
    "outputs": 0.03,
    "faults": 0.1,
    "sockets": 0.1,
    "concurrency": 0.12,
    "kills": 0.15,
    "shards": 0.06,
    "leaks": 0.08,
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
    end, slipped = time.monotonic() + given.seconds, False
    with silence_handlers() as say:
        say(f"seed {seed}, {given.seconds:.0f} seconds")
        say(f"{'kind':<14}{'tried':>9}{'held':>9}{'slowest':>11}{'in':>9}")
        for number, (kind, most) in enumerate(parts.items()):
            left = sum(KINDS[later] for later in list(parts)[number:])
            seconds = max(0.0, end - time.monotonic()) * KINDS[kind] / left
            attack = Attack(kind, seed, seconds, int(most) if most else None)
            started = time.monotonic()
            options = {"record": True} if given.record and kind == "floods" else {}
            try:
                with attack.limit_time():
                    import_module(f"tools.checks.attack.{kind}").run(attack, **options)
            except Exception as error:  # noqa: BLE001 - the other kinds go on, and this one did not hold
                attack.note(0.0, "".join(traceback.format_exception(error))[-2_000:])
            took = time.monotonic() - started
            if attack.is_counted:
                end += took
            row = f"{kind:<14}{attack.tried:>9,}{attack.held:>9,}{attack.slowest:>9.3f} s{took:>7.0f} s"
            say(row if attack.tried else f"{row}  (the time was over before the first attempt)")
            for detail in attack.details[:10]:
                say(f"  slipped: {detail}")
            slipped = slipped or attack.held < attack.tried
    return int(slipped)


if __name__ == "__main__":
    sys.exit(main())
