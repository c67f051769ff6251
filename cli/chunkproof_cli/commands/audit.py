"""`chunkproof audit`."""

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click

from chunkproof.audit.audit_report import AuditReport
from chunkproof.audit.audit_run import FINDINGS_FILE, Audit
from chunkproof.audit.findings import FAILING
from chunkproof.audit.ledger import AuditPlan, Ledger, Progress, prepare
from chunkproof.audit.manifest_file import (
    find_manifest,
    hash_manifest,
    manifest_name,
    open_manifest,
    size_in_megabytes,
)
from chunkproof.audit.source_coverage import SourceCoverage
from chunkproof.base.errors import ChunkproofError, InvalidParameterError, NotConfiguredError
from chunkproof.base.files import make_private_folder, private_files
from chunkproof.collection.services import Services
from chunkproof.proof.near_text import RepeatedResults
from chunkproof_cli.aws.jobs import audit_in_cloud
from chunkproof_cli.commands.audit_options import (
    NEAR_DUPLICATE,
    OptionalValues,
    check_resume,
    clear_folder,
    default_folder,
    lock_state,
    read_count,
    read_kinds,
    read_similarity,
)
from chunkproof_cli.connections import open_services
from chunkproof_cli.exits import COULD_NOT_JUDGE, FAILED
from chunkproof_cli.options import (
    Options,
    common_options,
    embedder_option,
    explicit_collection,
    option,
    output_option,
    parse_options,
    reject_api,
    reject_embedder,
    sign_option,
)
from chunkproof_cli.output import mask_secrets, print_note, print_result, progress_bar
from chunkproof_cli.reports.outputs import AUDIT

OPTIONS = (
    "partial",
    "sample",
    "vectors",
    "match_by",
    "near_duplicates",
    "queries",
    "sources",
    "min_coverage",
    "resume",
    "restart",
    "state",
)
EXAMPLES = """\b
Examples:
  chunkproof manifest chunks.jsonl -o manifest.jsonl
  chunkproof audit manifest.jsonl --collection handbook
  chunkproof audit manifest.jsonl --vectors=200 -o audit.html -o findings.jsonl
  chunkproof audit manifest.jsonl --sample 1000 --fail-on mismatch,missing
  chunkproof audit manifest.jsonl --queries suite.yaml --near-duplicates
  chunkproof audit manifest.jsonl --sources docs/ -o coverage.html
  chunkproof audit - --collection handbook < manifest.jsonl
  chunkproof audit manifest.jsonl.gz --stack chunkproof-prod
"""


@click.command(cls=OptionalValues, epilog=EXAMPLES)
@click.argument("manifest")
@output_option(
    "Write a report: .json, .jsonl (all findings), .xml (JUnit), .ctrf.json (CTRF), .sarif, .md, .txt or .html."
)
@sign_option
@option("--partial", "The manifest lists only some of the chunks: read only those, by id.")
@option("--sample N", "Audit N chunks, drawn at random.")
@option(
    "--vectors [=N]",
    "Embed the stored text of N chunks (or all) again and compare with the stored vector.",
    type=read_count,
    flag_value="all",
    is_flag=False,
)
@option(
    "--match match_by",
    "How to find a chunk whose id is not stored: by its text under another id, or not at all.",
    "text",
    type=click.Choice(["text", "id"]),
)
@option(
    "--near-duplicates [=SHARE]",
    f"Also list stored texts that have this share of their word sequences in common; {NEAR_DUPLICATE} by default.",
    type=read_similarity,
    flag_value=str(NEAR_DUPLICATE),
    is_flag=False,
)
@option("--queries SUITE", "Search for the queries of a suite, and report how much of the results repeated texts take.")
@option(
    "--sources FOLDER",
    "Locate the chunks in these documents (text, Markdown, HTML, PDF), and report what is in no chunk.",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
@option("--min-coverage PERCENT", "With --sources: exit 1 if less of the documents is in chunks.", 99.0)
@option(
    "--stack NAME", "Audit in the cloud, with the state machine of a deployed stack; MANIFEST may be s3://BUCKET/KEY."
)
@option("--resume", "Resume an interrupted audit.")
@option("--restart", "Discard an interrupted audit and start again.")
@option(
    "--state DIR",
    "Folder for the state of the audit while it runs; by default beside MANIFEST, named after the collection.",
)
@option(
    "--fail-on KIND,…",
    "Exit 1 only for findings of these kinds.",
    ",".join(kind.value for kind in FAILING),
    type=read_kinds,
    show_default="any fault but near_duplicate",
)
@common_options
@embedder_option
@reject_api("an audit reads the collection itself; set QDRANT_URL")
def audit(manifest: str, outputs: tuple[Path, ...], fail_on: tuple[str, ...], stack: str | None, **rest: Any) -> None:
    """Compare every chunk of MANIFEST with what is stored, byte for byte, and list what else is stored.

    Each chunk is a match, mismatch, missing, duplicate, duplicate_text, metadata_mismatch or unverifiable; stored
    points that are not in the manifest are orphans. A chunk whose id is not stored is looked for by its text, so
    collections with random ids can be audited. Exit 1 when anything is wrong.

    MANIFEST may be - for standard input. After Ctrl-C, a full disk, or when the server stops responding, --resume
    goes on, and reads the collection again.
    """
    AUDIT.check(outputs, (".jsonl",))
    options = {name: rest.pop(name) for name in OPTIONS}
    given = parse_options(**rest)
    if stack is None:
        report = _audit_here(find_manifest(manifest), options, given, outputs)
    else:
        _check_for_cloud(options)
        reject_embedder(given, "--stack")
        report = _audit_in_cloud(stack, manifest, given, outputs, is_partial=options["partial"])
    sys.exit(_choose_exit_code(report, fail_on))


def _audit_here(manifest: Path, options: dict[str, Any], given: Options, outputs: tuple[Path, ...]) -> AuditReport:
    if options["resume"] and options["restart"]:
        raise click.UsageError("Give --resume or --restart, not both.")
    plan = _make_plan(options)
    count_repeated = _prepare_queries(options["queries"]) if options["queries"] else None
    measure_coverage = _prepare_sources(options["sources"]) if options["sources"] else None
    with open_services(given) as services:
        collection = given.collection or services.settings.collection
        folder = options["state"] or default_folder(manifest, services, collection)
        with lock_state(folder, outputs):
            resumes = check_resume(folder, options["resume"], options["restart"])
            with private_files():
                report = run_audit(manifest, folder, plan, services=services, collection=collection, resume=resumes)
            if count_repeated:
                report = report.model_copy(update={"queries": count_repeated(services, collection)})
            if measure_coverage:
                found = measure_coverage(services, collection, options["min_coverage"] / 100)
                report = report.model_copy(update={"source_coverage": found})
            try:
                _deliver(report, outputs, folder / FINDINGS_FILE, given)
            except BrokenPipeError:
                clear_folder(folder)
                raise
            except OSError:
                print_note("The audit is done, but its report could not be written: --resume writes it.")
                raise
            clear_folder(folder)
    return report


def _prepare_queries(file: Path) -> Callable[[Services, str], RepeatedResults]:
    """Read the suite before the audit starts; return what searches for its queries."""
    # An audit without --queries needs none of these.
    from chunkproof.suite.suite_file import SuiteSource, read_source
    from chunkproof_cli.suites.suite_runs import count_repeated_results

    return partial(count_repeated_results, read_source(SuiteSource(file)).suite)


def _prepare_sources(path: Path) -> Callable[[Services, str, float], SourceCoverage]:
    """Look at the folder before the audit starts; return what locates the chunks in its documents."""
    # An audit without --sources needs none of these.
    from chunkproof_cli.manifest_sources import Folder, locate_chunks, read_texts

    folder = Folder(path)
    folder.files()

    def measure(services: Services, collection: str, least: float) -> SourceCoverage:
        with read_texts(services, collection) as texts:
            return locate_chunks(texts, str(path), folder.read(), folder.unread, least)[1]

    return measure


def _choose_exit_code(report: AuditReport, fail_on: tuple[str, ...]) -> int:
    coverage = report.source_coverage
    if report.count(fail_on) or (coverage and not coverage.is_enough):
        return FAILED
    return COULD_NOT_JUDGE if coverage and coverage.unread else 0


def _make_plan(options: dict[str, Any]) -> AuditPlan:
    given = {name: options[name] for name in ("sample", "vectors", "match_by", "near_duplicates")}
    plan = AuditPlan(by_ids=options["partial"], **given)
    if plan.is_by_ids and plan.near_duplicates is not None:
        raise click.UsageError("--near-duplicates reads the whole collection: leave --partial and --sample out.")
    return plan


def _audit_in_cloud(
    stack: str, manifest: str, given: Options, outputs: tuple[Path, ...], *, is_partial: bool
) -> AuditReport:
    if not manifest.startswith("s3://") and not find_manifest(manifest).is_file():
        raise InvalidParameterError(f"With --stack, MANIFEST must be a file or s3://BUCKET/KEY, not {manifest}")
    with tempfile.TemporaryDirectory() as folder:
        report = audit_in_cloud(stack, manifest, explicit_collection(given), Path(folder), is_partial=is_partial)
        _deliver(report, outputs, Path(folder) / FINDINGS_FILE, given)
    return report


def _deliver(report: AuditReport, outputs: tuple[Path, ...], findings: Path, given: Options) -> None:
    AUDIT.write(report, outputs, ready={".jsonl": findings})
    print_result(report, AUDIT.print, as_json=given.json)
    sys.stdout.flush()


def _check_for_cloud(options: dict[str, Any]) -> None:
    given = {**options, "partial": None, "match_by": None, "min_coverage": None}
    if unfit := [f"--{name.replace('_', '-')}" for name, value in given.items() if value not in (None, False)]:
        raise click.UsageError(
            f"With --stack, {', '.join(unfit)} cannot be given: it audits all chunks of the manifest."
        )


def run_audit(
    manifest: Path, folder: Path, plan: AuditPlan, *, services: Services, collection: str, resume: bool = False
) -> AuditReport:
    """Audit with a progress bar; when it stops early, say how to resume."""
    with ExitStack() as bars:
        bar = _Bar(bars)
        audit = Audit(folder, services, collection, plan, bar)
        try:
            audit.check()
            ledger = audit.resume(hash_manifest(manifest)) if resume else audit.start(_prepare(manifest, folder))
        except BaseException:
            if not resume:
                clear_folder(folder)  # there is nothing to resume yet
            raise
        try:
            return audit.run(ledger)
        except (KeyboardInterrupt, ChunkproofError, OSError) as error:
            bars.close()
            if isinstance(error, NotConfiguredError):
                clear_folder(folder)  # another setting makes it another audit
            elif not isinstance(error, InvalidParameterError):
                print_note(
                    f"Stopped after {bar.compared:,} of {ledger.manifest.chunks:,} chunks; continue with --resume."
                )
            if isinstance(error, OSError) and not isinstance(error, ChunkproofError):  # of the state on disk
                raise OSError(error.errno, error.strerror, error.filename or str(folder)) from None
            raise


def _prepare(manifest: Path, folder: Path) -> Ledger:
    make_private_folder(folder)
    size = size_in_megabytes(manifest)
    try:
        with open_manifest(manifest) as lines, progress_bar("Sorting (MB)", size) as done:
            return prepare(lines, mask_secrets(manifest_name(manifest)), folder, lambda count: done(count / 1e6))
    except OSError as error:
        if error.filename is not None:
            raise
        print_note("The manifest could not be sorted; --state names a folder on another disk.")
        raise OSError(error.errno, error.strerror, str(folder)) from None


class _Bar:
    """Shows the progress of an audit; `compared` is the number of chunks so far."""

    def __init__(self, bars: ExitStack) -> None:
        self._bars = bars
        self._shown: dict[str, tuple[Any, int]] = {}
        self.compared = 0

    def __call__(self, state: Progress) -> None:
        spec, chunks = state.spec, state.spec.manifest.chunks
        self.compared = state.compared
        self._advance("Comparing", state.compared, spec.audited)
        if state.phase == "vectors" and spec.vectors is not None:
            self._advance("Embedding", state.vectors_checked, min(spec.vectors or chunks, chunks))

    def _advance(self, title: str, now: int, total: int) -> None:
        if title not in self._shown:
            self._bars.close()
            self._shown[title] = (self._bars.enter_context(progress_bar(title, total)), 0)
        bar, before = self._shown[title]
        bar(now - before)
        self._shown[title] = (bar, now)
