"""Figures and sentences that several formats of a comparison of configurations show."""

from collections.abc import Iterator

from chunkproof.suite.comparison import MetricChange
from chunkproof_cli.suites.configuration_report import ConfigurationReport, ConfigurationResult

Row = tuple[str, ...]
SHOWN_METRICS = ("recall@5", "mrr@10")
NONE = "–"


def head(report: ConfigurationReport) -> Row:
    """Return the names of the columns."""
    return (
        "configuration",
        "passed",
        *_metrics(report),
        "against the first",
        "p50 ms",
        "p95 ms",
        "USD / 1,000",
    )


def rows(report: ConfigurationReport) -> Iterator[Row]:
    """Return a row for each configuration."""
    for one in report.results:
        yield (
            one.name + (" (chosen)" if one.name == report.choice.name else ""),
            f"{one.passed} of {one.passed + one.failed + one.errors}",
            *(f"{one.metrics[name]:.3f}" if name in one.metrics else NONE for name in _metrics(report)),
            describe_change(one.change_of(report.metric)),
            f"{one.latency.p50_ms:.1f}" if one.latency else NONE,
            f"{one.latency.p95_ms:.1f}" if one.latency else NONE,
            NONE if one.cost_per_thousand is None else f"{one.cost_per_thousand:.4f}",
        )


def describe_change(change: MetricChange | None) -> str:
    """Write the difference with its interval, and whether it is beyond chance."""
    if change is None:
        return NONE
    beyond = "worse" if change.is_regression else "better" if change.low > 0 else "within chance"
    return f"{change.difference:+.3f}, {beyond} ({change.low:+.3f} to {change.high:+.3f})"


def notes(report: ConfigurationReport) -> Iterator[str]:
    """Say what the table does not."""
    limit = "" if report.max_latency_ms is None else f", with a limit of {report.max_latency_ms:g} ms at p95"
    yield (
        f"{report.cases} cases under each configuration, in turns, one search at a time{limit}. "
        f"Intervals hold at {report.confidence:.1%} (paired randomization)."
    )
    yield (
        f"Costs are list prices as noted in {report.prices_of}: embedding, reranking and Lambda with 1 GB for the "
        "measured time, without the vector store."
    )
    for one in report.results:
        yield from _notes_of(one)


def _notes_of(one: ConfigurationResult) -> Iterator[str]:
    if one.errors:
        yield f"{one.name}: {one.errors} cases could not be judged: {one.error}"
    if one.cost_per_thousand is None:
        yield f"{one.name}: {one.cost_details}"
    yield from (f"{one.name}: {note}" for note in one.notes)


def verdict(report: ConfigurationReport) -> str:
    """Return the line that names the choice."""
    name = report.choice.name
    return f"Choose {name}: {report.choice.reason}." if name else f"No choice: {report.choice.reason}."


def _metrics(report: ConfigurationReport) -> list[str]:
    wanted = dict.fromkeys((report.metric, *SHOWN_METRICS))
    return [name for name in wanted if any(name in one.metrics for one in report.results)]
