"""Reports of absence: dated, for the requester of an erasure."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from chunkproof.audit.absence_report import AbsenceReport
from chunkproof.files import write_file
from chunkproof_cli.output import escape_line, print_line, print_table, print_title
from chunkproof_cli.reports import html_kit as kit
from chunkproof_cli.reports.markdown import escape_text, join_parts, table
from chunkproof_cli.reports.wording import and_more

SHOWN, LISTED = 50, 1_000
HIT_HEAD = ("deleted", "found by", "collection", "point", "field", "details")
SUBJECT_HEAD = ("deleted", "kind", "characters", "SHA-256", "result")
COLLECTION_HEAD = ("collection", "aliases", "points", "points read", "searches")


def hit_rows(report: AbsenceReport, listed: int) -> list[tuple[str, ...]]:
    """List what is still stored."""
    rows: list[tuple[str, ...]] = [
        (subject.name, hit.how.value, hit.collection, str(hit.point_id), hit.field or "", hit.details)
        for subject in report.subjects
        for hit in subject.hits
    ]
    return rows[:listed]


def subject_rows(report: AbsenceReport, listed: int) -> Iterator[tuple[str, ...]]:
    """List what had to be gone; texts are named by their hash."""
    for one in report.subjects[:listed]:
        size = "" if one.characters is None else f"{one.characters:,}"
        result = f"found {len(one.hits):,} times" if one.hits else "absent" if not report.not_checked else "not found"
        yield one.name, one.kind, size, one.sha256 or "", result


def collection_rows(report: AbsenceReport) -> Iterator[tuple[str, ...]]:
    """List the collections that were read."""
    for one in report.collections:
        yield one.name, ", ".join(one.aliases), f"{one.points:,}", f"{one.read:,}", f"{one.searches:,}"


def print_report(report: AbsenceReport) -> None:
    """Print what was found and what was checked; the verdict comes last."""
    if rows := hit_rows(report, SHOWN):
        print_title("Still stored")
        print_table(HIT_HEAD, rows)
        if more := and_more(report.hits_total, len(rows)):
            print_line(more)
    print_table(COLLECTION_HEAD, collection_rows(report))
    for title, lines in _lists(report):
        print_title(title)
        for line in lines:
            print_line(f"  {line}")
    print_line(report.verdict, "bold red" if report.found else "yellow" if report.not_checked else "green")


def _lists(report: AbsenceReport) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "Checked", report.checks
    if report.not_checked:
        yield "Could not be checked", report.not_checked
    yield "Not checked: out of reach", report.out_of_reach


def _date(report: AbsenceReport) -> str:
    return f"Checked at {report.checked_at:%Y-%m-%d %H:%M:%S} UTC, at {report.host}, in {report.seconds:,.1f} s."


def render_text(report: AbsenceReport) -> str:
    """Render the report as lines."""
    lines = ["Report of absence", _date(report), "", report.verdict, ""]
    lines += ["Deleted:", *("  " + "  ".join(filter(None, row)) for row in subject_rows(report, LISTED))]
    if rows := hit_rows(report, LISTED):
        lines += ["", "Still stored:", *("  " + "  ".join(row) for row in rows)]
    lines += ["", "Collections:", *("  " + "  ".join(filter(None, row)) for row in collection_rows(report))]
    for title, items in _lists(report):
        lines += ["", f"{title}:", *(f"  {item}" for item in items)]
    return "".join(escape_line(line) + "\n" for line in lines)


def render_markdown(report: AbsenceReport) -> str:
    """Render the report as Markdown."""
    mark = "❌" if report.found else "⚠️" if report.not_checked else "✅"
    parts = [f"## {mark} Report of absence", f"**{escape_text(report.verdict)}**", escape_text(_date(report))]
    parts += ["### Deleted", table(SUBJECT_HEAD, subject_rows(report, SHOWN))]
    if rows := hit_rows(report, SHOWN):
        parts += ["### Still stored", table(HIT_HEAD, rows)]
    parts += ["### Collections", table(COLLECTION_HEAD, collection_rows(report))]
    for title, items in _lists(report):
        parts += [f"### {title}", "\n".join(f"- {escape_text(item, 1_000)}" for item in items)]
    return join_parts(parts)


def render_page(report: AbsenceReport) -> str:
    """Render the report as one file."""
    state = "failed" if report.found else "error" if report.not_checked else "passed"
    header = (kit.verdict(report.verdict, state), kit.element("p", _date(report), class_="dim"))
    return kit.render_page("Report of absence", header, _sections(report), footer="Texts are named by their SHA-256")


def _sections(report: AbsenceReport) -> Iterator[kit.Html]:
    if rows := hit_rows(report, LISTED):
        yield kit.section("Still stored", kit.table(HIT_HEAD, rows, classes="stacked"))
    yield kit.section("Deleted", kit.table(SUBJECT_HEAD, subject_rows(report, LISTED), classes="stacked"))
    yield kit.section("Collections", kit.scrolling("Collections", kit.table(COLLECTION_HEAD, collection_rows(report))))
    for title, items in _lists(report):
        yield kit.section(title, kit.element("ul", *(kit.element("li", item) for item in items)))


FORMATS: Mapping[str, Callable[[AbsenceReport], str]] = {
    ".json": AbsenceReport.canonical_json,
    ".txt": render_text,
    ".md": render_markdown,
    ".html": render_page,
}


def write_reports(report: AbsenceReport, files: tuple[Path, ...]) -> None:
    """Write each file in the format of its extension."""
    for file in files:
        write_file(file, FORMATS[file.suffix](report))


def read_absence_report(file: Path) -> AbsenceReport | None:
    """Read a report of absence; None when the file holds something else."""
    try:
        return AbsenceReport.model_validate_json(file.read_bytes())
    except (OSError, ValueError):
        return None
