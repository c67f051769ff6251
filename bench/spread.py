"""Figures of repeated measurements: the middle, and how far they lie apart."""

from dataclasses import dataclass
from math import ceil
from statistics import median, quantiles


@dataclass(frozen=True)
class Spread:
    """Measured values in the order of their rounds; at least one."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    @property
    def p95(self) -> float:
        """By nearest rank: a value that was measured."""
        return sorted(self.values)[ceil(0.95 * len(self.values)) - 1]

    @property
    def middle_half(self) -> tuple[float, float]:
        """First and third quartile."""
        if len(self.values) < 2:
            return self.values[0], self.values[0]
        first, _, third = quantiles(self.values, n=4, method="inclusive")
        return first, third

    def by_rounds(self, other: "Spread") -> "Spread":
        """This one's share of the other, round by round: other work on the machine slowed both alike."""
        return Spread(tuple(ours / theirs for ours, theirs in zip(self.values, other.values, strict=True)))

    def to_json(self) -> dict[str, float]:
        first, third = self.middle_half
        return {
            "median": self.median,
            "p95": self.p95,
            "min": self.low,
            "max": self.high,
            "q1": first,
            "q3": third,
            "count": len(self.values),
        }


def only(value: float) -> Spread:
    """A figure that has no spread, such as a size."""
    return Spread((value,))
