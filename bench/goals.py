"""The goals of the benchmark, and whether they are reached."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from bench.contestants import CHUNKPROOF, PEERS
from bench.results import Part
from bench.spread import Spread

# Time per result may be this much more than the floor's, which only parses, to count as close to it.
CLOSE = 1.25


class Verdict(StrEnum):
    """How far a ratio went."""

    AIM = "aim reached"
    ENOUGH = "reached"
    MISSED = "MISSED"


@dataclass(frozen=True)
class Goal:
    """A ratio of ours to theirs: lower is better, and equal counts as reached."""

    figure: str
    ratio: float
    limit: float
    aim_for: float
    spread: Spread | None = None
    against: str = ""
    # The same of processor time, which other work on the machine disturbs less; reported, not judged.
    by_cpu: float | None = None

    @property
    def verdict(self) -> Verdict:
        if self.ratio <= self.aim_for:
            return Verdict.AIM
        return Verdict.ENOUGH if self.ratio <= self.limit else Verdict.MISSED

    def to_json(self) -> dict[str, object]:
        return {
            "figure": self.figure,
            "against": self.against,
            "ratio": self.ratio,
            "by_cpu": self.by_cpu,
            "by_rounds": self.spread.to_json() if self.spread else None,
            "at_least": self.limit,
            "aim_for": self.aim_for,
            "verdict": self.verdict.value,
        }


def exit_code(goals: Iterable[Goal]) -> int:
    """1 when an "at least" was missed."""
    return int(any(goal.verdict is Verdict.MISSED for goal in goals))


def judge(parts: Mapping[str, Part]) -> Iterator[Goal]:
    """The goals of the parts that were measured."""
    if cold := parts.get("cold"):
        yield _ours_to(cold, "cpu_ms", "plain", "cold, as deployed ÷ (a), by CPU", (0.13, 0.10))
        best = cold.best(PEERS, "wall_ms")
        yield _ours_to(cold, "wall_ms", best, "cold ÷ best of (b), (c), (d)", (0.40, 0.15))
    if warm := parts.get("warm"):
        yield _ours_to(warm, "cpu_ms", "bare_sdk", "warm ÷ bare SDK calls, by CPU", (0.50, 0.40))
        best = warm.best(PEERS, "cpu_ms")
        yield _ours_to(warm, "cpu_ms", best, "warm ÷ best peer, by CPU", (0.45, 0.40))
        yield _ours_to(warm, "cpu_ms", "floor", "warm ÷ standard library alone, by CPU", (2.2, 1.5))
    if by_id := parts.get("by_id"):
        yield _ours_to(by_id, "cpu_ms", "bare_sdk", "validate-chunk ÷ bare retrieve, by CPU", (1.3, 1.1))
    yield from _judge_distance(parts)
    if commands := parts.get("commands"):
        for row, limits in (("--help", (0.15, 0.10)), ("search, less the search itself", (0.40, 0.30))):
            wall, cpu = (commands.figure(row, column).median / 1_000 for column in ("wall_ms", "cpu_ms"))
            yield Goal(f"command line, seconds: {row}", wall, *limits, by_cpu=cpu)
    if serve := parts.get("serve"):
        one, more = (serve.figure(f"workers: {name}, clients: 32", "cpu_ms").median for name in ("1", "one a core"))
        yield Goal("serve, one worker a core ÷ one worker, CPU of a request", ratio(more, one), 1 / 0.9, 1.0, None, "")
    if size := parts.get("size"):
        yield _ours_to(size, "unzipped_mb", "plain", "unzipped size ÷ (a)", (0.55, 0.3))
    if top_k := parts.get("top_k"):
        few = top_k.figure(f"{CHUNKPROOF}, top_k 10", "wall_ms").median / 10
        many = top_k.figure(f"{CHUNKPROOF}, top_k 1000", "wall_ms").median / 1000
        parsing = top_k.figure("floor, top_k 1000", "wall_ms").median / 1000
        yield Goal(
            "warm time per result at top_k 1000 ÷ at 10",
            ratio(many, few),
            0.3,
            # "Close to parsing cost".
            CLOSE * ratio(parsing, few),
            against=f"{CHUNKPROOF} itself; the aim is {CLOSE} times the standard library's time per result",
        )


def _judge_distance(parts: Mapping[str, Part]) -> Iterator[Goal]:
    for name, part in parts.items():
        if name == "far_warm_30":
            yield _ours_to(part, "wall_ms", "floor", "warm, Qdrant 30 ms away ÷ floor", (1.05, 1.02))
        if name.startswith(("far_first", "far_share")):
            where = f"{name.rpartition('_')[2]} ms away{', share of Lambda' if 'share' in name else ''}"
            figure = f"first answer less imports, Qdrant {where} ÷ floor"
            yield _ours_to(part, "after_imports_ms", "floor", figure, (1.25, 1.1))
            best = part.best(PEERS, "wall_ms")
            yield _ours_to(part, "wall_ms", best, f"first answer, Qdrant {where} ÷ best peer", (0.5, 0.4))
    if many := parts.get("far_many"):
        for one, more in (("searches: 1", "searches: 32"), ("validations: 1", "validations: 100")):
            ours, single = many.figure(more, "wall_ms"), many.figure(one, "wall_ms")
            yield Goal(
                f"{more} in one request ÷ 1", ratio(ours.median, single.median), 1.3, 1.1, ours.by_rounds(single)
            )


def ratio(ours: float, theirs: float) -> float:
    """Ours to theirs; theirs must be a real figure."""
    if theirs <= 0:
        raise ValueError("nothing was measured to compare with")
    return ours / theirs


def _ours_to(part: Part, column: str, row: str, figure: str, limits: tuple[float, float]) -> Goal:
    ours, theirs = part.figure(CHUNKPROOF, column), part.figure(row, column)
    limit, aim_for = limits
    by_rounds = ours.by_rounds(theirs) if len(ours.values) > 1 else None
    by_cpu = None
    if "cpu_ms" in part.rows[row]:
        by_cpu = ratio(part.figure(CHUNKPROOF, "cpu_ms").median, part.figure(row, "cpu_ms").median)
    return Goal(figure, ratio(ours.median, theirs.median), limit, aim_for, by_rounds, row, by_cpu)
