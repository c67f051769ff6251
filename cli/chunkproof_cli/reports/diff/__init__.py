"""Diff reports in every format, rendered from the canonical JSON."""

from collections.abc import Callable, Mapping
from pathlib import Path

from chunkproof.files import write_file
from chunkproof_cli.diffs.report import DiffReport
from chunkproof_cli.reports.diff.formats import render_junit_xml, render_markdown, render_page, render_text

FORMATS: Mapping[str, Callable[[DiffReport], str]] = {
    ".json": DiffReport.canonical_json,
    ".txt": render_text,
    ".md": render_markdown,
    ".xml": render_junit_xml,
    ".html": render_page,
}


def write_reports(report: DiffReport, files: tuple[Path, ...]) -> None:
    """Write each file in the format of its extension."""
    for file in files:
        write_file(file, FORMATS[file.suffix](report))


def read_diff_report(file: Path) -> DiffReport | None:
    """Read a diff report; None when the file holds something else."""
    try:
        return DiffReport.model_validate_json(file.read_bytes())
    except (OSError, ValueError):
        return None
