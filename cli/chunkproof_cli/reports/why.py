"""Reports of `why` in every format."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rich.text import Text

from chunkproof.files import write_file
from chunkproof.why.report import Row, WhyReport
from chunkproof_cli.output import escape_line, print_line, print_table, print_title, shorten
from chunkproof_cli.reports import html_kit as kit
from chunkproof_cli.reports.markdown import escape_text, join_parts, table

HEAD = ("change", "rank", "score", "in top_k", "because")


def write_reports(report: WhyReport, files: tuple[Path, ...]) -> None:
    """Write each file in the format of its extension."""
    for file in files:
        write_file(file, FORMATS[file.suffix](report))


def print_report(report: WhyReport) -> None:
    """Print what was tried; the verdict comes last, next to the prompt."""
    print_title(shorten(f"{report.query_text} → {report.expected}"))
    rows = (
        (change, rank, score, Text(found, "green" if row.found else "dim"), shorten(detail))
        for row, (change, rank, score, found, detail) in zip(report.rows, map(_cells, report.rows), strict=True)
    )
    print_table(HEAD, rows)
    for note in report.notes:
        print_line(note, "yellow")
    verdict = report.verdict
    for name, value in _facts(report):
        print_line(f"{name}: {value}")
    print_line(verdict.line, "green" if verdict.found else "bold red")


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    return (
        row.change,
        "–" if row.rank is None else f"{row.rank:,}",
        "–" if row.score is None else f"{row.score:.3f}",
        "yes" if row.found else "no",
        row.detail or "",
    )


def _facts(report: WhyReport) -> Iterator[tuple[str, str]]:
    verdict = report.verdict
    if verdict.causes:
        yield "Cause", " and ".join(cause.value for cause in verdict.causes)
    if verdict.cost:
        yield "Cost", verdict.cost
    if verdict.command:
        yield "Command", verdict.command
    if verdict.then:
        yield "Then", verdict.then


def render_text(report: WhyReport) -> str:
    """Render the verdict, then what was tried."""
    lines = [report.verdict.line, "", *(f"{name}: {value}" for name, value in _facts(report)), ""]
    for row in map(_cells, report.rows):
        lines.append("{:<45} {:>6} {:>6}  {:<3} {}".format(*row).rstrip())
    return "".join(escape_line(line) + "\n" for line in (*lines, *report.notes))


def render_markdown(report: WhyReport) -> str:
    """Render the verdict, then what was tried, for a comment on a pull request."""
    parts = [
        f"## {'✅' if report.verdict.found else '❌'} {escape_text(report.query_text)}",
        escape_text(report.verdict.line, 1_000),
        table(("", ""), _facts(report)),
        table(HEAD, map(_cells, report.rows)),
        *(escape_text(note) for note in report.notes),
    ]
    return join_parts(parts)


def render_page(report: WhyReport) -> str:
    """Render the report as one file."""
    header = (kit.verdict(report.verdict.line, "passed" if report.verdict.found else "failed"),)
    sections = [kit.section("Verdict", kit.table(("", ""), list(_facts(report)), classes="facts"))]
    rows = [_cells(row) for row in report.rows]
    sections.append(kit.section("What was tried", kit.scrolling("What was tried", kit.table(HEAD, rows))))
    sections += [kit.element("p", note) for note in report.notes]
    footer = f"{report.collection}, top_k {report.top_k}" + (f", {report.snapshot}" if report.snapshot else "")
    return kit.render_page(shorten(f"{report.query_text} → {report.expected}"), header, sections, footer=footer)


FORMATS: Mapping[str, Callable[[WhyReport], str]] = {
    ".json": WhyReport.canonical_json,
    ".txt": render_text,
    ".md": render_markdown,
    ".html": render_page,
}
