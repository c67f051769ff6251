"""Blame of newly failing cases on the command line."""

from pathlib import Path

from chunkproof.audit.snapshot import Snapshot
from chunkproof.runtime.local import local_backend
from chunkproof.suite.blamer import Blamer
from chunkproof.suite.report import SuiteReport
from chunkproof.why.explain import Explainer
from chunkproof_cli.connections import open_services
from chunkproof_cli.options import Options
from chunkproof_cli.output import progress_bar, show_warnings_once
from chunkproof_cli.suites.diagnose import options_of_store


def add_blame(report: SuiteReport, given: Options, snapshot: Path | None) -> SuiteReport:
    """Return the report with what brings each newly lost question back."""
    newly_failing = report.comparison.newly_failing if report.comparison else ()
    with (
        open_services(given) as services,
        show_warnings_once(),
        progress_bar("Explaining", len(newly_failing)) as done,
    ):
        explainer = Explainer(services, local_backend(services).new_deadline)
        blamer = Blamer(explainer, Snapshot(snapshot) if snapshot else None, options_of_store(given), done)
        blame = blamer.blame(report.result.test_results, newly_failing)
    return report.model_copy(update={"blame": blame})
