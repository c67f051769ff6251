"""Reports of a suite in every format, all rendered from the canonical one; a format is a file here."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import click

from chunkproof.suite.report import SuiteReport
from chunkproof_cli.reports.junit import junit
from chunkproof_cli.reports.markdown import markdown
from chunkproof_cli.reports.text import text

FORMATS: Mapping[str, Callable[[SuiteReport], str]] = {
    ".json": SuiteReport.canonical_json,
    ".txt": text,
    ".md": markdown,
    ".xml": junit,
}


def check_outputs(files: tuple[Path, ...], known: Collection[str] = FORMATS) -> None:
    """Refuse what could not be written before anything is run."""
    for file in files:
        if file.suffix not in known:
            raise click.BadParameter(
                f"{file}: the extension must be one of {', '.join(known)}", param_hint="-o"
            )
        if not file.parent.is_dir() or file.is_dir():
            raise click.BadParameter(f"{file}: there is no such folder to write to", param_hint="-o")


def write_reports(report: SuiteReport, files: tuple[Path, ...]) -> None:
    """The report in each file, by its extension."""
    for file in files:
        file.write_text(FORMATS[file.suffix](report), "utf-8", newline="\n")
