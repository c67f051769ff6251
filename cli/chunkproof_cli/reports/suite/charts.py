"""Charts of a suite report as SVG, drawn by Vega-Lite when the report is made: the page needs no script for them.

Colours are CSS variables of the page, so that charts follow its dark and print styles.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.report import SuiteReport
from chunkproof_cli.reports.html_kit import Html

WIDTH, HEIGHT = 300, 170
BINS = 20
# A logarithmic axis has no 0, and shorter times do not matter.
LEAST_MS = 0.1
TREND_METRICS = ("recall@5", "mrr@10")
_TEXT = {"labelColor": "var(--ink)", "titleColor": "var(--ink)", "labelFontSize": 12, "titleFontSize": 12}
_LINES = {"gridColor": "var(--line)", "domainColor": "var(--dim)", "tickColor": "var(--dim)"}
_CONFIG = {
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {**_TEXT, **_LINES, "titleFontWeight": "normal"},
    "legend": {**_TEXT, "orient": "top", "title": None, "symbolStrokeColor": "var(--ink)"},
}
_BY_STATE = {
    "field": "state",
    "type": "nominal",
    "scale": {"domain": ["passed", "failed"], "range": ["var(--good)", "var(--bad)"]},
}


@dataclass(frozen=True)
class Chart:
    """A drawing, its message in a sentence, and its figures as a table."""

    title: str
    summary: str
    svg: Html
    head: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]


def charts(report: SuiteReport, earlier: Sequence[SuiteReport] = ()) -> Iterator[Chart]:
    """Draw each chart that has figures."""
    judged = [case for case in report.result.test_results if case.status.is_judged]
    scored = [case for case in judged if case.actual_results]
    # Scores of another retriever can have any scale, on which these bins mean nothing.
    if scored and not report.suite.retriever:
        yield _scores(scored)
    if any(stage.usual for stage in report.latency):
        yield _latency(report)
    if expecting := [case for case in judged if case.expected_doc_ids]:
        yield _ranks(expecting)
    if earlier:
        yield from _trends(sorted((*earlier, report), key=lambda one: one.validation.started_at))


def best_rank(case: TestCaseResult) -> int | None:
    """Return the rank of the first expected result, None when there is none."""
    expected = set(case.expected_doc_ids)
    return next((r.rank for r in case.actual_results or () if r.stands_for in expected), None)


def _state(case: TestCaseResult) -> str:
    return "passed" if case.status is TestStatus.PASSED else "failed"


def _scores(cases: Sequence[TestCaseResult]) -> Chart:
    best = [((case.actual_results or ())[0].similarity_score, _state(case)) for case in cases]
    bins = Counter((min(BINS - 1, int(score * BINS)), state) for score, state in best)
    values = [
        {"from": n / BINS, "to": (n + 1) / BINS, "state": state, "cases": count}
        for (n, state), count in sorted(bins.items())
    ]
    ordered = sorted(score for score, _ in best)
    spec = {
        "data": {"values": values},
        "mark": {"type": "bar", "binSpacing": 1},
        "encoding": {
            "x": {
                "field": "from",
                "bin": {"binned": True, "step": 1 / BINS},
                "title": "score of the first result",
            },
            "x2": {"field": "to"},
            "y": {"field": "cases", "type": "quantitative", "title": "cases", "axis": {"tickMinStep": 1}},
            "color": _BY_STATE,
        },
    }
    return Chart(
        "Scores",
        f"The first result scores {ordered[0]:.2f} to {ordered[-1]:.2f}, half of the {len(best)} cases "
        f"{ordered[len(ordered) // 2]:.2f} or more.",
        draw(spec),
        ("score from", "to", "verdict", "cases"),
        [(f"{v['from']:.2f}", f"{v['to']:.2f}", v["state"], v["cases"]) for v in values],
    )


def _latency(report: SuiteReport) -> Chart:
    limits = {one.id.removeprefix("stage-"): one.limit_ms for one in report.criteria if one.id.startswith("stage-")}
    measured = [(stage.stage, stage.usual) for stage in report.latency if stage.usual]
    times = {stage: (found.p50_ms, found.p95_ms, found.max_ms) for stage, found in measured}
    values = [
        {"stage": stage, "limit": limits.get(stage)}
        | {name: max(LEAST_MS, ms) for name, ms in zip(("p50", "p95", "max"), found, strict=True)}
        for stage, found in times.items()
    ]
    stages = {"field": "stage", "type": "nominal", "sort": None, "title": None}
    scale = {"type": "log", "nice": True}

    def dot(field: str, filled: bool) -> dict[str, Any]:
        mark = {"type": "point", "filled": filled, "size": 60, "color": "var(--accent)", "opacity": 1}
        return {"mark": mark, "encoding": {"x": _ms(field), "y": stages}}

    def _ms(field: str) -> dict[str, Any]:
        return {
            "field": field,
            "type": "quantitative",
            "scale": scale,
            "title": "ms: ○ median ● 95th percentile ─ longest │ limit",
            "axis": {"format": "~g", "tickCount": 4},
        }

    limit = {"type": "tick", "color": "var(--bad)", "thickness": 3, "size": 26}
    spec = {
        "data": {"values": values},
        "layer": [
            {
                "mark": {"type": "rule", "color": "var(--accent)"},
                "encoding": {"x": _ms("p50"), "x2": {"field": "max"}, "y": stages},
            },
            dot("p50", filled=False),
            dot("p95", filled=True),
            {
                "transform": [{"filter": "isValid(datum.limit)"}],
                "mark": limit,
                "encoding": {"x": _ms("limit"), "y": stages},
            },
        ],
    }
    over = [stage for stage, found in measured if (most := limits.get(stage)) and found.p95_ms >= most]
    return Chart(
        "Latency by stage",
        f"95th percentile end to end {dict(measured)['total'].p95_ms:.0f} ms, limit {limits.get('total') or 0:g} ms; "
        + (f"over the limit: {', '.join(over)}." if over else "every stage is within its limit.")
        if "total" in dict(measured)
        else "No search was measured end to end.",
        draw(spec),
        ("stage", "median ms", "95th percentile", "longest", "limit"),
        [(stage, *(f"{ms:.1f}" for ms in found), f"{limits.get(stage) or 0:g}") for stage, found in times.items()],
    )


def _ranks(cases: Sequence[TestCaseResult]) -> Chart:
    ranks = Counter(best_rank(case) for case in cases)
    deepest = max((rank for rank in ranks if rank), default=1)
    shown = [*range(1, max(deepest, 5) + 1), None]
    values = [
        {"rank": str(rank or "none"), "cases": ranks[rank], "state": "passed" if rank else "failed"} for rank in shown
    ]
    spec = {
        "data": {"values": values},
        "mark": {"type": "bar"},
        "encoding": {
            "x": {
                "field": "rank",
                "type": "ordinal",
                "sort": None,
                "title": "rank of the first expected result",
                "axis": {"labelAngle": 0, "labelOverlap": True},
            },
            "y": {"field": "cases", "type": "quantitative", "axis": {"tickMinStep": 1}},
            "color": {**_BY_STATE, "legend": None},
        },
    }
    return Chart(
        "Rank of the expected document",
        f"First in {ranks[1]} of {len(cases)} cases, in the first five in "
        f"{sum(count for rank, count in ranks.items() if rank and rank <= 5)}, nowhere in {ranks[None]}.",
        draw(spec),
        ("rank", "cases"),
        [(value["rank"], value["cases"]) for value in values if value["cases"]],
    )


def _trends(reports: Sequence[SuiteReport]) -> Iterator[Chart]:
    times = [one.validation.started_at for one in reports]
    quality = [(at, name, value) for at, one in zip(times, reports, strict=True) for name, value in _qualities(one)]
    yield _trend("Quality over time", "", quality, (0, 1), len(reports))
    slow = [
        (at, "95th percentile", one.result.performance_metrics.p95_retrieval_time_ms)
        for at, one in zip(times, reports, strict=True)
    ]
    yield _trend("Latency over time", "ms", slow, None, len(reports))


def _qualities(report: SuiteReport) -> Iterator[tuple[str, float]]:
    yield "pass rate", report.result.pass_rate / 100
    for name in TREND_METRICS:
        if name in report.result.metrics:
            yield name, report.result.metrics[name]


def _trend(
    title: str, unit: str, values: Sequence[tuple[Any, str, float]], domain: tuple[int, int] | None, runs: int
) -> Chart:
    y: dict[str, Any] = {"field": "value", "type": "quantitative", "title": unit or None}
    if domain:
        y["scale"] = {"domain": list(domain)}
    names = list(dict.fromkeys(name for _, name, _ in values))
    series = {
        "field": "metric",
        "type": "nominal",
        "sort": None,
        "scale": {"domain": names, "range": ["var(--accent)", "var(--good)", "var(--warn)"][: len(names)]},
        # A line as in the chart: a dashed circle would not be recognised.
        "legend": {"symbolType": "stroke", "symbolStrokeWidth": 2} if len(names) > 1 else None,
    }
    ends = [at.isoformat() for at in (values[0][0], values[-1][0])]
    spec = {
        "data": {"values": [{"at": at.isoformat(), "metric": name, "value": value} for at, name, value in values]},
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {
                "field": "at",
                "type": "temporal",
                "scale": {"type": "utc"},
                "title": None,
                "axis": {"values": ends, "labelFlush": True, "format": "%b %d %H:%M"},
            },
            "y": y,
            "color": series,
            "strokeDash": {
                **series,
                "scale": {"domain": names, "range": [[1, 0], [6, 3], [2, 2]][: len(names)]},
            },
        },
    }
    first = {name: value for _, name, value in reversed(values)}
    last = {name: value for _, name, value in values}
    change = ", ".join(f"{name} {first[name]:.3g} → {last[name]:.3g}" for name in names)
    rows = [(f"{at:%Y-%m-%d %H:%M}", name, f"{value:.4g}") for at, name, value in values]
    return Chart(title, f"{runs} runs: {change} {unit}".strip() + ".", draw(spec), ("run", "metric", "value"), rows)


def draw(spec: dict[str, Any]) -> Html:
    """Draw a Vega-Lite chart as SVG, in the colours of the page."""
    import vl_convert  # 0.1 s to load, and only pages need it

    whole = {"width": WIDTH, "height": HEIGHT, "padding": 10, "background": None, "config": _CONFIG, **spec}
    return Html(vl_convert.vegalite_to_svg(whole, allowed_base_urls=[]))
