"""`chunkproof why`."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from chunkproof.audit.snapshot import Snapshot
from chunkproof.files import write_file
from chunkproof.models.ranking import Mode
from chunkproof.runtime.local import local_backend
from chunkproof.why.explain import Question, explain
from chunkproof.why.report import Fix
from chunkproof_cli.commands.search import FLAGS, parse_filters
from chunkproof_cli.connections import open_services
from chunkproof_cli.exits import FAILED
from chunkproof_cli.options import (
    common_options,
    explicit_collection,
    name_flags,
    output_option,
    parse_options,
    reject_api,
)
from chunkproof_cli.output import print_json, print_note, progress_bar, show_warnings_once
from chunkproof_cli.reports.outputs import check_outputs
from chunkproof_cli.reports.why import FORMATS, print_report, write_reports
from chunkproof_cli.suites.diagnose import options_of_store

EXAMPLES = """\b
Examples:
  chunkproof why "how are backups made" --expect vectordb-operations-03
  chunkproof why "how are backups made" --expect https://docs.example.com/backups -k 10 --filter lang=en
  chunkproof why "how are backups made" --expect "A snapshot is a copy of a collection" --threshold 0.5
  chunkproof why "how are backups made" --expect vectordb-operations-03 --snapshot before.snapshot -o why.html
"""


@click.command(epilog=EXAMPLES)
@click.argument("text")
@click.option(
    "--expect",
    "expected",
    required=True,
    metavar="ID|URL|TEXT",
    help="What the search should find: a chunk, point or document id, a URL, or a text that a chunk has.",
)
@click.option("-k", "--top-k", type=int, help="Maximum number of results; 5 by default.")
@click.option("--threshold", type=float, default=0.0, show_default=True, help="Minimum score of a result, 0 to 1.")
@click.option(
    "--filter", "filters", multiple=True, metavar="FIELD=VALUE", help="Filter of the search, as for chunkproof search."
)
@click.option(
    "--mode",
    type=click.Choice(list(Mode)),
    help="What the search compares: meanings (dense, the default), words (text), or both (hybrid).",
)
@click.option(
    "--snapshot",
    "before",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="A snapshot from before (chunkproof snapshot): former texts and vectors are tried too.",
)
@click.option(
    "--fix",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write down what would bring the chunk back: .json for Qdrant's batch API, .jsonl for chunkproof load.",
)
@output_option("Write the report: .json, .html, .md or .txt.")
@common_options
@reject_api("why needs the store itself; set QDRANT_URL")
def why(
    text: str, expected: str, before: Path | None, fix: Path | None, outputs: tuple[Path, ...], **given: Any
) -> None:
    """Find out why an expected chunk is not among the results of TEXT, and what would bring it back.

    The search is repeated with one change after another, then with pairs of them: without each filter, without the
    threshold, without the index, with the text embedded anew, with near-duplicates collapsed, with what a snapshot
    has. The smallest change that suffices names the cause. Nothing is written to the collection. Exit 0 if the chunk
    is found, 1 if it is not.
    """
    request = _pop_request(text, given)
    options = parse_options(**given)
    check_outputs(outputs, FORMATS)
    if fix is not None:
        check_outputs((fix,), (".json", ".jsonl"))
    if (collection := explicit_collection(options)) is not None:
        request["collection"] = collection
    question = Question(request, expected, Snapshot(before) if before else None, options_of_store(options))
    with (
        open_services(options) as services,
        name_flags({**FLAGS, "expected": "--expect"}),
        show_warnings_once(),
        progress_bar("Trying changes", None) as done,
    ):
        question = replace(question, on_step=lambda _step: done(1))
        found = explain(question, services=services, new_deadline=local_backend(services).new_deadline)
    report = found.report
    write_reports(report, outputs)
    if fix is not None:
        _write_fix(found.fix, fix)
    if options.json:
        print_json(report)
    else:
        print_report(report)
    sys.exit(0 if report.verdict.found else FAILED)


def _pop_request(text: str, given: dict[str, Any]) -> dict[str, Any]:
    """Take the options of the search out of the command's, and return them as `POST /search` has them."""
    threshold, filters = given.pop("threshold"), given.pop("filters")
    request = {"query_text": text, "similarity_threshold": threshold, "filters": parse_filters(filters)}
    optional = {name: given.pop(name) for name in ("top_k", "mode")}
    return request | {name: value for name, value in optional.items() if value is not None}


def _write_fix(fix: Fix | None, file: Path) -> None:
    if fix is None:
        print_note(f"{file} is not written: the change is not one of stored points")
    elif file.suffix == ".jsonl":
        write_file(file, "".join(json.dumps(chunk, ensure_ascii=False) + "\n" for chunk in fix.chunks))
    else:
        write_file(file, json.dumps({"operations": fix.operations}, ensure_ascii=False) + "\n")
