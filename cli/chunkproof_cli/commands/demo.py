"""`chunkproof demo`."""

import os
import shlex
import sys
import unicodedata
from importlib.resources import as_file
from pathlib import Path
from shutil import which

import click

from chunkproof.clients.ports import Point
from chunkproof.deadline import Deadline
from chunkproof.models import ChunkValidation, SearchQuery
from chunkproof.retrieval.lookup import find_point
from chunkproof.retrieval.search import search
from chunkproof.retrieval.validate import validate_chunk
from chunkproof.settings import Settings
from chunkproof.suite.cases import assign_collection
from chunkproof.suite.report import SuiteReport
from chunkproof.suite.run import RunPlan, run_suite
from chunkproof_cli.commands.load import load_chunks
from chunkproof_cli.commands.search import print_results
from chunkproof_cli.commands.suite_run import suite_exit_code
from chunkproof_cli.commands.validate import print_validation
from chunkproof_cli.connections import Connection, connect, local_backend
from chunkproof_cli.files.chunks import ChunkRecord, write_chunks
from chunkproof_cli.local.corpus import sample_chunks, sample_suite
from chunkproof_cli.options import Options, parse_options, reject_api
from chunkproof_cli.output import print_line, progress_bar, safe_text, stdout_console
from chunkproof_cli.reports.suite.terminal import print_report
from chunkproof_cli.suites.diagnose import make_diagnoser
from chunkproof_cli.suites.read import Source, read_source

COLLECTION = "handbook"
QUESTIONS = (
    "Why does an arm that holds up a load always sag a little?",
    "How many neighbours should each node of the graph have?",
)
STEP_MS = 60_000


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the embedded store; the user's data folder by default.",
)
@click.option(
    "--export",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Only write the sample handbook to FILE as chunks.jsonl.",
)
@click.option(
    "--export-suite",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Only write the sample suite to FILE as YAML.",
)
@reject_api("the demo is always embedded")
def demo(data: Path | None, export: Path | None, export_suite: Path | None) -> None:
    """Load a sample handbook, search it, validate a good and a corrupted chunk, run a suite of cases.

    Always embedded: a local store, a local model, whatever else is configured. Exit 1 when the suite fails.
    """
    if export or export_suite:
        _export(export, export_suite)
        return
    given = parse_options(COLLECTION, data, as_json=False)
    with connect(given, Settings.from_env({})) as connected:
        records = [ChunkRecord.parse(chunk) for chunk in sample_chunks()]
        _load(records, connected)
        for question in QUESTIONS:
            _search(question, connected)
        _validate(records, connected)
        report = _run_suite(connected, given)
    _next_steps(records[0].chunk_id, data)
    sys.exit(suite_exit_code(report, ignore_latency=True))


def _export(chunks: Path | None, suite: Path | None) -> None:
    for file, option in ((chunks, "--export"), (suite, "--export-suite")):
        if file and file.is_file():
            raise click.BadParameter(f"{file} exists", param_hint=option)
    if chunks:
        write_chunks(chunks, sample_chunks())
    if suite:
        suite.write_bytes(sample_suite().read_bytes())


def _heading(text: str) -> None:
    print_line()
    stdout_console().rule(safe_text(text, "bold"), align="left")


def _load(records: list[ChunkRecord], connected: Connection) -> None:
    documents = len({record.document_id for record in records})
    _heading("1. Load")
    load_chunks(records, len(records), COLLECTION, connected)
    print_line(
        f"{len(records)} chunks of {documents} documents, embedded by {connected.embedder.model}, "
        f"are in collection {COLLECTION} of {connected.store.host}"
    )


def _search(question: str, connected: Connection) -> None:
    _heading(f"2. Search: {question}")
    query = SearchQuery.parse({"query_text": question, "collection": COLLECTION, "top_k": 3})
    print_results(search(query, services=connected.services, deadline=Deadline(STEP_MS)))


def _validate(records: list[ChunkRecord], connected: Connection) -> None:
    # The one chunk with a decomposed accent: a pipeline that normalizes changes it, and nobody sees it.
    record = next(r for r in records if unicodedata.normalize("NFC", r.text) != r.text)
    _heading("3. Validate a chunk against its original")
    _print_validation(record, connected)

    _heading("4. The same after its text was NFC-normalized behind its back")
    store, deadline = connected.store, Deadline(STEP_MS)
    point = find_point(record.chunk_id, COLLECTION, services=connected.services, deadline=deadline)
    good = store.fetch(COLLECTION, [point.id], deadline, with_vector="")[0]
    changed = {**good.payload, "text": unicodedata.normalize("NFC", record.text)}
    store.upsert(COLLECTION, [Point(good.id, changed, vector=good.vector)], "", deadline)
    try:
        _print_validation(record, connected)
    finally:
        store.upsert(COLLECTION, [good], "", Deadline(STEP_MS))
    print_line("(The chunk has its own text again.)")


def _print_validation(record: ChunkRecord, connected: Connection) -> None:
    request = ChunkValidation(chunk_id=record.chunk_id, collection=COLLECTION, original_text=record.text)
    print_validation(validate_chunk(request, services=connected.services, deadline=Deadline(STEP_MS)))


def _run_suite(connected: Connection, given: Options) -> SuiteReport:
    with as_file(sample_suite()) as file:
        suite = read_source(Source(file)).suite
    _heading(f"5. Run the sample suite: {len(suite.cases)} questions and what they must return, twice")
    plan = RunPlan(suite, "the sample suite", assign_collection(suite.cases, COLLECTION), repeat=2)
    with progress_bar("Searching", len(suite.cases)) as done:
        local = local_backend(connected.services)
        looking = make_diagnoser(local, given, plan.source)
        report = run_suite(plan, local, on_result=lambda _: done(1), diagnoser=looking)
    print_report(report)
    return report


def _next_steps(chunk_id: str, data: Path | None) -> None:
    where = f" --data {shlex.quote(str(data))}" if data else ""
    _heading("Try next")
    for line in (
        f'search "what drains a robot battery" --collection {COLLECTION}{where}',
        f"validate {chunk_id} --collection {COLLECTION}{where}",
        f"doctor --collection {COLLECTION}{where}",
    ):
        print_line(f"  {_program()} {line}")


def _program() -> str:
    """The command as it can be typed here: by its path, unless the shell finds it."""
    return "chunkproof" if which("chunkproof") else os.path.relpath(sys.argv[0])
