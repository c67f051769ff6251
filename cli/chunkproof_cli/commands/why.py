"""`chunkproof why`."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from chunkproof.audit.snapshot_file import Snapshot
from chunkproof.base.files import write_file
from chunkproof.service.terminal import local_backend
from chunkproof.why.causes import Fix
from chunkproof.why.explainer import Explainer
from chunkproof.why.probe import Question
from chunkproof_cli.connections import open_services, options_of_store
from chunkproof_cli.exits import FAILED
from chunkproof_cli.options import (
    common_options,
    name_collection,
    name_flags,
    option,
    output_option,
    parse_options,
    reject_api,
)
from chunkproof_cli.output import print_note, print_result, progress_bar, show_warnings_once
from chunkproof_cli.reports.outputs import WHY, check_outputs
from chunkproof_cli.request_options import SEARCH_FLAGS, SEARCH_OPTIONS, pop_search, search_options

EXAMPLES = """\b
Examples:
  chunkproof why "how are backups made" --expect vectordb-operations-03
  chunkproof why "how are backups made" --expect https://docs.example.com/backups -k 10 --filter lang=en
  chunkproof why "how are backups made" --expect "A snapshot is a copy of a collection" --threshold 0.5
  chunkproof why "how are backups made" --expect vectordb-operations-03 --snapshot before.snapshot -o why.html
"""


@click.command(epilog=EXAMPLES)
@click.argument("text")
@option(
    "--expect --expected expected ID|URL|TEXT",
    "What the search should find: a chunk, point or document id, a URL, or a text that a chunk has.",
    required=True,
)
@search_options(*(name for name in SEARCH_OPTIONS if name != "receipt"))
@option(
    "--snapshot before FILE",
    "A snapshot from before (chunkproof snapshot): former texts and vectors are tried too.",
    exists=True,
)
@option(
    "--fix FILE",
    "Write down what would bring the chunk back: .json for Qdrant's batch API, .jsonl for chunkproof load.",
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
    request = {"query_text": text} | pop_search(given)
    options = parse_options(**given)
    WHY.check(outputs)
    if fix is not None:
        check_outputs((fix,), (".json", ".jsonl"))
    request = name_collection(request, options)
    snapshot = Snapshot(before) if before else None
    with (
        open_services(options) as services,
        name_flags({**SEARCH_FLAGS, "expected": "--expect"}),
        show_warnings_once(),
        progress_bar("Trying changes", None) as done,
    ):
        question = Question(request, expected, snapshot, options_of_store(options), on_step=lambda _step: done(1))
        found = Explainer(local_backend(services)).explain(question)
    report = found.report
    WHY.write(report, outputs)
    if fix is not None:
        _write_fix(found.fix, fix)
    print_result(report, WHY.print, as_json=options.json)
    sys.exit(0 if report.verdict.found else FAILED)


def _write_fix(fix: Fix | None, file: Path) -> None:
    if fix is None or fix.refused:
        reason = fix.refused if fix else "the change is not one of stored points"
        print_note(f"{file} is not written: {reason}")
    elif file.suffix == ".jsonl" and not fix.chunks:
        print_note(f"{file} is not written: chunkproof load would change the form of the payload; name a .json file")
    elif file.suffix == ".jsonl":
        write_file(file, "".join(json.dumps(chunk, ensure_ascii=False) + "\n" for chunk in fix.chunks))
    else:
        write_file(file, json.dumps({"operations": fix.operations}, ensure_ascii=False) + "\n")
