"""`chunkproof suite run`."""

import logging
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import click

from chunkproof.errors import InvalidParameterError
from chunkproof.files import write_new_file
from chunkproof.retrieval.backend import LocalBackend
from chunkproof.settings import Settings
from chunkproof.suite.cases import assign_collection
from chunkproof.suite.files.read import SuiteFile, read_source
from chunkproof.suite.limits import LATENCY_IDS, CriteriaLimits
from chunkproof.suite.outcome import TestCaseResult
from chunkproof.suite.report import SuiteReport
from chunkproof.suite.run import SERVER_JOBS, InterruptedRun, RunPlan, run_suite
from chunkproof_cli.aws.suites import run_in_cloud
from chunkproof_cli.commands.suite_source import choose_collection, pop_source, source_options
from chunkproof_cli.files.objects import FileOrObject, source_name
from chunkproof_cli.interrupts import Interrupts, handle_interrupts
from chunkproof_cli.options import (
    Options,
    api_option,
    common_options,
    embedder_option,
    output_option,
    parse_options,
    reject_embedder,
    tolerate_option,
)
from chunkproof_cli.output import CountingFilter, print_json, print_line, print_note, progress_bar, show_warnings_once
from chunkproof_cli.reports.outputs import check_outputs
from chunkproof_cli.reports.suite import FORMATS, write_reports
from chunkproof_cli.reports.suite.terminal import print_report
from chunkproof_cli.retrievers.options import (
    Choice,
    adapt_plan,
    choose_retrievers,
    has_store,
    name_baseline,
    open_choice,
    retriever_options,
)
from chunkproof_cli.suites.blame import add_blame
from chunkproof_cli.suites.compare import Tolerance, check_baseline, compare
from chunkproof_cli.suites.compare_command import comparison_options, pop_comparison, run_comparison
from chunkproof_cli.suites.diagnose import make_diagnoser
from chunkproof_cli.suites.select import NothingFailingError, Selection, load_report, resume

SHOWN_FINDINGS = 5
INTERRUPTED = 130
# Options that only a run in this process supports.
HERE_ONLY = {
    "names": "--filter",
    "tags": "--tag",
    "failing": "--failing",
    "resume": "--resume",
    "repeat": "--repeat",
    "exact": "--exact",
    "jobs": "--jobs",
    "blame": "--blame",
    "snapshot": "--snapshot",
    "retrievers": "--retriever",
    "mappings": "--retriever-map",
}
TRANSPORT = "chunkproof.clients.transport"

EXAMPLES = """\b
Examples:
  chunkproof suite run suite.yaml --collection handbook -o report.json -o report.md -o junit.xml
  chunkproof suite run suite.yaml --tag smoke --repeat 2
  chunkproof suite run suite.yaml --failing report.json
  chunkproof suite run suite.yaml --baseline main.json -o report.md
  chunkproof suite run suite.yaml --baseline main.json --tolerate 2
  chunkproof suite run suite.yaml --baseline main.json --blame --snapshot before.snapshot -o report.md
  chunkproof suite run suite.yaml --limit SC-001=250 --limit SC-004=90
  chunkproof suite run beir/scifact --collection scifact --exact
  chunkproof suite run topics.txt --qrels qrels.txt -k 100
  chunkproof suite run suite.yaml --stack chunkproof-prod -o report.html
  chunkproof suite run suite.yaml --compare configs.yaml --max-latency 200 -o compared.html
  chunkproof suite run suite.yaml --retriever my_rag:search --collection handbook
  chunkproof suite run suite.yaml --retriever http://localhost:8080/query --retriever-map mapping.yaml
  chunkproof suite run suite.yaml --retriever old.run --retriever my_rag:search -o report.html
"""


class LimitType(click.ParamType[tuple[str, float]]):
    """`ID=VALUE`, a limit of a criterion."""

    name = "limit"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> tuple[str, float]:
        """Return the id and the value, checked as in a suite."""
        key, _, figure = str(value).partition("=")
        if key not in CriteriaLimits.ids():
            self.fail(f"{key} is not a criterion: name one of {', '.join(CriteriaLimits.ids())}")
        try:
            CriteriaLimits().replace({key: float(figure)})
        except ValueError:
            unit = "milliseconds above 0, such as 250" if key in LATENCY_IDS else "a percentage, such as 90"
            self.fail(f"{value} is not a limit: {key} takes {unit}")
        return key, float(figure)


@click.command(epilog=EXAMPLES)
@source_options
@output_option("Write the report: .json (canonical), .html, .txt, .md or .xml (JUnit).")
@click.option(
    "--filter",
    "names",
    multiple=True,
    metavar="TEXT",
    help="Only cases with this text in their name; * and ? are wildcards.",
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only cases with this tag, or another --tag.")
@click.option(
    "--failing",
    type=FileOrObject(),
    metavar="REPORT",
    help="Only cases that did not pass in this report.",
)
@click.option(
    "--resume",
    type=FileOrObject(),
    metavar="REPORT",
    help="Continue this interrupted run; its verdicts are kept.",
)
@click.option(
    "--baseline",
    type=FileOrObject(),
    metavar="REPORT",
    help="Compare with this report: exit 1 if a case newly fails; what failed there already does not count.",
)
@tolerate_option
@click.option(
    "--blame",
    is_flag=True,
    help="With --baseline: for each newly failing case, find the smallest change that brings its chunk back.",
)
@click.option(
    "--snapshot",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="With --blame: a snapshot from before (chunkproof snapshot), so that former texts and vectors are tried.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of runs, to compare verdicts.",
)
@click.option("--exact", is_flag=True, help="Also search exactly, and report what the index misses.")
@click.option(
    "--ignore-latency",
    is_flag=True,
    help="Do not fail on latency criteria that are not met: for shared machines.",
)
@click.option(
    "--judge-latency",
    is_flag=True,
    help="Judge latency criteria on the embedded store too; by default only on a served or deployed one.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    type=LimitType(),
    metavar="ID=VALUE",
    help="Limit of a criterion in ms or percent, such as SC-001=250 or SC-004=90, instead of the suite's.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help=f"Searches at a time; {SERVER_JOBS} by default, 1 with the embedded store.",
)
@click.option(
    "--stack",
    metavar="NAME",
    help="Run it in AWS, with the state machine of a deployed stack, and fetch the report.",
)
@retriever_options
@comparison_options
@common_options
@embedder_option
@api_option
def run(
    *,
    outputs: tuple[Path, ...],
    ignore_latency: bool,
    judge_latency: bool,
    limits: tuple[tuple[str, float], ...],
    tolerate: Tolerance | None,
    stack: str | None,
    **options: Any,
) -> None:
    """Run the cases of SUITE and judge the success criteria.

    SUITE is a .yaml or .json file (also s3://BUCKET/KEY), a BEIR folder, or TREC topics with --qrels. Exit 1 if a case
    fails or a criterion is not met, 3 if a case could not be judged because a service was unavailable. With --baseline,
    the comparison decides instead: exit 1 if a case newly fails, a criterion is newly not met or a metric fell by more
    than chance. The last line names what decided.
    """
    how = {name: options.pop(name) for name in HERE_ONLY}
    source, baseline = pop_source(options), options.pop("baseline")
    comparison = pop_comparison(options, outputs, source_name(source.path))
    given = parse_options(**options)
    if comparison:
        _check_comparison_options({**how, "baseline": baseline, "stack": stack, "limits": limits, "tolerate": tolerate})
        found = read_source(source)
        cases = Selection(how["names"], how["tags"]).select(found.suite)
        run_comparison(comparison, replace(found, suite=found.suite.model_copy(update={"cases": tuple(cases)})), given)
        return
    check_outputs(outputs, FORMATS)
    if ignore_latency and judge_latency:
        raise click.UsageError("--ignore-latency and --judge-latency contradict each other: give one of them.")
    _check_baseline_options({**how, "api": given.api}, baseline, tolerate)
    if stack:
        _check_cloud_options(how, given)
        reject_embedder(given, "--stack")
    earlier = load_report(baseline) if baseline else None
    found = _set_limits(read_source(source), limits)
    how["tolerate"] = tolerate or 0
    how["judge_latency"] = judge_latency or any(key in LATENCY_IDS for key, _ in limits)
    _print_findings(found)
    if baseline and earlier:
        selected = Selection(how["names"], how["tags"]).select(found.suite)
        check_baseline(found.suite.name, selected, earlier, baseline)
    with nullcontext(Interrupts()) if stack else handle_interrupts() as interrupts:
        try:
            if stack:
                collection = choose_collection(found, given)
                report = run_in_cloud(stack, found.suite, source_name(source.path), collection)
            else:
                report = _run_here(found, source_name(source.path), given, how, outputs, interrupts=interrupts)
        except NothingFailingError as nothing:
            print_json({"message": nothing.message}) if given.json else print_line(nothing.message)
            return
        if ignore_latency:
            report = report.without_latency()
        if baseline and earlier:
            report = compare(report, earlier, baseline, tolerate or 0)
        if how["blame"]:
            report = add_blame(report, given, how["snapshot"])
        write_reports(report, outputs)
    if given.json:
        print_json(report)
    else:
        print_report(report)
    sys.exit(report.verdict.exit_code)


def _set_limits(found: SuiteFile, limits: tuple[tuple[str, float], ...]) -> SuiteFile:
    """Replace limits of the suite by those of the command line."""
    changed = found.suite.limits.replace(dict(limits))
    return replace(found, suite=found.suite.model_copy(update={"limits": changed}))


def _run_here(
    found: SuiteFile,
    source: str,
    given: Options,
    how: dict[str, Any],
    outputs: tuple[Path, ...],
    *,
    interrupts: Interrupts,
) -> SuiteReport:
    selection = Selection(how["names"], how["tags"], how["failing"])
    searched = not how["retrievers"] or has_store(given)
    collection = choose_collection(found, given) if searched else found.suite.collection
    cases = assign_collection(selection.select(found.suite), collection)
    if how["resume"]:
        cases = resume(cases, found.suite, how["resume"])
    plan = RunPlan(
        found.suite,
        source,
        cases,
        jobs=1 if how["retrievers"] else _choose_jobs(how["jobs"], given),
        repeat=how["repeat"],
        latency_target_ms=Settings.from_env().latency_target_ms,
        judge_latency=how["judge_latency"] or not _is_embedded(given),
    )
    try:
        first, *others = choose_retrievers(how["retrievers"], how["mappings"])
        report = _execute(plan, given, how, first, interrupts)
        for choice in others:
            interrupts.release()
            later = _execute(plan, given, how, choice, interrupts)
            report = name_baseline(compare(later, report, Path(str(first.name)), how["tolerate"]), report)
        return report
    except InterruptedRun as stopped:
        _save_interrupted(stopped.report, outputs, how["resume"])
        sys.exit(INTERRUPTED)


def _check_baseline_options(how: dict[str, Any], baseline: Path | None, tolerate: Tolerance | None) -> None:
    if how["blame"] and baseline is None:
        raise click.UsageError("--blame needs --baseline: without one, nothing is newly lost.")
    if how["blame"] and how["api"]:
        raise click.UsageError("--blame needs the store itself: set QDRANT_URL instead of --api.")
    if how["blame"] and how["retrievers"]:
        raise click.UsageError("--blame repeats searches of the collection; it cannot repeat those of a --retriever.")
    if how["snapshot"] and not how["blame"]:
        raise click.UsageError("--snapshot is what --blame compares with: give both.")
    if tolerate is not None and baseline is None and len(how["retrievers"]) < 2:
        raise click.UsageError("--tolerate needs --baseline: without one, there is nothing to be worse than.")
    if baseline and len(how["retrievers"]) > 1:
        raise click.UsageError("Two --retriever are compared with each other: leave --baseline out.")


def _check_cloud_options(how: dict[str, Any], given: Options) -> None:
    """Refuse options that a run in AWS does not support: it runs all cases once, by the index."""
    given_options = {**how, "repeat": how["repeat"] > 1}
    unsupported = [option for name, option in HERE_ONLY.items() if given_options[name]] + ["--api"] * bool(given.api)
    if unsupported:
        raise click.UsageError(f"With --stack, {', '.join(unsupported)} cannot be given: the whole suite is run, once.")


def _check_comparison_options(given: dict[str, Any]) -> None:
    """Refuse options of a single run: a comparison runs each case once under each configuration."""
    options = {**HERE_ONLY, "baseline": "--baseline", "stack": "--stack", "limits": "--limit", "tolerate": "--tolerate"}
    allowed = {"names", "tags"}
    set_ones = {**given, "repeat": given["repeat"] > 1}
    if refused := [option for name, option in options.items() if name not in allowed and set_ones[name]]:
        raise click.UsageError(f"With --compare, {', '.join(refused)} cannot be given.")


def _execute(plan: RunPlan, given: Options, how: dict[str, Any], choice: Choice, interrupts: Interrupts) -> SuiteReport:
    quietly, exact = show_warnings_once(), how["exact"]
    # What a retriever prints must not mix with the report.
    printed = redirect_stdout(sys.stderr) if choice.name else nullcontext()
    opened = open_choice(choice, given, plan.cases)
    with quietly, printed, _report_retries(), opened as backend:
        plan = adapt_plan(plan, backend, how["jobs"], judge_latency=how["judge_latency"])
        exact_search = backend.search_exactly if isinstance(backend, LocalBackend) else None
        if exact and exact_search is None:
            raise click.UsageError(
                "--exact needs the store itself; a stack and a retriever only search in their own way."
            )
        judged = sum(isinstance(case, TestCaseResult) for case in plan.cases)
        with progress_bar("Searching", len(plan.cases) - judged) as done:
            return run_suite(
                plan,
                backend,
                exact_search=exact_search if exact else None,
                on_result=lambda _: done(1),
                diagnoser=make_diagnoser(backend, given, plan.source),
                on_complete=interrupts.hold,
            )


def _is_embedded(given: Options) -> bool:
    return given.api is None and Settings.from_env().qdrant_url is None


def _choose_jobs(wanted: int | None, given: Options) -> int:
    embedded = _is_embedded(given)
    if embedded and (wanted or 1) > 1:
        raise click.BadParameter("the embedded store runs one search at a time", param_hint="--jobs")
    return wanted or (1 if embedded else SERVER_JOBS)


def _print_findings(found: SuiteFile) -> None:
    for finding in found.findings[:SHOWN_FINDINGS]:
        print_note(str(finding))
    if (more := len(found.findings) - SHOWN_FINDINGS) > 0:
        print_note(f"… and {more} more; chunkproof suite lint lists them")


@contextmanager
def _report_retries() -> Iterator[None]:
    """Print how many calls the transport retried during the run."""
    log, retries = logging.getLogger(TRANSPORT), CountingFilter()
    level = log.level
    log.setLevel(logging.INFO)
    log.addFilter(retries)
    try:
        yield
    finally:
        log.removeFilter(retries)
        log.setLevel(level)
        if retries.count:
            print_note(f"{retries.count} failed calls were retried by the transport, each once")


def _save_interrupted(report: SuiteReport, outputs: tuple[Path, ...], resumed: Path | None) -> None:
    """Write the partial report, and print how to resume."""
    chosen = next((file for file in outputs if file.suffix == ".json"), None)
    try:
        if chosen is not None:
            write_reports(report, (chosen,))
        file = chosen or _write_beside_others(report, resumed)
    except OSError as error:
        raise InvalidParameterError(f"{error.filename}: {error.strerror}; name another file with -o") from None
    finished = sum(result.status.is_judged for result in report.result.test_results)
    print_note(f"Interrupted after {finished} of {report.result.total_tests} cases. To resume, add:")
    print_note(f"  --resume {shlex.quote(str(file))}")


def _write_beside_others(report: SuiteReport, resumed: Path | None) -> Path:
    """Write to a new file in the current folder, or to the resumed one: another run may leave its own there."""
    name = re.sub(r"[^\w.-]+", "-", report.suite.name).strip("-.") or "suite"
    for number in count(1):
        file = Path(f"{name}.partial{f'-{number}' if number > 1 else ''}.json")
        if resumed is not None and file.exists() and file.samefile(resumed):
            write_reports(report, (file,))
            break
        with suppress(FileExistsError):
            write_new_file(file, report.canonical_json())
            break
    return file
