"""A report as one HTML file that needs nothing else. Whatever was logged is text in it, never markup."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from chunkproof_cli.latency.report import Group, Report
from chunkproof_cli.reports.latency.wording import (
    HEADS,
    chart_heading,
    heading,
    milliseconds,
    moment,
    summary,
    times,
    verdict,
)

_STYLE = """
:root { color-scheme: light dark; --bar: #3b7dd8; --over: #c8372d; --line: #8886; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; }
caption { text-align: left; font-weight: 600; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.stages :is(th, td):nth-child(2), .chart :is(th, td):nth-child(2) { text-align: left; }
.verdict { font-size: 1.25rem; font-weight: 600; }
.below, .over { color: var(--over); }
.chart :is(th, td):first-child { white-space: nowrap; } .chart td:nth-child(2) { width: 60%; }
.track { position: relative; height: 1rem; background: #8882; }
.bar { height: 100%; background: var(--bar); }
.over .bar { background: var(--over); }
.target { position: absolute; top: -.2rem; bottom: -.2rem; border-left: 2px solid CanvasText; }
"""


def page(report: Report) -> str:
    """The whole file."""
    below = " below" if report.slo is not None and not report.slo.met else ""
    title = f"Latency of {report.source.name}"
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            f"<h1>{escape(title)}</h1>",
            *(f"<p>{escape(line)}</p>" for line in summary(report)),
            f'<p class="verdict{below}">{escape(verdict(report))}</p>',
            *(line for group in report.groups for line in _group(group, report.target_ms)),
            f"<p>Percentiles: {escape(report.source.percentiles)}.</p>",
            "</body>",
            "</html>",
            "",
        )
    )


def _group(group: Group, target_ms: int) -> Iterator[str]:
    yield f"<h2>{escape(heading(group))}</h2>"
    if not group.requests:
        return
    stages = [(item.starts, item.stage, *times(item)) for item in group.stages]
    yield from _table("Time of each stage, in milliseconds", ("starts", "stage", *HEADS), stages, "stages")
    if len(group.routes) > 1:
        routes = [(item.route, *times(item)) for item in group.routes]
        yield from _table("Total by route, in milliseconds", ("route", *HEADS), routes)
    if group.errors:
        codes = [(code, f"{count:,}") for code, count in group.errors.items()]
        yield from _table("Errors", ("code", "count"), codes)
    yield from _chart(group, target_ms)


def _table(
    caption: str, heads: Sequence[str], lines: Iterable[Sequence[str]], kind: str = "plain"
) -> Iterator[str]:
    yield f'<table class="{kind}"><caption>{escape(caption)}</caption>'
    yield _head(heads)
    for line in lines:
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>"
    yield "</tbody></table>"


def _head(names: Sequence[str]) -> str:
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    return f"<thead><tr>{cells}</tr></thead><tbody>"


def _chart(group: Group, target_ms: int) -> Iterator[str]:
    full = max(target_ms, *(bucket.p95 or 0 for bucket in group.buckets))
    yield f'<table class="chart"><caption>{escape(chart_heading(group, target_ms))}</caption>'
    yield _head(("from (UTC)", "p95", "ms", "requests"))
    for bucket in group.buckets:
        p95 = bucket.p95 or 0.0
        bar = f'<div class="bar" style="width: {p95 / full:.1%}"></div>'
        mark = f'<div class="target" style="left: {target_ms / full:.1%}"></div>'
        yield f'<tr class="{"over" if p95 > target_ms else "within"}">'
        yield f"<td>{moment(bucket.start, group.bucket_seconds)}</td>"
        yield f'<td><div class="track">{bar}{mark}</div></td>'
        yield f"<td>{'–' if bucket.p95 is None else milliseconds(p95)}</td><td>{bucket.requests:,}</td></tr>"
    yield "</tbody></table>"
