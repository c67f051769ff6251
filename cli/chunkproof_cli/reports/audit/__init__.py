"""Audit reports in every format, rendered from the canonical JSON; one module for each format."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from chunkproof.audit.report import AuditReport
from chunkproof.files import replace_file, write_file
from chunkproof_cli.reports.audit.junit import render_audit_junit
from chunkproof_cli.reports.audit.markdown import render_audit_markdown
from chunkproof_cli.reports.audit.page import render_audit_page
from chunkproof_cli.reports.audit.text import render_audit_text

FORMATS: Mapping[str, Callable[[AuditReport], str]] = {
    ".json": AuditReport.canonical_json,
    ".txt": render_audit_text,
    ".md": render_audit_markdown,
    ".xml": render_audit_junit,
    ".html": render_audit_page,
}
FINDINGS = ".jsonl"
EXTENSIONS = (*FORMATS, FINDINGS)


def write_reports(report: AuditReport, files: tuple[Path, ...], findings: Path | None = None) -> None:
    """Write each file in the format of its extension; `.jsonl` has every finding, one per line."""
    for file in files:
        if file.suffix == FINDINGS and findings is not None:
            with findings.open("rb") as source, replace_file(file) as target:
                shutil.copyfileobj(source, target)
        else:
            write_file(file, FORMATS[file.suffix](report))


def read_audit_report(file: Path) -> AuditReport | None:
    """Read an audit report; None when the file holds something else."""
    try:
        return AuditReport.model_validate_json(file.read_bytes())
    except (OSError, ValueError):
        return None
