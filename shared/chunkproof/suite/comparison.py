"""A run compared with an earlier one: what changed, and whether the gate lets it pass."""

from enum import StrEnum

from pydantic import Field

from chunkproof.models import Model


class Gate(StrEnum):
    """The outcome of a comparison; `cannot tell` is for `--tolerate chance` and a suite that is too small for it."""

    PASSED = "passed"
    FAILED = "failed"
    CANNOT_TELL = "cannot tell"
    NOT_JUDGED = "not judged"


class MetricChange(Model):
    """A metric's mean in both runs, over the cases that have it in both."""

    name: str
    cases: int
    before: float
    after: float
    low: float = Field(description="Lower end of the interval of the difference")
    high: float = Field(description="Upper end; below 0, the fall is more than chance")
    gated: bool = Field(description="Whether the gate depends on it")

    @property
    def difference(self) -> float:
        """After minus before: negative is worse."""
        return self.after - self.before

    @property
    def is_regression(self) -> bool:
        """Whether it fell by more than chance explains."""
        return self.high < 0


class Comparison(Model):
    """The paired comparison of a run with its baseline."""

    baseline: str = Field(description="The report compared with")
    baseline_timestamp: str
    tolerance: str = Field(
        "chance",
        description="What the gate lets pass: `none`, `chance`, or the number of cases that may newly fail",
    )
    cases: int = Field(description="Cases with a verdict in both runs")
    changes: tuple[MetricChange, ...]
    newly_failing: tuple[str, ...]
    newly_passing: tuple[str, ...]
    failing_unpaired: tuple[str, ...] = Field(
        (), description="Failed cases that the baseline has no verdict on: they are new, or changed since"
    )
    not_compared: dict[str, str] = Field(description="Cases left out, and why")
    confidence: float = Field(description="Of each interval, between 0 and 1")
    rounds: int
    seed: int
    least_changes: int = Field(description="Fewer changed cases than this, all for the worse, could be chance")
    smallest_detectable: float | None = Field(
        None, description="`least_changes` as a share of the cases; null when there are fewer cases than that"
    )
    gate: Gate
    reason: str
    warnings: tuple[str, ...] = Field((), description="What the verdict says besides: nothing here passes silently")

    @property
    def verdict(self) -> str:
        """The line that explains the exit code."""
        name = "FAILED" if self.gate is Gate.FAILED else self.gate.value
        return "; ".join([f"Gate {name}: {self.reason}", *self.warnings])
