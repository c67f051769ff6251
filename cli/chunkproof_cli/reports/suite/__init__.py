"""Suite reports in every format, rendered from the canonical JSON; one module for each format."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from chunkproof.files import write_file
from chunkproof.suite.report import SuiteReport
from chunkproof_cli.reports.suite.junit import render_suite_junit
from chunkproof_cli.reports.suite.markdown import render_suite_markdown
from chunkproof_cli.reports.suite.page import render_suite_page
from chunkproof_cli.reports.suite.text import render_suite_text

FORMATS: Mapping[str, Callable[[SuiteReport], str]] = {
    ".json": SuiteReport.canonical_json,
    ".txt": render_suite_text,
    ".md": render_suite_markdown,
    ".xml": render_suite_junit,
    ".html": render_suite_page,
}


def write_reports(report: SuiteReport, files: tuple[Path, ...], earlier: Sequence[SuiteReport] = ()) -> None:
    """Write each file in the format of its extension; a page also shows the earlier reports."""
    for file in files:
        made = render_suite_page(report, earlier) if file.suffix == ".html" else FORMATS[file.suffix](report)
        write_file(file, made)
