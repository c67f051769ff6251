"""What every `chunkproof suite` command reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from chunkproof.settings import Settings
from chunkproof_cli.files.objects import FileOrObject
from chunkproof_cli.options import Options, explicit_collection
from chunkproof_cli.suites.read import Source, SuiteFile

Command = TypeVar("Command", bound=Callable[..., Any])


def source_options(command: Command) -> Command:
    """Add what a suite is read from, handed over as `source_of` wants it."""
    decorated: Any = command
    for option in (
        click.option(
            "-k", "--top-k", type=click.IntRange(1), help="Results of cases that say nothing of it."
        ),
        click.option(
            "--qrels",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="TREC judgments; SUITE is then the topics.",
        ),
        click.option("--split", metavar="NAME", help="Which qrels of a BEIR folder; test by default."),
        click.argument("path", metavar="SUITE", type=FileOrObject()),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def pop_source(options: dict[str, Any]) -> Source:
    """Takes what `source_options` added out of the options."""
    return Source(options.pop("path"), options.pop("split"), options.pop("qrels"), options.pop("top_k"))


def choose_collection(found: SuiteFile, given: Options, *, elsewhere: bool = False) -> str | None:
    """The collection of cases that name none: the option's, the suite's, else the setting's; None leaves it to
    who answers elsewhere."""
    named = given.collection or found.suite.collection
    remote = elsewhere or given.api
    return named or (explicit_collection(given) if remote else Settings.from_env().collection)
