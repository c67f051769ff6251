"""Reports of an audit in every format, all rendered from the canonical one; a format is a file here."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from chunkproof.audit.summary import AuditReport
from chunkproof_cli.audit_reports.junit import junit
from chunkproof_cli.audit_reports.markdown import markdown
from chunkproof_cli.audit_reports.page import page
from chunkproof_cli.audit_reports.text import text

FORMATS: Mapping[str, Callable[[AuditReport], str]] = {
    ".json": AuditReport.canonical_json,
    ".txt": text,
    ".md": markdown,
    ".xml": junit,
    ".html": page,
}
FINDINGS = ".jsonl"


def check_outputs(files: tuple[Path, ...]) -> None:
    """Refuse what could not be written before anything is run."""
    for file in files:
        if file.suffix not in (*FORMATS, FINDINGS):
            known = ", ".join((*FORMATS, FINDINGS))
            raise click.BadParameter(f"{file}: the extension must be one of {known}", param_hint="-o")
        if not file.parent.is_dir() or file.is_dir():
            raise click.BadParameter(f"{file}: there is no such folder to write to", param_hint="-o")


def write_reports(report: AuditReport, files: tuple[Path, ...], findings: Path) -> None:
    """The report in each file, by its extension; `.jsonl` has every finding, one per line."""
    for file in files:
        if file.suffix == FINDINGS:
            shutil.copyfile(findings, file)
        else:
            file.write_text(FORMATS[file.suffix](report), "utf-8", newline="\n")
