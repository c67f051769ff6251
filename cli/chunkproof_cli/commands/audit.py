"""`chunkproof audit`."""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from chunkproof.audit.findings import FAULTS
from chunkproof.audit.manifest_files import hash_manifest, open_manifest, size_in_megabytes
from chunkproof.audit.prepare import SORTED_FILE, SortedManifest, prepare
from chunkproof.audit.report import AuditReport
from chunkproof.audit.run import FINDINGS_FILE, Audit, Plan
from chunkproof.audit.state import LOG_NAMES, STATE_FILE, Progress, load_state
from chunkproof.errors import ChunkproofError, InvalidParameterError
from chunkproof.retrieval.services import Services
from chunkproof_cli.aws.audits import audit_in_cloud
from chunkproof_cli.commands.audit_options import Count, Kinds, OptionalCount
from chunkproof_cli.connections import open_services
from chunkproof_cli.exits import FAILED
from chunkproof_cli.options import (
    Options,
    common_options,
    explicit_collection,
    output_option,
    parse_options,
    reject_api,
)
from chunkproof_cli.output import print_json, print_note, progress_bar
from chunkproof_cli.reports.audit import EXTENSIONS, write_reports
from chunkproof_cli.reports.audit.terminal import print_report
from chunkproof_cli.reports.outputs import check_outputs

# In the order in which they are removed: the state last, so that the folder is recognized until then.
OWN_FILES = (
    *(f"{name}.log" for name in LOG_NAMES),
    "sample.sorted",
    "vectors.sorted",
    FINDINGS_FILE,
    f"{STATE_FILE}.new",
    SORTED_FILE,
    STATE_FILE,
)
EXAMPLES = """\b
Examples:
  chunkproof manifest chunks.jsonl -o manifest.jsonl
  chunkproof audit manifest.jsonl --collection handbook
  chunkproof audit manifest.jsonl --vectors=200 -o audit.html -o findings.jsonl
  chunkproof audit manifest.jsonl --sample 1000 --fail-on mismatch,missing
  chunkproof audit manifest.jsonl.gz --stack chunkproof-prod
"""


@click.command(cls=OptionalCount, epilog=EXAMPLES)
@click.argument("manifest")
@output_option("Write a report: .json, .jsonl (all findings), .xml (JUnit), .md, .txt or .html.")
@click.option("--partial", is_flag=True, help="The manifest lists only some of the chunks: read only those, by id.")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Audit N chunks, drawn at random.")
@click.option(
    "--vectors",
    type=Count(),
    is_flag=False,
    flag_value="all",
    metavar="[=N]",
    help="Embed the stored text of N chunks (or all) again and compare with the stored vector.",
)
@click.option(
    "--stack",
    metavar="NAME",
    help="Audit in the cloud, with the state machine of a deployed stack; MANIFEST may be s3://BUCKET/KEY.",
)
@click.option("--resume", is_flag=True, help="Resume an interrupted audit.")
@click.option("--restart", is_flag=True, help="Discard an interrupted audit and start again.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for the state of the audit while it runs; default: MANIFEST.audit.",
)
@click.option(
    "--fail-on",
    type=Kinds(),
    default=tuple(kind.value for kind in FAULTS),
    show_default="any fault",
    metavar="KIND,…",
    help="Exit 1 only for findings of these kinds.",
)
@common_options
@reject_api("an audit reads the collection itself; set QDRANT_URL")
def audit(manifest: str, outputs: tuple[Path, ...], fail_on: tuple[str, ...], stack: str | None, **rest: Any) -> None:
    """Compare every chunk of MANIFEST with what is stored, byte for byte, and list what else is stored.

    Each chunk is a match, mismatch, missing, duplicate, metadata_mismatch or unverifiable; stored points that
    are not in the manifest are orphans. Exit 1 when anything is wrong.

    After Ctrl-C, or when the server stops responding, --resume continues where the audit stopped.
    """
    check_outputs(outputs, EXTENSIONS)
    options = {name: rest.pop(name) for name in ("partial", "sample", "vectors", "resume", "restart", "state")}
    if not Path(manifest).is_file() and not (stack and manifest.startswith("s3://")):
        raise InvalidParameterError(f"{manifest}: no such file")
    given = parse_options(**rest)
    with tempfile.TemporaryDirectory() as own:
        if stack is None:
            folder = options["state"] or Path(f"{manifest}.audit")
            _check_folder(folder, outputs)
            report = _audit_here(Path(manifest), folder, options, given)
        else:
            _check_for_cloud(options)
            folder = Path(own)
            report = audit_in_cloud(stack, manifest, explicit_collection(given), folder)
        try:
            write_reports(report, outputs, folder / FINDINGS_FILE)
        except OSError:
            if stack is None:
                print_note("The audit is done, but its report could not be written: --resume writes it.")
            raise
        clear_folder(folder)
    if given.json:
        print_json(report)
    else:
        print_report(report)
    sys.exit(FAILED if report.count(fail_on) else 0)


def _audit_here(manifest: Path, folder: Path, options: dict[str, Any], given: Options) -> AuditReport:
    plan = Plan(options["partial"], options["sample"], options["vectors"])
    resumes = _check_resume(folder, options["resume"], options["restart"])
    with open_services(given) as services:
        collection = given.collection or services.settings.collection
        return run_audit(manifest, folder, plan, services=services, collection=collection, resume=resumes)


def _check_for_cloud(options: dict[str, Any]) -> None:
    if unfit := [f"--{name}" for name, value in options.items() if value not in (None, False)]:
        raise click.UsageError(
            f"With --stack, {', '.join(unfit)} cannot be given: it audits all chunks of the manifest, by id."
        )


def run_audit(
    manifest: Path, folder: Path, plan: Plan, *, services: Services, collection: str, resume: bool = False
) -> AuditReport:
    """Audit with a progress bar; when it stops early, say how to resume."""
    with ExitStack() as bars:
        bar = _Bar(bars)
        audit = Audit(folder, services, collection, plan, bar)
        audit.check()
        if resume:
            prepared, state = audit.resume(hash_manifest(manifest))
        else:
            prepared = _prepare(manifest, folder)
            state = audit.start(prepared)
        try:
            return audit.run(prepared, state, manifest.name)
        except (KeyboardInterrupt, ChunkproofError):
            bars.close()
            print_note(f"Stopped after {bar.compared:,} of {prepared.chunks:,} chunks; continue with --resume.")
            raise


def _prepare(manifest: Path, folder: Path) -> SortedManifest:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameterError(f"--state {folder}: {error.strerror}") from None
    try:
        size = size_in_megabytes(manifest)
        with open_manifest(manifest) as lines, progress_bar("Sorting (MB)", size) as done:
            return prepare(lines, manifest.name, folder, lambda count: done(count / 1e6))
    except BaseException:
        clear_folder(folder)  # there is nothing to resume yet
        raise


def _check_folder(folder: Path, outputs: tuple[Path, ...]) -> None:
    """Refuse a folder with other files, and reports in it: it is emptied when the audit is done."""
    found = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    if others := sorted(found if found.isdisjoint((STATE_FILE, SORTED_FILE)) else found - set(OWN_FILES)):
        raise InvalidParameterError(
            f"{folder} holds other files ({others[0]}): name a folder for this audit alone with --state"
        )
    if inside := [file for file in outputs if file.resolve().parent == folder.resolve()]:
        raise InvalidParameterError(f"{inside[0]}: {folder} is for the state of the audit; write the report elsewhere")


def clear_folder(folder: Path) -> None:
    """Remove the files of an audit, and the folder if it is empty then."""
    for name in OWN_FILES:
        (folder / name).unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _check_resume(folder: Path, resume: bool, restart: bool) -> bool:
    """Return whether to resume; refuse to overwrite an interrupted audit without --restart."""
    if resume and restart:
        raise click.UsageError("Give --resume or --restart, not both.")
    if restart:
        clear_folder(folder)
        return False
    left = load_state(folder)
    if left is None:
        if resume:
            print_note("There is no interrupted audit to resume; starting a new one.")
        return False
    if not resume:
        raise InvalidParameterError(
            f"{folder} holds an interrupted audit ({left.compared:,} of {left.spec.chunks:,} chunks): "
            "continue it with --resume, or start again with --restart"
        )
    return True


class _Bar:
    """Shows the progress of an audit; `compared` is the number of chunks so far."""

    def __init__(self, bars: ExitStack) -> None:
        self._bars = bars
        self._shown: dict[str, tuple[Any, int]] = {}
        self.compared = 0

    def __call__(self, state: Progress) -> None:
        spec = state.spec
        self.compared = state.compared
        self._advance("Comparing", state.compared, min(spec.sample or spec.chunks, spec.chunks))
        if state.phase == "vectors" and spec.vectors is not None:
            self._advance("Embedding", state.vectors_checked, min(spec.vectors or spec.chunks, spec.chunks))

    def _advance(self, title: str, now: int, total: int) -> None:
        if title not in self._shown:
            self._bars.close()
            self._shown[title] = (self._bars.enter_context(progress_bar(title, total)), 0)
        bar, before = self._shown[title]
        bar(now - before)
        self._shown[title] = (bar, now)
