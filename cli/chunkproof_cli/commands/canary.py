"""`chunkproof canary`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from chunkproof.retrieval.canary import TOLERANCE, Canary, check_canaries, record_canaries
from chunkproof_cli.aws.canaries import run_in_cloud
from chunkproof_cli.connections import open_services
from chunkproof_cli.exits import COULD_NOT_JUDGE, FAILED
from chunkproof_cli.local.canary_records import RecordFolder
from chunkproof_cli.options import Command, parse_options, reject_api, reject_nan
from chunkproof_cli.output import print_json, print_line, print_note, print_table

FOLDER = "canaries"
RECORD_EXAMPLES = """\b
Examples:
  chunkproof canary record
  chunkproof canary record --stack chunkproof-prod
"""
CHECK_EXAMPLES = """\b
Examples:
  chunkproof canary check
  chunkproof canary check --stack chunkproof-prod --json
"""


@click.group()
def canary() -> None:
    """Notice when the weights behind a model's name change, by embedding fixed texts again."""


def _where_options(command: Command) -> Command:
    decorated: Any = reject_api("a stack is named with --stack")(command)
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output."),
        click.option(
            "--data",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            help="Folder of the embedded store, in which the record is kept without --stack.",
        ),
        click.option(
            "--stack", metavar="NAME", help="Let this deployed stack do it, which has the parameter Canary=true."
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


@canary.command(epilog=RECORD_EXAMPLES)
@_where_options
def record(stack: str | None, data: Path | None, as_json: bool) -> None:
    """Record how the model embeds ten fixed texts, as queries and as documents.

    An earlier record is replaced. Do it again after a deliberate change of the model, once the collection is
    embedded anew.
    """
    options = parse_options(None, data, as_json)
    if stack is not None:
        found = run_in_cloud(stack, {"action": "record"})
    else:
        with open_services(options) as services:
            found = record_canaries(services, RecordFolder(options.data / FOLDER))
    for one in found:
        print_note(f"Recorded {_name(one)}, {one.dimension} values")
    if options.json:
        print_json({"canaries": [one.model_dump(mode="json") for one in found]})


@canary.command(epilog=CHECK_EXAMPLES)
@_where_options
@click.option(
    "--tolerance",
    type=click.FloatRange(0.0, 2.0),
    default=TOLERANCE,
    show_default=True,
    callback=reject_nan,
    help="How far 1 - cosine may be from 0 before a vector counts as changed.",
)
def check(stack: str | None, data: Path | None, tolerance: float, as_json: bool) -> None:
    """Compare how the model embeds ten fixed texts with what was recorded.

    Exit code 1 when a vector differs by more than the tolerance, 3 when nothing was recorded for the model.
    """
    options = parse_options(None, data, as_json)
    if stack is not None:
        found = run_in_cloud(stack, {"action": "check", "tolerance": tolerance})
    else:
        with open_services(options) as services:
            found = check_canaries(services, RecordFolder(options.data / FOLDER), tolerance=tolerance)
    if options.json:
        print_json({"canaries": [one.model_dump(mode="json") for one in found]})
    else:
        _print_check(found)
    states = {one.state for one in found}
    if "changed" in states:
        raise SystemExit(FAILED)
    if "not recorded" in states:
        suffix = f" --stack {stack}" if stack else ""
        print_note(f"Nothing is recorded to compare with; record it with: chunkproof canary record{suffix}")
        raise SystemExit(COULD_NOT_JUDGE)


def _print_check(found: Sequence[Canary]) -> None:
    for one in found:
        if one.state == "not recorded":
            print_line(f"{_name(one)}: not recorded")
            continue
        print_line(
            f"{_name(one)}: {one.state} since {one.recorded_at:%Y-%m-%d %H:%M} UTC, drift {one.drift:.6f}",
            "bold red" if one.state == "changed" else "green",
        )
        if one.recorded_dimension != one.dimension:
            print_line(f"It had {one.recorded_dimension} values, and has {one.dimension} now")
        elif one.texts:
            rows = [(text.number, text.input_type, f"{text.cosine:.4f}", text.text) for text in one.texts]
            print_table(("text", "as", "cosine", ""), rows)


def _name(one: Canary) -> str:
    model = one.model if one.model == one.query_model else f"{one.model} (queries: {one.query_model})"
    return f"{model} of {', '.join(one.collections)}"
