"""Growth: what more results and longer texts cost, beside those who do the same two calls."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bench.contestants import Contestant
from bench.process import Machine
from bench.results import Part
from bench.servers import LONG_TEXTS
from bench.turns import check_agreement, search_event, warm_rounds
from bench.warm import columns

# Each, and the share of the rounds that it gets: the large ones take long, and vary less.
TOP_KS = {1: 1.0, 10: 1.0, 100: 0.5, 1000: 0.2}
FEW = 5  # of 1 MB, these are just within Lambda's limit
LENGTHS = dict(zip(LONG_TEXTS, (1.0, 1.0, 0.5, 0.2), strict=True))


def measure_growth(contestants: Mapping[str, Contestant], machine: Machine, count: int) -> Iterator[Part]:
    """A warm search for 1 to 1000 results of 2 KB, and for five texts of 1 KB to 1 MB."""
    top_k = Part("top_k", "growth: a warm search for 1 to 1000 results of 2 KB")
    for wanted, share in TOP_KS.items():
        _measure(top_k, f"top_k {wanted}", contestants, machine, (wanted, round(count * share)))
    yield top_k
    texts = Part("texts", f"growth: a warm search for {FEW} texts of 1 KB to 1 MB")
    for length, share in LENGTHS.items():
        with_texts = {name: replace(who, collection=length) for name, who in contestants.items()}
        _measure(texts, length, with_texts, machine, (FEW, round(count * share)))
    yield texts


def _measure(
    part: Part, label: str, contestants: Mapping[str, Contestant], machine: Machine, asked: tuple[int, int]
) -> None:
    top_k, count = asked
    taken = warm_rounds(contestants, machine, count, lambda: search_event(top_k), warm_up=10)
    check_agreement(taken, top_k)
    for name, replies in taken.items():
        part.add(f"{name}, {label}", **columns(replies))
