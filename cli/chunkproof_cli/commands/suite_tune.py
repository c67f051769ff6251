"""`chunkproof suite tune`."""

from pathlib import Path
from typing import Any

import click
import yaml

from chunkproof.files import write_file
from chunkproof.suite.cases import assign_collection
from chunkproof.suite.files.read import read_source
from chunkproof.suite.run import inspect_collections
from chunkproof_cli.commands.suite_source import choose_collection, pop_source, source_options
from chunkproof_cli.connections import open_backend
from chunkproof_cli.options import api_option, common_options, embedder_option, output_option, parse_options
from chunkproof_cli.output import print_json, print_line, print_table, progress_bar, show_warnings_once
from chunkproof_cli.reports.configurations.figures import describe_change
from chunkproof_cli.reports.outputs import check_outputs
from chunkproof_cli.suites.compare_command import MeasureType
from chunkproof_cli.suites.tune import DENSE, EVEN, TuningReport, choose_metric, count_searches, split_cases
from chunkproof_cli.suites.tune import tune as tune_weights

SHOWN = 5
EXAMPLES = """\b
Examples:
  chunkproof suite tune suite.yaml --collection handbook
  chunkproof suite tune suite.yaml --metric mrr@10 -o tuned.yaml
  chunkproof suite run suite.yaml --compare tuned.yaml
"""


@click.command(epilog=EXAMPLES)
@source_options
@click.option(
    "--metric",
    type=MeasureType(),
    help="What to choose by; by default ndcg@10, or at fewer results where top_k is smaller.",
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
    with open_backend(given) as backend:
        if (down := inspect_collections(halves.choosing, backend).down) is not None:
            raise down
        with show_warnings_once(), progress_bar("Searching", count_searches(halves)) as done:
            report = tune_weights(
                halves, backend.search, suite=found.suite.name, metric=metric, on_result=lambda _: done(1)
            )
    for file in outputs:
        write_file(file, _render(report, file))
    print_json(report) if given.json else _print(report)


def _render(report: TuningReport, file: Path) -> str:
    if file.suffix == ".json":
        return report.model_dump_json(indent=2) + "\n"
    chosen = {one.name: one.model_dump(include={"name", "search"}) for one in (DENSE, report.best.configuration, EVEN)}
    text: str = yaml.safe_dump({"configurations": list(chosen.values())}, sort_keys=False, allow_unicode=True)
    return text


def _print(report: TuningReport) -> None:
    print_table(
        ("configuration", f"{report.metric} on {report.cases_to_choose} cases", f"on {report.cases_to_measure} others"),
        (
            (
                one.configuration.name,
                f"{one.chosen_on:.3f}",
                "–" if one.measured_on is None else f"{one.measured_on:.3f}",
            )
            for one in report.tried[:SHOWN]
        ),
    )
    for name, change in report.against.items():
        print_line(f"  against {name}: {describe_change(change)}")
    best = report.best
    proof = "beyond chance" if report.is_proved else "no more than chance"
    print_line(
        f"Best: {best.configuration.name}. On the {report.cases_to_measure} cases that did not choose it, "
        f"{report.metric} {best.measured_on or 0:.3f}; its lead over the others is {proof}.",
        "green" if report.is_proved else "yellow",
    )
