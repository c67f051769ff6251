"""Reports of a suite in every format, all rendered from the canonical one; a format is a file here."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from chunkproof.suite.report import SuiteReport
from chunkproof_cli.reports.suite.html import page
from chunkproof_cli.reports.suite.junit import junit
from chunkproof_cli.reports.suite.markdown import markdown
from chunkproof_cli.reports.suite.text import text

FORMATS: Mapping[str, Callable[[SuiteReport], str]] = {
    ".json": SuiteReport.canonical_json,
    ".txt": text,
    ".md": markdown,
    ".xml": junit,
    ".html": page,
}


def write_reports(report: SuiteReport, files: tuple[Path, ...], earlier: Sequence[SuiteReport] = ()) -> None:
    """The report in each file, by its extension; a page shows earlier ones as well."""
    for file in files:
        made = page(report, earlier) if file.suffix == ".html" else FORMATS[file.suffix](report)
        file.write_text(made, "utf-8", newline="\n")
