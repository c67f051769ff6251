"""Run the attacks and print what was tried and what held (`make attack`); exit 1 when anything slipped."""

import argparse
import random
import sys
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from checks import attack
from checks.attack.result import Result

EXAMPLE = "concurrency:100,kills:200"


def find_kinds() -> dict[str, ModuleType]:
    """All modules of the package that have a function `run`."""
    names = (module.name for module in iter_modules(attack.__path__) if not module.name.startswith("_"))
    found = {name: import_module(f"checks.attack.{name}") for name in names}
    return {name: module for name, module in found.items() if hasattr(module, "run")}


def main() -> int:
    kinds = find_kinds()
    parser = argparse.ArgumentParser(prog="make attack", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--seconds", type=float, default=300.0, help="for all kinds together")
    parser.add_argument("--parts", default=",".join(kinds), help=f"some kinds, or so many attempts of them: {EXAMPLE}")
    given = parser.parse_args()
    parts = [part.partition(":") for part in given.parts.split(",")]
    if unknown := [name for name, _, _ in parts if name not in kinds]:
        parser.error(f"no attack is called {', '.join(unknown)}; there are {', '.join(kinds)}")
    results = []
    print(f"{'kind':<20} {'tried':>8} {'held':>8} {'slowest':>10}   seed {given.seed}", flush=True)
    for name, _, number in parts:
        if number:
            result: Result = kinds[name].run(given.seed, float("inf"), int(number))
        else:
            result = kinds[name].run(given.seed, given.seconds / len(parts))
        results.append(result)
        print(f"{result.kind:<20} {result.tried:>8,} {result.held:>8,} {result.slowest:>8.2f} s", flush=True)
        for line in result.details:
            print(f"    {line}")
    return int(any(result.held < result.tried or not result.tried for result in results))


if __name__ == "__main__":
    sys.exit(main())
