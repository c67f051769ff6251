"""`chunkproof suite tune`: fusion weights are chosen by one half of the cases, and measured on the other half.

Weights that are chosen and measured on the same cases look better than they are. So the cases are split by a hash of
their names: the same suite always gives the same halves, whatever the order of its cases.
"""

from collections.abc import Sequence
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any, Literal

import click
import yaml
from pydantic import Field, JsonValue

from chunkproof import __version__
from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.files import write_file
from chunkproof.contract.model import Count, Model
from chunkproof.suite.cases import TestCase, assign_collection
from chunkproof.suite.criteria import MetricChange
from chunkproof.suite.judge import measure_case
from chunkproof.suite.runner import OnResult, Search, inspect_collections
from chunkproof.suite.suite_file import read_source
from chunkproof_cli.connections import open_backend
from chunkproof_cli.exits import rebuild_error
from chunkproof_cli.options import api_option, common_options, embedder_option, option, output_option, parse_options
from chunkproof_cli.output import print_json, print_line, print_table, progress_bar, show_warnings_once
from chunkproof_cli.reports.outputs import check_outputs
from chunkproof_cli.reports.suite_blocks import describe_change
from chunkproof_cli.suites.baseline import SHARE_PASSED, measure_changes
from chunkproof_cli.suites.configurations import (
    PREFERRED,
    Configuration,
    ConfigurationRun,
    Prices,
    pair_judged,
    run_configurations,
)
from chunkproof_cli.suites.suite_runs import choose_collection, parse_measure, pop_source, source_options

LEAST_CASES = 10
TEXT_WEIGHTS = tuple(n / 10 for n in range(1, 10))
RANK_CONSTANTS = (2, 20, 60)
DENSE = Configuration(name="dense", search={"mode": "dense"})
TEXT = Configuration(name="text", search={"mode": "text"})
EVEN = Configuration(name="hybrid", search={"mode": "hybrid"})
SHOWN = 5
EXAMPLES = """\b
Examples:
  chunkproof suite tune suite.yaml --collection handbook
  chunkproof suite tune suite.yaml --metric mrr@10 -o tuned.yaml
  chunkproof suite run suite.yaml --compare tuned.yaml
"""


class Tuned(Model):
    """A configuration with its mean on each half."""

    configuration: Configuration
    chosen_on: float = Field(description="Mean on the half that it was chosen by")
    measured_on: float | None = Field(None, description="Mean on the other half, for those measured there")


class TuningReport(Model):
    """The best fusion weights, and what they are worth on cases that did not choose them."""

    format: Literal["chunkproof-tuning-report"] = "chunkproof-tuning-report"
    format_version: str = "1.0"
    chunkproof_version: str = __version__
    suite: str
    metric: str
    cases_to_choose: Count
    cases_to_measure: Count
    tried: tuple[Tuned, ...] = Field(description="Best first")
    best: Tuned
    against: dict[str, MetricChange] = Field(
        description="On the other half: the change from each alternative to the best"
    )

    @property
    def is_proved(self) -> bool:
        """Whether the best one beats every alternative by more than chance on the other half."""
        return bool(self.against) and all(change.low > 0 for change in self.against.values())


@click.command(epilog=EXAMPLES)
@source_options
@option(
    "--metric METRIC",
    "What to choose by; by default ndcg@10, or at fewer results where top_k is smaller.",
    type=parse_measure,
)
@output_option("Write the result: .json, or .yaml with configurations for `suite run --compare`.")
@common_options
@embedder_option
@api_option
def tune(metric: str | None, outputs: tuple[Path, ...], **options: Any) -> None:
    """Search for the weights of hybrid search on half of the cases of SUITE.

    Every combination of a text weight and a rank constant is tried on one half of the cases, besides each leg alone.
    The best is then measured on the other half, which did not choose it, beside dense search, text search and even
    weights. The collection needs both legs: a dense vector, and a sparse vector or a text index.
    """
    source = pop_source(options)
    given = parse_options(**options)
    check_outputs(outputs, (".json", ".yaml"))
    found = read_source(source)
    metric = metric or choose_metric(found.suite.cases)
    halves = split_cases(assign_collection(found.suite.cases, choose_collection(found, given)), metric)
    searches = len(candidates()) * len(halves[0]) + 4 * len(halves[1])  # at most
    with open_backend(given) as backend:
        if (down := inspect_collections(halves[0], backend).down) is not None:
            raise down
        with show_warnings_once(), progress_bar("Searching", searches) as done:
            report = tune_weights(
                halves, backend.search, suite=found.suite.name, metric=metric, on_result=lambda _: done(1)
            )
    for file in outputs:
        write_file(file, _render(report, file))
    print_json(report) if given.json else _print(report)


def _render(report: TuningReport, file: Path) -> str:
    if file.suffix == ".json":
        return report.canonical_json()
    chosen = {one.name: one.model_dump(include={"name", "search"}) for one in (DENSE, report.best.configuration, EVEN)}
    text: str = yaml.safe_dump({"configurations": list(chosen.values())}, sort_keys=False, allow_unicode=True)
    return text


def _print(report: TuningReport) -> None:
    head = "configuration", f"{report.metric} on {report.cases_to_choose} cases", f"on {report.cases_to_measure} others"
    rows = (
        (one.configuration.name, f"{one.chosen_on:.3f}", "–" if one.measured_on is None else f"{one.measured_on:.3f}")
        for one in report.tried[:SHOWN]
    )
    print_table(head, rows)
    for name, change in report.against.items():
        print_line(f"  against {name}: {describe_change(change)}")
    best = report.best
    proof = "beyond chance" if report.is_proved else "no more than chance"
    print_line(
        f"Best: {best.configuration.name}. On the {report.cases_to_measure} cases that did not choose it, "
        f"{report.metric} {best.measured_on or 0:.3f}; its lead over {', '.join(report.against)} is {proof}.",
        "green" if report.is_proved else "yellow",
    )


def _make_fused(text_weight: float, k: int) -> Configuration:
    weights: dict[str, JsonValue] = {"dense": round(1 - text_weight, 1), "text": text_weight}
    return Configuration(
        name=f"hybrid, text weight {text_weight:.1f}, k {k}",
        search={"mode": "hybrid", "fusion": {"method": "rrf", "weights": weights, "k": k}},
    )


# The cases that choose the weights, and those that measure them.
Halves = tuple[Sequence[TestCase], Sequence[TestCase]]


def split_cases(cases: Sequence[TestCase], metric: str) -> Halves:
    """Split the cases that have the metric into halves; `InvalidParameterError` when there are too few."""
    judged = [case for case in cases if metric == SHARE_PASSED or metric in measure_case(case, ())]
    if len(judged) < LEAST_CASES:
        needed = (
            "" if metric == SHARE_PASSED else f" with expected_doc_ids and top_k {metric.partition('@')[2]} or more"
        )
        raise InvalidParameterError(
            f"Tuning by {metric} needs at least {LEAST_CASES} cases{needed}; the suite has {len(judged)}"
        )
    ordered = sorted(judged, key=lambda case: sha256(case.name.encode()).digest())
    half = len(ordered) // 2
    return ordered[:half], ordered[half:]


def choose_metric(cases: Sequence[TestCase]) -> str:
    """Return ndcg@10, or ndcg at fewer results if a case asks for fewer."""
    least = min((case.top_k for case in cases if case.grades), default=10)
    return next(name for name in PREFERRED if int(name.removeprefix("ndcg@")) <= least)


def candidates() -> list[Configuration]:
    """Return every configuration to try: both legs by default and with each weight and rank constant, each leg alone.

    Of equals, the first is chosen: the default, then the one nearest to even weights, which no single case decided.
    """
    weights = sorted(product(RANK_CONSTANTS, TEXT_WEIGHTS), key=lambda pair: abs(pair[1] - 0.5))
    return [EVEN, *(_make_fused(weight, k) for k, weight in weights), DENSE, TEXT]


def tune_weights(
    halves: Halves, search: Search, *, suite: str, metric: str, on_result: OnResult | None = None
) -> TuningReport:
    """Try every candidate on the first half, then compare the best with the alternatives on the other half."""
    choosing, measuring = halves
    runs = run_configurations(candidates(), choosing, search, on_result)
    means = sorted(((run.configuration, _mean(run, metric)) for run in runs), key=lambda pair: -pair[1])
    best = means[0][0]
    alternatives = [one for one in (DENSE, TEXT, EVEN) if one.name != best.name]
    measured = run_configurations([best, *alternatives], measuring, search, on_result)
    on_other = {run.configuration.name: _mean(run, metric) for run in measured}
    changes = {
        run.configuration.name: change
        for run in measured[1:]
        for change in measure_changes(pair_judged(run.results, measured[0].results))
        if change.name == metric
    }
    tried = tuple(
        Tuned(configuration=tried, chosen_on=mean, measured_on=on_other.get(tried.name)) for tried, mean in means
    )
    return TuningReport(
        suite=suite,
        metric=metric,
        cases_to_choose=len(choosing),
        cases_to_measure=len(measuring),
        tried=tried,
        best=tried[0],
        against=changes,
    )


def _mean(run: ConfigurationRun, metric: str) -> float:
    """Return the metric's mean; a case that could not be judged ends the search for weights."""
    for one in run.results:
        if not one.status.is_judged:
            reason = f"{run.configuration.name}: case {one.name} could not be judged: {one.error_message}"
            raise rebuild_error(one.error_code or "", [reason])
    return run.summarize(Prices(), None).metrics[metric]
