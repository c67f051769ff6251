"""Options that the `chunkproof suite` commands have in common: where the suite comes from, and what to measure by."""

from typing import Any

import click

from chunkproof.suite.judge import CUTOFFS, METRICS
from chunkproof.suite.suite_file import SuiteFile, SuiteSource
from chunkproof_cli.options import FileOrObject, Options, add_options, explicit_collection, file_option

MEASURES = ("pass rate", *(f"{name}@{k}" for name in METRICS for k in CUTOFFS))

# `pop_source` reads them.
source_options = add_options(
    click.argument("path", metavar="SUITE", type=FileOrObject()),
    click.option("--split", metavar="NAME", help="Which qrels of a BEIR folder to use; test by default."),
    file_option("--qrels", help="TREC judgments; SUITE is then the topics file."),
    click.option("-k", "--top-k", type=click.IntRange(1), help="Results to search for, in cases that set no top_k."),
)


def pop_source(options: dict[str, Any]) -> SuiteSource:
    """Remove what `source_options` added from the options, and return it."""
    return SuiteSource(options.pop("path"), options.pop("split"), options.pop("qrels"), options.pop("top_k"))


def choose_collection(found: SuiteFile, given: Options) -> str | None:
    """Return the collection of cases that name none: the option's, the suite's, else the setting's.

    None leaves the choice to the backend: the setting of a stack, or the only collection of a store.
    """
    return given.collection or found.suite.collection or explicit_collection(given)


class MeasureType(click.ParamType[str]):
    """The name of a metric, such as ndcg@10, or `pass rate`."""

    name = "metric"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> str:
        """Return the name."""
        if value not in MEASURES:
            self.fail(f"{value} is not a metric: name one of {', '.join(MEASURES)}")
        return str(value)
