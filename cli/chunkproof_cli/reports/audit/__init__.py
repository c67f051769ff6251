"""Reports of an audit in every format, all rendered from the canonical one; a format is a file here."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from chunkproof.audit.report import AuditReport
from chunkproof_cli.reports.audit.junit import junit
from chunkproof_cli.reports.audit.markdown import markdown
from chunkproof_cli.reports.audit.page import page
from chunkproof_cli.reports.audit.text import text

FORMATS: Mapping[str, Callable[[AuditReport], str]] = {
    ".json": AuditReport.canonical_json,
    ".txt": text,
    ".md": markdown,
    ".xml": junit,
    ".html": page,
}
FINDINGS = ".jsonl"
EXTENSIONS = (*FORMATS, FINDINGS)


def write_reports(report: AuditReport, files: tuple[Path, ...], findings: Path | None = None) -> None:
    """The report in each file, by its extension; `.jsonl` has every finding, one per line."""
    for file in files:
        if file.suffix == FINDINGS and findings is not None:
            shutil.copyfile(findings, file)
        else:
            file.write_text(FORMATS[file.suffix](report), "utf-8", newline="\n")


def audit_in(file: Path) -> AuditReport | None:
    """The audit's report in this file; None when it holds something else."""
    try:
        return AuditReport.model_validate_json(file.read_bytes())
    except (OSError, ValueError):
        return None
