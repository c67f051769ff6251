"""Latency reports in the terminal."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from chunkproof.models.json import cut_middle
from chunkproof_cli.latency.report import Bucket, Group, LatencyReport
from chunkproof_cli.output import print_line, print_table, print_title, safe_text, stdout_console
from chunkproof_cli.reports.latency import wording
from chunkproof_cli.reports.wording import plural

WIDTH = 40
MOST_ROUTES = 10
BLOCKS = (" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█")
ASCII_BLOCKS = (" ", "#")


def print_report(report: LatencyReport) -> None:
    """Print the verdict, then tables and a chart for each group."""
    for line in wording.summary_lines(report):
        print_line(line)
    print_line(_verdict(report))
    for group in report.groups:
        _print_group(group, report.target_ms)
    print_line(f"Percentiles: {report.source.percentiles}", "dim")


def _verdict(report: LatencyReport) -> Text:
    if report.slo is not None:
        return safe_text(wording.verdict_line(report), "green" if report.slo.met else "bold red")
    return safe_text(wording.verdict_line(report), "green" if not report.missed else "yellow")


def _print_group(group: Group, target_ms: int) -> None:
    print_line("")
    print_title(wording.group_heading(group))
    if not group.requests:
        return
    stages = ((item.starts, item.stage, *wording.time_cells(item)) for item in group.stages)
    print_table(("starts", "stage (ms)", *wording.HEADS), stages)
    if len(group.routes) > 1:
        most = ((cut_middle(item.route), *wording.time_cells(item)) for item in group.routes[:MOST_ROUTES])
        print_table(("route (total, ms)", *wording.HEADS), most)
    if len(group.routes) > MOST_ROUTES:
        print_line(f"and {plural(len(group.routes) - MOST_ROUTES, 'other route')}: --json has all")
    if group.errors:
        print_table(("error", "count"), ((code, f"{n:,}") for code, n in group.errors.items()))
    print_line(wording.chart_heading(group, target_ms))
    for line in chart_lines(group, target_ms, ascii_only=stdout_console().options.ascii_only):
        print_line(line)


def chart_lines(group: Group, target_ms: int, *, ascii_only: bool) -> Iterator[Text]:
    """Draw a bar for each bucket, with the target marked."""
    blocks, mark = (ASCII_BLOCKS, "|") if ascii_only else (BLOCKS, "│")
    full = max(target_ms, *(bucket.p95 or 0 for bucket in group.buckets))
    for bucket in group.buckets:
        line = _bar((bucket.p95 or 0) / full, blocks)
        at = round(target_ms / full * WIDTH)
        line = f"{line[:at]}{mark}{line[at + 1 :]}"
        over = bucket.p95 is not None and bucket.p95 > target_ms
        yield safe_text(
            f"{wording.format_time(bucket.start, group.bucket_seconds)}  {line} {_figures(bucket)}",
            "bold red" if over else "",
        )


def _figures(bucket: Bucket) -> str:
    if bucket.p95 is None:
        return "-"
    return f"{wording.format_ms(bucket.p95):>7} ms  {plural(bucket.requests, 'request')}"


def _bar(share: float, blocks: Sequence[str]) -> str:
    """Draw a share of the width to an eighth of a cell; anything above 0 is visible."""
    parts = len(blocks) - 1
    filled = max(round(share * WIDTH * parts), 1 if share else 0)
    whole, rest = divmod(filled, parts)
    return (blocks[-1] * whole + blocks[rest]).ljust(WIDTH + 1)
