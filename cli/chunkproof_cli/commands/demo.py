"""`chunkproof demo`."""

import os
import shlex
import sys
import unicodedata
from importlib.resources import as_file
from itertools import count
from pathlib import Path
from shutil import which
from tempfile import mkdtemp

import click

from chunkproof.base.files import write_file
from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.proof.backend import LocalBackend
from chunkproof.service.terminal import Connection
from chunkproof.stores.store_port import Point
from chunkproof.suite.cases import assign_collection
from chunkproof.suite.runner import RunPlan, run_suite
from chunkproof.suite.suite_file import SuiteSource, read_source
from chunkproof.suite.suite_report import SuiteReport
from chunkproof_cli.commands.load import load_chunks
from chunkproof_cli.commands.search import print_results
from chunkproof_cli.commands.validate import print_validation
from chunkproof_cli.connections import connect
from chunkproof_cli.exits import discard_stdout
from chunkproof_cli.loading import ChunkRecord, write_chunks
from chunkproof_cli.local.corpus import sample_chunks, sample_suite
from chunkproof_cli.options import Options, data_option, option, parse_options, reject_api
from chunkproof_cli.output import print_line, progress_bar, safe_text, show_warnings_once, stdout_console
from chunkproof_cli.reports.outputs import SUITE
from chunkproof_cli.suites.suite_runs import make_diagnoser

COLLECTION = "handbook"
QUESTIONS = (
    "Why does an arm that holds up a load always sag a little?",
    "How many neighbours should each node of the graph have?",
)
STEP_MS = 60_000
EXAMPLES = """\b
Examples:
  chunkproof demo
  chunkproof demo --open
  chunkproof demo --export chunks.jsonl --export-suite suite.yaml
"""


@click.command(epilog=EXAMPLES)
@data_option("; a new temporary folder by default")
@option("--export FILE", "Only write the sample handbook to FILE as chunks.jsonl.")
@option("--export-suite FILE", "Only write the sample suite to FILE as YAML.")
@option("--open open_console", "Only load the handbook, and open it in the console.")
@option("--port", "Port of the console.", 8080, type=click.IntRange(0, 65535))
@reject_api("the demo always uses the embedded store")
def demo(data: Path | None, export: Path | None, export_suite: Path | None, open_console: bool, port: int) -> None:
    """Load a sample handbook, search it, validate a good and a corrupted chunk, and run a suite.

    The demo always uses an embedded store in a folder of its own and the local model, whatever is configured.
    With --open, the browser takes the place of the searches and the suite. Exit 1 when the suite fails.
    """
    if export or export_suite:
        _export(export, export_suite)
        return
    folder = data or Path(mkdtemp(prefix="chunkproof-demo-"))
    options = parse_options(COLLECTION, folder, as_json=False)
    settings = Settings.from_env({}).model_copy(update={"collection": COLLECTION})
    with connect(options, settings) as connection:
        if not open_console:
            sys.exit(_Demo(options, connection).run().verdict.exit_code)
        # And with them the server, which the demo does without.
        from chunkproof_cli.commands.serve import open_listener, run_server
        from chunkproof_cli.local.console import build_console

        _Demo(options, connection).load()
        if sys.stdout.isatty():
            discard_stdout()
        listener, console = open_listener("127.0.0.1", port), build_console(folder / "judged.yaml", folder)
        run_server(connection, "127.0.0.1", listener, console, open_browser=True)


def _export(chunks: Path | None, suite: Path | None) -> None:
    for file, flag in ((chunks, "--export"), (suite, "--export-suite")):
        if file and file.is_file():
            raise click.BadParameter(f"{file} exists already; name a new file", param_hint=flag)
    if chunks:
        write_chunks(chunks, sample_chunks())
    if suite:
        write_file(suite, sample_suite().read_bytes().decode())


class _Demo:
    def __init__(self, options: Options, connection: Connection) -> None:
        self._options = options
        self._connection = connection
        self._backend = LocalBackend(connection.services, lambda: Deadline(STEP_MS))
        self._records = [ChunkRecord.parse(chunk) for chunk in sample_chunks()]
        self._numbers = count(1)

    def run(self) -> SuiteReport:
        with show_warnings_once():
            self.load()
            for question in QUESTIONS:
                self._search(question)
            self._validate()
            report = self._run_suite()
        self._print_next_commands()
        return report

    def load(self) -> None:
        self._print_step("Load the sample handbook")
        load_chunks(self._records, len(self._records), COLLECTION, self._connection)
        documents = len({record.document_id for record in self._records})
        print_line(
            f"{len(self._records)} chunks of {documents} documents, embedded by "
            f"{self._connection.embedder.model}, are in collection {COLLECTION} of {self._connection.store.host}"
        )

    def _search(self, question: str) -> None:
        self._print_step(f"Search: {question}")
        print_results(self._backend.search({"query_text": question, "collection": COLLECTION, "top_k": 3}))

    def _validate(self) -> None:
        # The one chunk with a decomposed accent: NFC normalization changes it, and it looks the same.
        record = next(r for r in self._records if unicodedata.normalize("NFC", r.text) != r.text)
        self._print_step("Validate a chunk against its original")
        self._print_validation(record)

        self._print_step("Validate it again after its stored text was silently NFC-normalized")
        store, services, deadline = self._connection.store, self._connection.services, Deadline(STEP_MS)
        point = services.collection(COLLECTION, deadline).find_one(record.chunk_id)
        good = store.fetch(COLLECTION, [point.id], deadline, with_vector="")[0]
        changed = {**good.payload, "text": unicodedata.normalize("NFC", record.text)}
        store.upsert(COLLECTION, [Point(good.id, changed, vector=good.vector)], "", deadline)
        try:
            self._print_validation(record)
        finally:
            store.upsert(COLLECTION, [good], "", Deadline(STEP_MS))
        print_line("(The chunk has its original text again.)")

    def _print_validation(self, record: ChunkRecord) -> None:
        request = {"chunk_id": record.chunk_id, "collection": COLLECTION, "original_text": record.text}
        print_validation(self._backend.validate(request))

    def _run_suite(self) -> SuiteReport:
        with as_file(sample_suite()) as file:
            suite = read_source(SuiteSource(file)).suite
        self._print_step(f"Run the sample suite twice: {len(suite.cases)} questions and their expected results")
        cases = assign_collection(suite.cases, COLLECTION)
        plan = RunPlan(suite, "the sample suite", cases, repeat=2)
        diagnoser = make_diagnoser(self._backend, self._options)
        with progress_bar("Searching", len(suite.cases)) as advance:
            report = run_suite(
                plan, self._backend, on_result=lambda _: advance(1), diagnoser=diagnoser
            ).without_latency()
        SUITE.print(report)
        return report

    def _print_next_commands(self) -> None:
        where = f"--collection {COLLECTION} --data {shlex.quote(str(self._options.data))}"
        _print_heading("Try next")
        print_line(f"The demo's data is in {self._options.data}; delete the folder when you are done.")
        program = "chunkproof" if which("chunkproof") else os.path.relpath(sys.argv[0])
        for command in (
            f'search "what drains a robot battery" {where}',
            f"validate {self._records[0].chunk_id} {where}",
            f"doctor {where}",
        ):
            print_line(f"  {program} {command}")

    def _print_step(self, text: str) -> None:
        _print_heading(f"{next(self._numbers)}. {text}")


def _print_heading(text: str) -> None:
    print_line()
    stdout_console().rule(safe_text(text, "bold"), align="left")
