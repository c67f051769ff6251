"""`chunkproof audit`."""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from chunkproof.audit.findings import FAULTS
from chunkproof.audit.prepare import Prepared, prepare
from chunkproof.audit.report import AuditReport
from chunkproof.audit.run import Audit, Plan
from chunkproof.audit.state import FILE, LOGS, Progress, saved
from chunkproof.errors import ChunkproofError, InvalidParameterError
from chunkproof.retrieval.services import Services
from chunkproof_cli.aws.audits import audit_in_cloud
from chunkproof_cli.commands.audit_options import Count, Kinds, OptionalCount
from chunkproof_cli.connections import open_services
from chunkproof_cli.exits import FAILED
from chunkproof_cli.files.manifests import fingerprint, manifest_lines, megabytes
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

# In the order in which they are removed: the state last, so that the folder is known as an audit's until then.
OWN_FILES = (
    *(f"{name}.log" for name in LOGS),
    "sample.sorted",
    "vectors.sorted",
    "findings.jsonl",
    f"{FILE}.new",
    "manifest.sorted",
    FILE,
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
@click.option(
    "--partial", is_flag=True, help="The manifest lists only some of the chunks: read those, by id."
)
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
    help="Audit in the cloud, by the state machine of a deployed stack; MANIFEST may be s3://BUCKET/KEY.",
)
@click.option("--resume", is_flag=True, help="Go on with an interrupted audit.")
@click.option("--restart", is_flag=True, help="Start anew, whatever an interrupted audit left.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for the state of the audit while it runs; MANIFEST.audit by default.",
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
def audit(
    manifest: str, outputs: tuple[Path, ...], fail_on: tuple[str, ...], stack: str | None, **rest: Any
) -> None:
    """Compare every chunk of MANIFEST with what is stored, byte for byte, and say what else is stored.

    Each chunk is a match, mismatch, missing, duplicate, metadata_mismatch or unverifiable; stored points that
    are not in the manifest are orphans. Exit 1 when anything is wrong.

    Ctrl-C, or a server that stops answering, leaves a state that --resume goes on with.
    """
    check_outputs(outputs, EXTENSIONS)
    options = {
        name: rest.pop(name) for name in ("partial", "sample", "vectors", "resume", "restart", "state")
    }
    if not Path(manifest).is_file() and not (stack and manifest.startswith("s3://")):
        raise InvalidParameterError(f"{manifest}: no such file")
    given = parse_options(**rest)
    with tempfile.TemporaryDirectory() as own:
        if stack is None:
            folder = options["state"] or Path(f"{manifest}.audit")
            _check_folder(folder, outputs)
            report = _here(Path(manifest), folder, options, given)
        else:
            _check_for_cloud(options)
            folder = Path(own)
            report = audit_in_cloud(stack, manifest, explicit_collection(given), folder)
        try:
            write_reports(report, outputs, folder / "findings.jsonl")
        except OSError:
            if stack is None:
                print_note("The audit is done, its report is not written: --resume writes it.")
            raise
        clear(folder)
    if given.json:
        print_json(report)
    else:
        print_report(report)
    sys.exit(FAILED if report.count(fail_on) else 0)


def _here(manifest: Path, folder: Path, options: dict[str, Any], given: Options) -> AuditReport:
    plan = Plan(options["partial"], options["sample"], options["vectors"])
    resumes = _resumes(folder, options["resume"], options["restart"])
    with open_services(given) as services:
        collection = given.collection or services.settings.collection
        return run_audit(manifest, folder, plan, services=services, collection=collection, resume=resumes)


def _check_for_cloud(options: dict[str, Any]) -> None:
    if unfit := [f"--{name}" for name, value in options.items() if value not in (None, False)]:
        raise click.UsageError(
            f"With --stack, {', '.join(unfit)} cannot be given: all chunks are read by their ids."
        )


def run_audit(
    manifest: Path, folder: Path, plan: Plan, *, services: Services, collection: str, resume: bool = False
) -> AuditReport:
    """Audit with a bar for the eye; what stops it says how to go on."""
    with ExitStack() as bars:
        show = _Bar(bars)
        audit = Audit(folder, services, collection, plan, show)
        audit.check()
        if resume:
            prepared, state = audit.resume(fingerprint(manifest))
        else:
            prepared = _prepared(manifest, folder)
            state = audit.begin(prepared)
        try:
            return audit.go_on(prepared, state, manifest.name)
        except (KeyboardInterrupt, ChunkproofError):
            bars.close()
            print_note(f"Stopped after {show.done:,} of {prepared.chunks:,} chunks; go on with --resume.")
            raise


def _prepared(manifest: Path, folder: Path) -> Prepared:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameterError(f"--state {folder}: {error.strerror}") from None
    try:
        with manifest_lines(manifest) as lines, progress_bar("Sorting (MB)", megabytes(manifest)) as done:
            return prepare(lines, manifest.name, folder, lambda count: done(count / 1e6))
    except BaseException:
        clear(folder)  # nothing to go on with
        raise


def _check_folder(folder: Path, outputs: tuple[Path, ...]) -> None:
    """The folder is emptied in the end: nothing of anybody else's may be in it, nor be written to it."""
    found = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    if others := sorted(found if found.isdisjoint((FILE, "manifest.sorted")) else found - set(OWN_FILES)):
        raise InvalidParameterError(
            f"{folder} holds other files ({others[0]}): name a folder of its own with --state"
        )
    if inside := [file for file in outputs if file.resolve().parent == folder.resolve()]:
        raise InvalidParameterError(
            f"{inside[0]}: {folder} is for the state of the audit; write it elsewhere"
        )


def clear(folder: Path) -> None:
    """Remove what an audit keeps in its folder, and the folder when nothing else is in it."""
    for name in OWN_FILES:
        (folder / name).unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _resumes(folder: Path, resume: bool, restart: bool) -> bool:
    """Whether to go on with what is in the folder; an interrupted audit is never overwritten unasked."""
    if resume and restart:
        raise click.UsageError("Give --resume or --restart, not both.")
    if restart:
        clear(folder)
        return False
    left = saved(folder)
    if left is None:
        if resume:
            print_note("There is no interrupted audit; this one starts at the beginning.")
        return False
    if not resume:
        raise InvalidParameterError(
            f"{folder} holds an interrupted audit ({left.seen:,} of {left.job.chunks:,} chunks): "
            "go on with --resume, or start anew with --restart"
        )
    return True


class _Bar:
    """Shows how far an audit is, and knows it when asked."""

    def __init__(self, bars: ExitStack) -> None:
        self._bars = bars
        self._shown: dict[str, tuple[Any, int]] = {}
        self.done = 0

    def __call__(self, state: Progress) -> None:
        job = state.job
        self.done = state.seen
        self._advance("Comparing", state.seen, min(job.sample or job.chunks, job.chunks))
        if state.phase == "vectors" and job.vectors is not None:
            self._advance("Embedding", state.checked, min(job.vectors or job.chunks, job.chunks))

    def _advance(self, what: str, now: int, total: int) -> None:
        if what not in self._shown:
            self._bars.close()
            self._shown[what] = (self._bars.enter_context(progress_bar(what, total)), 0)
        bar, before = self._shown[what]
        bar(now - before)
        self._shown[what] = (bar, now)
