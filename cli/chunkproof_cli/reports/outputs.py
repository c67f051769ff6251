"""The kinds of report and their formats. A new kind is a function that yields blocks, and an entry here."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from pkgutil import resolve_name
from shutil import copyfileobj
from typing import Any, get_type_hints

import click
from pydantic_core import from_json

from chunkproof.base.files import replace_file, write_file
from chunkproof.contract import RetrievalResponse, ValidationResult
from chunkproof.contract.model import Model, has_fields
from chunkproof_cli.options import SIGNER
from chunkproof_cli.reports import blocks

EVERY_FORMAT = (".json", ".txt", ".md", ".xml", ".html")
RENDERERS = {
    ".txt": "to_text:render_text",
    ".md": "to_text:render_markdown",
    ".xml": "to_junit:render_junit",
    ".html": "to_html:render_html",
    ".ctrf.json": "to_junit:render_ctrf",
    ".sarif": "to_junit:render_sarif",
}
WITHOUT_JUNIT = (".json", ".txt", ".md", ".html")


@dataclass(frozen=True)
class ReportKind:
    """A kind of report. Its functions are named, not imported, so that a command loads only what it shows.

    `describe` takes the `report`, whose type is the model of the kind, and returns its blocks.
    """

    describe: str
    extensions: tuple[str, ...]
    junit: str = ""
    sarif: str = ""

    def check(self, files: tuple[Path, ...], more: tuple[str, ...] = ()) -> None:
        """Refuse files that cannot be written, before any work starts."""
        if _signer() and not files:
            raise click.UsageError("--sign signs the files of -o: name one.")
        others = ([".ctrf.json"] if self.junit else []) + ([".sarif"] if self.sarif else [])
        check_outputs(files, (*self.extensions, *others, *more))

    def render(self, report: Any, extension: str, *context: Any) -> str:
        """Render a report in the format of this extension; `context` goes to the function that describes it."""
        if extension == ".json":
            return str(report.canonical_json())
        describe = {".xml": self.junit, ".ctrf.json": self.junit, ".sarif": self.sarif}.get(extension)
        content = _load(describe)(report) if describe else self.to_body(report, *context)
        return str(_load(RENDERERS[extension])(content))

    def write(
        self, report: Any, files: tuple[Path, ...], *context: Any, ready: Mapping[str, Path] | None = None
    ) -> None:
        """Write each file in the format of its extension; those in `ready` exist already and are copied."""
        for file in files:
            if source := (ready or {}).get(find_extension(file)):
                with source.open("rb") as opened, replace_file(file) as target:
                    copyfileobj(opened, target)
            else:
                write_file(file, self.render(report, find_extension(file), *context))
            if signer := _signer():
                from chunkproof.seals.notes import sign_report

                sign_report(file, signer)

    def print(self, report: Any) -> None:
        """Print a report in the terminal."""
        from chunkproof_cli.reports.to_text import print_body

        print_body(self.to_body(report))

    def to_body(self, report: Any, *context: Any) -> Any:
        """Return the blocks of a report."""
        return _load(self.describe)(report, *context)


SUITE = ReportKind("suite_blocks:describe_suite", EVERY_FORMAT, "suite_blocks:list_suite_cases")
AUDIT = ReportKind(
    "audit_blocks:describe_audit", EVERY_FORMAT, "audit_blocks:list_audit_cases", "audit_blocks:list_audit_results"
)
DIFF = ReportKind("diff_blocks:describe_diff", EVERY_FORMAT, "diff_blocks:list_diff_cases")
ABSENCE = ReportKind("audit_blocks:describe_absence", WITHOUT_JUNIT)
WHY = ReportKind("diff_blocks:describe_why", WITHOUT_JUNIT)
CONFIGURATIONS = ReportKind("suite_blocks:describe_configurations", (".json", ".md", ".html"))
LATENCY = ReportKind("latency_blocks:describe_latency", (".html", ".json"))
# What a notebook shows, by the name of its class; any other model is shown as text.
SHOWN = {
    **{"SuiteReport": SUITE, "AuditReport": AUDIT, "WhyReport": WHY, "AbsenceReport": ABSENCE},
    "RetrievalResponse": ReportKind("outputs:describe_response", (".html",)),
    "ValidationResult": ReportKind("outputs:describe_validation", (".html",)),
}
# Kinds that `chunkproof report` recognizes; anything else is read as a suite report.
RECOGNIZED = (AUDIT, DIFF, ABSENCE)


def find_report(content: str | bytes, kinds: Sequence[ReportKind]) -> tuple[ReportKind, Any] | None:
    """Parse a canonical report of one of these kinds; None when it is something else."""
    with suppress(ValueError):
        document = from_json(content)
        for kind in kinds:
            model = get_type_hints(_load(kind.describe))["report"]
            if has_fields(model, document):
                with suppress(ValueError):
                    return kind, model.model_validate_json(content)
    return None


def show_model(model: Model) -> str | None:
    """Return a model as HTML for a notebook; in a frame, so that neither page nor notebook changes the other."""
    kind = SHOWN.get(type(model).__name__)
    if kind is None:
        return None
    page, height = escape(kind.render(model, ".html")), 640 if hasattr(model, "report") else 420
    return f'<iframe srcdoc="{page}" style="width:100%;height:{height}px;border:0" sandbox="allow-scripts"></iframe>'


def describe_response(report: RetrievalResponse) -> blocks.ReportBody:
    """Describe the results of a search."""
    execution = report.execution
    found = f"{blocks.plural(execution.result_count, 'result')} in {execution.latency_ms} ms"
    verdict = blocks.VerdictLine(found, blocks.Tone.PLAIN)
    if report.status == "error":
        verdict = blocks.VerdictLine("; ".join(report.errors), blocks.Tone.BAD)
    rows = [
        (str(one.rank), f"{one.similarity_score:.3f}", one.metadata.chunk_id, str(one.metadata.url or ""), one.text)
        for one in report.results
    ]
    shown: list[blocks.Block] = [blocks.Paragraph(note) for note in report.notes]
    if rows:
        shown.insert(0, blocks.Table(("rank", "score", "chunk", "source", "text"), rows))
    return blocks.ReportBody(report.query or "A search by a vector", [verdict], [blocks.Section("", shown)])


def describe_validation(report: ValidationResult) -> blocks.ReportBody:
    """Describe the validation of a chunk."""
    text = "The stored text is the original" if report.matches else report.mismatch_details or "mismatch"
    words = {True: blocks.Cell("pass", blocks.Tone.GOOD), False: blocks.Cell("FAIL", blocks.Tone.BAD), None: "n/a"}
    rows = [(check.name, words[check.passed], check.details or "") for check in report.checks]
    table = blocks.Table(("check", "verdict", "details"), rows)
    verdict = blocks.VerdictLine(text, blocks.Tone.of(report.validation_passed))
    return blocks.ReportBody(f"Chunk {report.chunk_id}", [verdict], [blocks.Section("", [table] if rows else [])])


def _signer() -> Any:
    context = click.get_current_context(silent=True)
    return context.meta.get(SIGNER) if context else None


def _load(name: str) -> Any:
    return resolve_name(f"{__package__}.{name}")


def find_extension(file: Path) -> str:
    """Return the extension that names a format, which may have two parts."""
    return ".ctrf.json" if file.name.endswith(".ctrf.json") else file.suffix


def check_outputs(files: tuple[Path, ...], extensions: Collection[str]) -> None:
    """Refuse files that cannot be written, before any work starts."""
    for file in files:
        if find_extension(file) not in extensions:
            raise click.BadParameter(f"{file}: the extension must be one of {', '.join(extensions)}", param_hint="-o")
        if not file.parent.is_dir() or file.is_dir():
            raise click.BadParameter(f"{file}: there is no such folder to write to", param_hint="-o")
