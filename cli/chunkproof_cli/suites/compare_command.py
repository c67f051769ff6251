"""`chunkproof suite run --compare`: the same cases under several configurations."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from chunkproof.retrieval.backend import Backend
from chunkproof.settings import Settings
from chunkproof.suite.cases import assign_collection
from chunkproof.suite.files.read import SuiteFile
from chunkproof.suite.metrics import CUTOFFS, METRICS
from chunkproof.suite.run import inspect_collections
from chunkproof_cli.commands.suite_source import choose_collection
from chunkproof_cli.connections import open_backend
from chunkproof_cli.exits import COULD_NOT_JUDGE, FAILED
from chunkproof_cli.options import Options
from chunkproof_cli.output import print_json, progress_bar, show_warnings_once
from chunkproof_cli.reports.configurations import FORMATS, write_reports
from chunkproof_cli.reports.configurations.terminal import print_configurations
from chunkproof_cli.reports.outputs import check_outputs
from chunkproof_cli.suites.compare import SHARE_PASSED
from chunkproof_cli.suites.configuration_run import SuiteName, compare_runs, run_configurations
from chunkproof_cli.suites.configurations import read_configurations

Command = TypeVar("Command", bound=Callable[..., Any])
MEASURES = (SHARE_PASSED, *(f"{name}@{k}" for name in METRICS for k in CUTOFFS))


class MeasureType(click.ParamType[str]):
    """The name of a metric, such as ndcg@10, or `pass rate`."""

    name = "metric"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> str:
        """Return the name."""
        if value not in MEASURES:
            self.fail(f"{value} is not a metric: name one of {', '.join(MEASURES)}")
        return str(value)


@dataclass(frozen=True)
class ComparisonPlan:
    """The configurations to compare, how to choose among them, and where to report."""

    file: Path
    source: str
    outputs: tuple[Path, ...]
    metric: str | None
    max_latency_ms: float | None


def comparison_options(command: Command) -> Command:
    """Add the options of a comparison; `pop_comparison` reads them."""
    decorated: Any = command
    for option in (
        click.option(
            "--metric",
            type=MeasureType(),
            help="With --compare: what to compare by; ndcg@10 by default, the pass rate if no case names documents.",
        ),
        click.option(
            "--max-latency",
            type=click.FloatRange(0, min_open=True),
            metavar="MS",
            help="With --compare: choose only among configurations whose 95th percentile is within this.",
        ),
        click.option(
            "--compare",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Run the cases under each configuration of this .yaml or .json file: quality, latency and cost.",
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def pop_comparison(options: dict[str, Any], outputs: tuple[Path, ...], source: str) -> ComparisonPlan | None:
    """Remove what `comparison_options` added from the options, and return it; None without `--compare`."""
    file, metric, max_latency = (options.pop(name) for name in ("compare", "metric", "max_latency"))
    if file is None:
        if metric or max_latency:
            raise click.UsageError("--max-latency and --metric need --compare: they choose among configurations.")
        return None
    return ComparisonPlan(file, source, outputs, metric, max_latency)


def run_comparison(plan: ComparisonPlan, found: SuiteFile, given: Options) -> None:
    """Compare the configurations of the file on the cases of the suite, write and print the report, and exit."""
    check_outputs(plan.outputs, FORMATS)
    configurations = read_configurations(plan.file)
    with open_uncached(given) as backend:
        cases = assign_collection(found.suite.cases, choose_collection(found, given))
        variants = [one.apply(case) for one in configurations.configurations for case in cases]
        if (down := inspect_collections(variants, backend).down) is not None:
            raise down
        with show_warnings_once(), progress_bar("Searching", len(variants)) as done:
            runs = run_configurations(configurations.configurations, cases, backend.search, lambda _: done(1))
    identity = SuiteName(found.suite.name, plan.source)
    report = compare_runs(runs, identity, configurations.prices, plan.metric, plan.max_latency_ms)
    write_reports(report, plan.outputs)
    print_json(report) if given.json else print_configurations(report)
    if report.choice.name is None:
        sys.exit(COULD_NOT_JUDGE if any(one.errors for one in report.results) else FAILED)


@contextmanager
def open_uncached(given: Options) -> Iterator[Backend]:
    """Open the backend without a cache of embeddings: otherwise the second search of a query is faster."""
    settings = Settings.from_env().model_copy(update={"cache_entries": 0})
    with open_backend(given, settings) as backend:
        yield backend
