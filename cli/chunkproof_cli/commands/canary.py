"""`chunkproof canary`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from chunkproof.base.files import make_private_folder, write_file
from chunkproof.proof.canaries import TOLERANCE, Canary, check_canaries, record_canaries
from chunkproof_cli.aws.jobs import run_canaries_in_cloud
from chunkproof_cli.connections import open_services
from chunkproof_cli.exits import COULD_NOT_JUDGE, FAILED
from chunkproof_cli.options import add_options, data_option, json_option, option, parse_options, reject_api, reject_nan
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


where_options = add_options(
    option("--stack NAME", "Run it in this deployed stack, which needs the parameter Canary=true."),
    data_option(", in which the record is kept without --stack"),
    json_option,
    reject_api("a stack is named with --stack"),
)


@canary.command(epilog=RECORD_EXAMPLES)
@where_options
def record(stack: str | None, data: Path | None, as_json: bool) -> None:
    """Record how the model embeds ten fixed texts, as queries and as documents.

    An earlier record is replaced. Record again after a deliberate change of the model, once the collection is
    embedded with it.
    """
    options = parse_options(None, data, as_json)
    if stack is not None:
        recorded = run_canaries_in_cloud(stack, {"action": "record"})
    else:
        with open_services(options) as services:
            recorded = record_canaries(services, RecordFolder(options.data / FOLDER))
    for each in recorded:
        print_note(f"Recorded {_name(each)}, {each.dimension} values")
    if options.json:
        print_json({"canaries": [each.model_dump(mode="json") for each in recorded]})


@canary.command(epilog=CHECK_EXAMPLES)
@where_options
@option(
    "--tolerance",
    "How far 1 - cosine may be from 0 before a vector counts as changed.",
    TOLERANCE,
    type=click.FloatRange(0.0, 2.0),
    callback=reject_nan,
)
def check(stack: str | None, data: Path | None, tolerance: float, as_json: bool) -> None:
    """Compare how the model embeds ten fixed texts with what was recorded.

    Exit code 1 when a vector differs by more than the tolerance, 3 when nothing was recorded for the model.
    """
    options = parse_options(None, data, as_json)
    if stack is not None:
        checked = run_canaries_in_cloud(stack, {"action": "check", "tolerance": tolerance})
    else:
        with open_services(options) as services:
            checked = check_canaries(services, RecordFolder(options.data / FOLDER), tolerance=tolerance)
    if options.json:
        print_json({"canaries": [each.model_dump(mode="json") for each in checked]})
    else:
        _print_check(checked)
    states = {each.state for each in checked}
    if "changed" in states:
        raise SystemExit(FAILED)
    if "not recorded" in states:
        suffix = f" --stack {stack}" if stack else ""
        print_note(f"Nothing is recorded to compare with; record it with: chunkproof canary record{suffix}")
        raise SystemExit(COULD_NOT_JUDGE)


def _print_check(canaries: Sequence[Canary]) -> None:
    for each in canaries:
        if each.state == "not recorded":
            print_line(f"{_name(each)}: not recorded")
            continue
        print_line(
            f"{_name(each)}: {each.state} since {each.recorded_at:%Y-%m-%d %H:%M} UTC, drift {each.drift:.6f}",
            "bold red" if each.state == "changed" else "green",
        )
        if each.recorded_dimension != each.dimension:
            print_line(f"It had {each.recorded_dimension} values, and has {each.dimension} now")
        elif each.texts:
            rows = [(text.number, text.input_type, f"{text.cosine:.4f}", text.text) for text in each.texts]
            print_table(("text", "as", "cosine", ""), rows)


def _name(each: Canary) -> str:
    model = each.model if each.model == each.query_model else f"{each.model} (queries: {each.query_model})"
    return f"{model} of {', '.join(each.collections)}"


@dataclass(frozen=True, slots=True)
class RecordFolder:
    """One file for each record."""

    path: Path

    def read_if_exists(self, name: str) -> bytes | None:
        """Read a record; None when there is none."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: str | bytes) -> None:
        """Create or replace a record."""
        make_private_folder(self.path)
        write_file(self.path / name, content if isinstance(content, str) else content.decode())
