"""Measure Chunkproof side by side with plain handlers and other libraries (`make bench`).

Same machine, same Qdrant server, same embedding service, in turn. Exit 1 when an "at least" is missed, 2 when the
benchmark could not be run.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.artefacts import NotBuiltError, Workshop
from bench.cold import measure_cold
from bench.commands import measure_commands
from bench.contestants import BY_SAM, CHUNKPROOF, Contestant
from bench.distance import measure_distance
from bench.gateway import measure_serve
from bench.goals import Goal, exit_code, judge
from bench.growth import measure_growth
from bench.money import money_lines
from bench.process import ContestantError, Machine
from bench.results import Part
from bench.servers import Services, fill_long_texts, services
from bench.size import measure_size
from bench.table import goal_lines, part_lines
from bench.warm import measure_by_id, measure_warm
from support.qdrant_server import NoServerError

FOLDER = Path(__file__).resolve().parents[1] / ".aws-sam" / "bench"
COLD = (CHUNKPROOF, *BY_SAM, "floor")
WARM = (*COLD, "bare_sdk")
GROWING = (CHUNKPROOF, "plain", "bare_sdk", "floor")


@dataclass(frozen=True)
class Repeats:
    """How often each is measured."""

    cold: int
    warm: int
    growth: int
    serve_s: float
    far_first: int
    far_warm: int


FULL = Repeats(cold=11, warm=500, growth=100, serve_s=5.0, far_first=7, far_warm=60)
QUICK = Repeats(cold=3, warm=60, growth=20, serve_s=1.0, far_first=3, far_warm=15)


@dataclass(frozen=True)
class Bench:
    """All that a measurement needs."""

    build: Path
    workshop: Workshop
    contestants: dict[str, Contestant]
    machine: Machine
    services: Services
    repeats: Repeats

    def some(self, names: tuple[str, ...]) -> dict[str, Contestant]:
        return {name: self.contestants[name] for name in names}


Measure = Callable[[Bench], Iterator[Part]]


def _size(bench: Bench) -> Iterator[Part]:
    yield measure_size(bench.some(COLD))


def _cold(bench: Bench) -> Iterator[Part]:
    yield measure_cold(bench.some(COLD), bench.machine, bench.repeats.cold)


def _secret(bench: Bench) -> Iterator[Part]:
    machine = replace(bench.machine, services=bench.services.variables_with_secret)
    note = ", the key read from Secrets Manager (a stand-in on loopback)"
    contestants = bench.some((CHUNKPROOF, "plain"))
    ours, near = contestants[CHUNKPROOF], bench.services.variables_with_extension
    contestants[f"{CHUNKPROOF}, extension"] = replace(ours, settings=(*ours.settings, *near.items()))
    yield measure_cold(contestants, machine, bench.repeats.cold, "cold_secret", note)


def _warm(bench: Bench) -> Iterator[Part]:
    yield measure_warm(bench.some(WARM), bench.machine, bench.repeats.warm)


def _by_id(bench: Bench) -> Iterator[Part]:
    validator = bench.workshop.validator(bench.build)
    yield measure_by_id(validator, bench.contestants["bare_sdk"], bench.machine, bench.repeats.warm)


def _growth(bench: Bench) -> Iterator[Part]:
    fill_long_texts(bench.services.qdrant_url)
    yield from measure_growth(bench.some(GROWING), bench.machine, bench.repeats.growth)


def _distance(bench: Bench) -> Iterator[Part]:
    first, warm = bench.repeats.far_first, bench.repeats.far_warm
    validator = bench.workshop.validator(bench.build)
    yield from measure_distance(bench.some(WARM), validator, bench.machine, bench.services, first, warm)


def _serve(bench: Bench) -> Iterator[Part]:
    yield measure_serve(bench.services.variables, bench.repeats.serve_s)


def _commands(bench: Bench) -> Iterator[Part]:
    yield measure_commands(bench.services.variables, bench.repeats.cold)


PARTS: dict[str, Measure] = {
    "size": _size,
    "cold": _cold,
    "secret": _secret,
    "warm": _warm,
    "by_id": _by_id,
    "growth": _growth,
    "distance": _distance,
    "serve": _serve,
    "commands": _commands,
}


def say(line: str) -> None:
    """Progress, apart from the figures."""
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    given = _arguments()
    workshop = Workshop(FOLDER, given.python.resolve(), given.sam.resolve(), _architecture(), say)
    FOLDER.mkdir(parents=True, exist_ok=True)
    measured: dict[str, Part] = {}
    # With the JSON on standard output, the table goes where progress goes.
    out = sys.stderr if given.json == "-" else sys.stdout
    contestants = workshop.contestants(given.build)
    with services(say) as running, _drain() as logs:
        machine = Machine(workshop.python, workshop.runtime(), running.variables, logs)
        bench = Bench(given.build, workshop, contestants, machine, running, QUICK if given.quick else FULL)
        for name in given.parts:
            say(f"Measuring: {name}")
            for part in PARTS[name](bench):
                measured[part.name] = part
                print("\n".join(part_lines(part)) + "\n", file=out, flush=True)
    if {"warm", "cold"} <= measured.keys():
        print("\n".join(money_lines(measured["warm"], measured["cold"])) + "\n", file=out, flush=True)
    goals = list(judge(measured))
    if goals:
        print("\n".join(goal_lines(goals)), file=out, flush=True)
    if given.json:
        _write(given.json, measured, goals, given)
    return exit_code(goals)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help="what `make build` made for this machine")
    parser.add_argument("--python", type=Path, required=True, help="the Python that Lambda runs")
    parser.add_argument("--sam", type=Path, required=True)
    parser.add_argument("--parts", type=_parts, default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it works")
    parser.add_argument("--json", metavar="FILE", help="all figures; - for standard output")
    return parser.parse_args()


def _parts(names: str) -> list[str]:
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if not chosen or set(chosen) - set(PARTS):
        raise argparse.ArgumentTypeError(f"must be some of {','.join(PARTS)}")
    return chosen


@contextmanager
def _drain() -> Iterator[int]:
    """Yield a pipe that is read continuously, as Lambda reads what handlers log."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True) as reader:
        assert reader.stdin is not None
        yield reader.stdin.fileno()


def _write(target: str, measured: dict[str, Part], goals: list[Goal], given: argparse.Namespace) -> None:
    document = {
        "machine": {"system": platform.platform(), "processors": os.cpu_count(), "load": os.getloadavg()},
        "quick": given.quick,
        "parts": {name: part.to_json() for name, part in measured.items()},
        "goals": [goal.to_json() for goal in goals],
    }
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text, "utf-8")


def _architecture() -> str:
    return "arm64" if platform.machine() in ("arm64", "aarch64") else "x86_64"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoServerError as reason:
        say(f"This needs a Qdrant server: {reason}")
    except (ContestantError, NotBuiltError) as reason:
        say(str(reason))
    except KeyboardInterrupt:
        say("Stopped.")
        sys.exit(130)
    sys.exit(2)
