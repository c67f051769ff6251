"""Options that the `chunkproof suite` commands have in common: where the suite comes from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from chunkproof.suite.files.read import Source, SuiteFile
from chunkproof_cli.files.objects import FileOrObject
from chunkproof_cli.options import Options, explicit_collection

Command = TypeVar("Command", bound=Callable[..., Any])


def source_options(command: Command) -> Command:
    """Add the options that name a suite; `pop_source` reads them."""
    decorated: Any = command
    for option in (
        click.option(
            "-k", "--top-k", type=click.IntRange(1), help="Results to search for, in cases that set no top_k."
        ),
        click.option(
            "--qrels",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="TREC judgments; SUITE is then the topics file.",
        ),
        click.option("--split", metavar="NAME", help="Which qrels of a BEIR folder to use; test by default."),
        click.argument("path", metavar="SUITE", type=FileOrObject()),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def pop_source(options: dict[str, Any]) -> Source:
    """Remove what `source_options` added from the options, and return it."""
    return Source(options.pop("path"), options.pop("split"), options.pop("qrels"), options.pop("top_k"))


def choose_collection(found: SuiteFile, given: Options) -> str | None:
    """Return the collection of cases that name none: the option's, the suite's, else the setting's.

    None leaves the choice to the backend: the setting of a stack, or the only collection of a store.
    """
    named = given.collection or found.suite.collection
    return named or explicit_collection(given)
