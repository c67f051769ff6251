"""Run a suite in this process: options of all suite commands, which cases, and what an interrupted run leaves."""

import logging
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Any

import click

from chunkproof.audit.snapshot_file import Snapshot
from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.files import write_new_file
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.proof.backend import Backend, LocalBackend
from chunkproof.proof.near_text import RepeatedResults, count_repeated
from chunkproof.service.terminal import local_backend
from chunkproof.suite.cases import Suite, TestCase, assign_collection
from chunkproof.suite.diagnosis import Blamer, Diagnoser
from chunkproof.suite.judge import CUTOFFS, METRICS
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.runner import SERVER_JOBS, InterruptedRun, RunPlan, run_suite
from chunkproof.suite.suite_file import SuiteFile, SuiteSource
from chunkproof.suite.suite_report import SuiteReport, fingerprint
from chunkproof.why.explainer import Explainer, make_explainer
from chunkproof_cli.connections import open_services, options_of_store
from chunkproof_cli.exits import INTERRUPTED, Interrupts
from chunkproof_cli.options import Options, add_options, explicit_collection, fetch_file, option
from chunkproof_cli.output import mask_secrets, print_note, progress_bar, show_warnings_once
from chunkproof_cli.reports.outputs import SUITE, find_extension
from chunkproof_cli.retrievers.opening import (
    RetrieverBackend,
    RetrieverChoice,
    adapt_plan,
    choose_retrievers,
    has_store,
    name_baseline,
    open_choice,
)
from chunkproof_cli.suites.baseline import compare, load_report

TRANSPORT = "chunkproof.net.transport"


class NothingFailingError(InvalidParameterError):
    """`--failing` selects no case, since all selected cases passed: there is nothing to do, and nothing is wrong."""


@dataclass(frozen=True)
class Selection:
    """Conditions that a case must meet to be run; without any, all cases are."""

    names: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    failing: Path | None = None

    def select(self, suite: Suite) -> list[TestCase]:
        """Return the selected cases in the suite's order; `InvalidParameterError` when there are none."""
        selected = [
            case
            for case in suite.cases
            if (not self.names or any(_matches(case.name, pattern) for pattern in self.names))
            and (not self.tags or set(self.tags) & set(case.tags))
        ]
        if not selected:
            raise InvalidParameterError(f"None of the {len(suite.cases)} cases of {suite.name} is selected")
        return self._select_failing(self.failing, selected, suite) if self.failing else selected

    def _select_failing(self, file: Path, cases: list[TestCase], suite: Suite) -> list[TestCase]:
        results = load_report(file).result.test_results
        if not {result.name for result in results} & {case.name for case in suite.cases}:
            raise InvalidParameterError(f"{file} has no case in common with suite {suite.name}")
        not_passed = {result.name for result in results if result.status is not TestStatus.PASSED}
        failing = [case for case in cases if case.name in not_passed]
        if not failing:
            selected = "the selected cases" if self.names or self.tags else f"the cases of {suite.name}"
            raise NothingFailingError(f"Nothing to run: none of {selected} failed in {file}")
        return failing


def _matches(name: str, pattern: str) -> bool:
    """Match a pattern with `*` and `?`, or else any part of the name; case is ignored."""
    name, pattern = name.casefold(), pattern.casefold()
    return fnmatchcase(name, pattern) if any(mark in pattern for mark in "*?[") else pattern in name


def _resume(cases: Sequence[TestCase], suite: Suite, file: Path) -> list[TestCase]:
    """Return the cases with the verdicts that an interrupted run of the same suite already has."""
    earlier = load_report(file)
    if earlier.suite.fingerprint != fingerprint(suite):
        raise InvalidParameterError(
            f"{file} is a report of another suite, or the cases have changed since: run it without --resume"
        )
    verdicts = {result.name: result for result in earlier.result.test_results if result.status.is_judged}
    for case in cases:
        judged = verdicts.get(case.name, case)
        if case.collection_name not in (None, judged.collection_name):
            raise InvalidParameterError(
                f"{file} searched {judged.collection_name}, not {case.collection_name}: give the same --collection"
            )
    return [verdicts.get(case.name, case) for case in cases]


def run_here(
    found: SuiteFile,
    source: str,
    given: Options,
    how: dict[str, Any],
    outputs: tuple[Path, ...],
    *,
    interrupts: Interrupts,
) -> SuiteReport:
    """Run the selected cases; a second retriever is compared with the first. An interruption ends the process."""
    searched = not how["retrievers"] or has_store(given)
    collection = choose_collection(found, given) if searched else found.suite.collection
    selected = Selection(how["names"], how["tags"], how["failing"]).select(found.suite)
    cases = assign_collection(selected, collection)
    if how["resume"]:
        cases = _resume(cases, found.suite, how["resume"])
    is_embedded = given.api is None and Settings.from_env().qdrant_url is None
    plan = RunPlan(
        found.suite,
        mask_secrets(source),
        cases,
        jobs=1 if how["retrievers"] else how["jobs"] or (1 if is_embedded else SERVER_JOBS),
        repeat=how["repeat"],
        latency_target_ms=Settings.from_env().latency_target_ms,
        judge_latency=how["judge_latency"] or not is_embedded,
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


def _execute(
    plan: RunPlan, given: Options, how: dict[str, Any], choice: RetrieverChoice, interrupts: Interrupts
) -> SuiteReport:
    # What a retriever prints must not mix with the report.
    printed = redirect_stdout(sys.stderr) if choice.name else nullcontext()
    opened = open_choice(choice, given, plan.cases)
    with show_warnings_once(), printed, _report_retries(), opened as backend:
        plan = adapt_plan(plan, backend, how["jobs"], judge_latency=how["judge_latency"])
        exact_search = backend.search_exactly if how["exact"] and isinstance(backend, LocalBackend) else None
        if how["exact"] and exact_search is None:
            raise click.UsageError(
                "--exact needs the store itself; a stack and a retriever only search in their own way."
            )
        judged = sum(isinstance(case, TestCaseResult) for case in plan.cases)
        with progress_bar("Searching", len(plan.cases) - judged) as done:
            return run_suite(
                plan,
                backend,
                exact_search=exact_search,
                on_result=lambda _: done(1),
                diagnoser=make_diagnoser(backend, given),
                on_complete=interrupts.hold,
            )


def make_diagnoser(backend: Backend, given: Options) -> Diagnoser:
    """Return a diagnoser whose suggested commands use the same store or stack; for a retriever, its collection."""
    where = options_of_store(given)
    if isinstance(backend, RetrieverBackend):
        explainer = make_explainer(backend.store) if backend.store is not None else None
        return Diagnoser(explainer, where, retriever=backend.name)
    return Diagnoser(make_explainer(backend), where)


def add_blame(report: SuiteReport, given: Options, snapshot: Path | None) -> SuiteReport:
    """Return the report with what brings each newly lost question back."""
    newly_failing = report.comparison.newly_failing if report.comparison else ()
    with open_services(given) as services, show_warnings_once(), progress_bar("Explaining", len(newly_failing)) as done:
        explainer = Explainer(local_backend(services))
        blamer = Blamer(explainer, Snapshot(snapshot) if snapshot else None, options_of_store(given), done)
        blame = blamer.blame(report.result.test_results, newly_failing)
    return report.model_copy(update={"blame": blame})


def count_repeated_results(suite: Suite, services: Services, collection: str) -> RepeatedResults:
    """Count the repeated texts among the results of every query, in this collection."""
    backend = local_backend(services)

    def search_all() -> Iterator[list[str]]:
        with progress_bar("Searching", len(suite.cases)) as done:
            for case in suite.cases:
                response = backend.search({**case.request(), "collection": collection})
                yield [result.text for result in response.results]
                done(1)

    with show_warnings_once():
        return count_repeated(search_all())


@contextmanager
def _report_retries() -> Iterator[None]:
    """Print how many calls the transport retried during the run."""
    log, counts = logging.getLogger(TRANSPORT), Counter[bool]()
    level = log.level

    def is_shown(record: logging.LogRecord) -> bool:
        counts[record.levelno >= logging.WARNING] += 1
        return record.levelno >= logging.WARNING

    log.setLevel(logging.INFO)
    log.addFilter(is_shown)
    try:
        yield
    finally:
        log.removeFilter(is_shown)
        log.setLevel(level)
        if counts[False]:
            print_note(f"{counts[False]} failed calls were retried by the transport, each once")


def _save_interrupted(report: SuiteReport, outputs: tuple[Path, ...], resumed: Path | None) -> None:
    """Write the partial report, and print how to resume."""
    chosen = next((file for file in outputs if find_extension(file) == ".json"), None)
    try:
        if chosen is not None:
            SUITE.write(report, (chosen,))
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
            SUITE.write(report, (file,))
            break
        with suppress(FileExistsError):
            write_new_file(file, report.canonical_json())
            break
    return file


MEASURES = ("pass rate", *(f"{name}@{k}" for name in METRICS for k in CUTOFFS))

# `pop_source` reads them.
source_options = add_options(
    click.argument("path", metavar="SUITE", type=fetch_file),
    option("--split NAME", "Which qrels of a BEIR folder to use; test by default."),
    option("--qrels FILE", "TREC judgments; SUITE is then the topics file."),
    option("-k --top-k", "Results to search for, in cases that set no top_k.", type=click.IntRange(1)),
)


def pop_source(options: dict[str, Any]) -> SuiteSource:
    """Remove what `source_options` added from the options, and return it."""
    return SuiteSource(options.pop("path"), options.pop("split"), options.pop("qrels"), options.pop("top_k"))


def choose_collection(found: SuiteFile, given: Options) -> str | None:
    """Return the collection of cases that name none: the option's, the suite's, else the setting's.

    None leaves the choice to the backend: the setting of a stack, or the only collection of a store.
    """
    return given.collection or found.suite.collection or explicit_collection(given)


def parse_measure(name: str) -> str:
    """Return the name of a metric, such as ndcg@10, or `pass rate`; refuse any other name."""
    if name not in MEASURES:
        raise click.BadParameter(f"{name} is not a metric: name one of {', '.join(MEASURES)}")
    return name
