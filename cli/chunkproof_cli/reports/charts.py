"""The charts of suites and configurations, for Vega-Lite.

Colours are CSS variables of the page, so that charts follow its dark and print styles.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from chunkproof.suite.criteria import find_end_to_end
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.suite_report import SuiteReport
from chunkproof_cli.reports.blocks import Drawing, Table
from chunkproof_cli.suites.configurations import ConfigurationReport

Spec = dict[str, Any]
# A logarithmic axis has no 0, and shorter times do not matter.
LEAST_MS = 0.1
SCORE_BINS = 20
TREND_METRICS = ("recall@5", "mrr@10")
_COUNTS = {"field": "cases", "type": "quantitative", "axis": {"tickMinStep": 1}, "title": "cases"}
_BY_STATE = {
    "field": "state",
    "type": "nominal",
    "scale": {"domain": ["passed", "failed"], "range": ["var(--good)", "var(--bad)"]},
}


def best_rank(case: TestCaseResult) -> int | None:
    """Return the rank of the first expected result, None when there is none."""
    expected = set(case.expected_doc_ids)
    return next((result.rank for result in case.actual_results or () if result.stands_for in expected), None)


def draw_suite(report: SuiteReport, earlier: Sequence[SuiteReport]) -> Iterator[Drawing]:
    """Draw each chart that has figures; the trend with earlier reports of the suite."""
    judged = [case for case in report.result.test_results if case.status.is_judged]
    scored = [case for case in judged if case.actual_results]
    # Scores of another retriever can have any scale, on which these bins mean nothing.
    if scored and not report.suite.retriever:
        yield _draw_scores(scored)
    if any(stage.usual for stage in report.latency):
        yield _draw_latency(report)
    if expecting := [case for case in judged if case.expected_doc_ids]:
        yield _draw_ranks(expecting)
    if earlier:
        runs = sorted((*earlier, report), key=lambda each: each.validation.started_at)
        results = [(each.validation.started_at, each.result) for each in runs]
        quality = [
            (at, name, value)
            for at, result in results
            for name, value in {"pass rate": result.pass_rate / 100, **result.metrics}.items()
            if name in ("pass rate", *TREND_METRICS)
        ]
        whole = [(each.validation.started_at, spread) for each in runs if (spread := find_end_to_end(each.latency))]
        slow = [(at, "95th percentile", spread.p95_ms) for at, spread in whole]
        yield _draw_trend("Quality over time", quality, "", (0, 1), len(runs))
        if slow:
            yield _draw_trend("Latency over time", slow, "ms", None, len(slow))


def _draw_scores(cases: Sequence[TestCaseResult]) -> Drawing:
    """Stack the cases by the score of their first result, and by how they ended."""
    states = {TestStatus.PASSED: "passed"}
    best = [((case.actual_results or ())[0].similarity_score, states.get(case.status, "failed")) for case in cases]
    bins = Counter((min(SCORE_BINS - 1, int(score * SCORE_BINS)), state) for score, state in best)
    values: list[Spec] = [
        {"from": n / SCORE_BINS, "to": (n + 1) / SCORE_BINS, "state": state, "cases": count}
        for (n, state), count in sorted(bins.items())
    ]
    rows = [(f"{v['from']:.2f}", f"{v['to']:.2f}", v["state"], str(v["cases"])) for v in values]
    ordered = sorted(score for score, _ in best)
    x = {"field": "from", "bin": {"binned": True, "step": 1 / SCORE_BINS}, "title": "score of the first result"}
    return Drawing(
        "Scores",
        f"The first result scores {ordered[0]:.2f} to {ordered[-1]:.2f}, half of the {len(best)} cases "
        f"{ordered[len(ordered) // 2]:.2f} or more.",
        {
            "data": {"values": values},
            "mark": {"type": "bar", "binSpacing": 1},
            "encoding": {"x": x, "x2": {"field": "to"}, "y": _COUNTS, "color": _BY_STATE},
        },
        Table(("score from", "to", "verdict", "cases"), rows),
    )


def _draw_ranks(cases: Sequence[TestCaseResult]) -> Drawing:
    ranks = Counter(map(best_rank, cases))
    deepest = max((rank for rank in ranks if rank), default=1)
    values = [
        {"rank": str(rank or "none"), "cases": ranks[rank], "state": "passed" if rank else "failed"}
        for rank in (*range(1, max(deepest, 5) + 1), None)
    ]
    first_five = sum(count for rank, count in ranks.items() if rank and rank <= 5)
    axis = {"axis": {"labelAngle": 0, "labelOverlap": True}, "title": "rank of the first expected result"}
    x = {"field": "rank", "type": "ordinal", "sort": None, **axis}
    return Drawing(
        "Rank of the expected document",
        f"First in {ranks[1]} of {len(cases)} cases, in the first five in {first_five}, nowhere in {ranks[None]}.",
        {
            "data": {"values": values},
            "mark": {"type": "bar"},
            "encoding": {"x": x, "y": _COUNTS, "color": {**_BY_STATE, "legend": None}},
        },
        Table(("rank", "cases"), [(str(v["rank"]), str(v["cases"])) for v in values if v["cases"]]),
    )


def _draw_latency(report: SuiteReport) -> Drawing:
    """Draw median, 95th percentile and longest time of each stage, and its limit."""
    limits = {one.id.removeprefix("stage-"): one.limit_ms for one in report.criteria if one.id.startswith("stage-")}
    measured = {stage.stage: stage.usual for stage in report.latency if stage.usual}
    times = {stage: (spread.p50_ms, spread.p95_ms, spread.max_ms) for stage, spread in measured.items()}
    over = [stage for stage, spread in measured.items() if (most := limits.get(stage)) and spread.p95_ms >= most]
    summary = "No search was measured end to end."
    if total := measured.get("total"):
        within = f"over the limit: {', '.join(over)}" if over else "every stage is within its limit"
        figure = f"95th percentile of {total.count} searches, end to end: {total.p95_ms:.0f} ms"
        summary = f"{figure}, limit {limits.get('total') or 0:g} ms; {within}."
    rows = [(stage, *(f"{ms:.1f}" for ms in found), f"{limits.get(stage) or 0:g}") for stage, found in times.items()]
    head = ("stage", "median ms", "95th percentile", "longest", "limit")
    return Drawing("Latency by stage", summary, _times_by_stage(times, limits), Table(head, rows))


def _times_by_stage(times: Mapping[str, Sequence[float]], limits: Mapping[str, float | None]) -> Spec:
    values = [
        {"stage": stage, "limit": limits.get(stage)}
        | {name: max(LEAST_MS, ms) for name, ms in zip(("p50", "p95", "max"), stage_times, strict=True)}
        for stage, stage_times in times.items()
    ]

    def layer(field: str, **mark: object) -> Spec:
        x = {
            "field": field,
            "type": "quantitative",
            "scale": {"type": "log", "nice": True},
            "title": "ms: ○ median ● 95th percentile ─ longest │ limit",
            "axis": {"format": "~g", "tickCount": 4},
        }
        y = {"field": "stage", "type": "nominal", "sort": None, "title": None}
        return {"mark": mark, "encoding": {"x": x, "y": y}}

    lines = layer("p50", type="rule", color="var(--accent)")
    lines["encoding"]["x2"] = {"field": "max"}
    dot = {"type": "point", "size": 60, "color": "var(--accent)", "opacity": 1}
    ticks = layer("limit", type="tick", color="var(--bad)", thickness=3, size=26)
    ticks["transform"] = [{"filter": "isValid(datum.limit)"}]
    layers = [lines, layer("p50", **dot, filled=False), layer("p95", **dot, filled=True), ticks]
    return {"data": {"values": values}, "layer": layers}


def _draw_trend(
    title: str, points: Sequence[tuple[datetime, str, float]], unit: str, domain: Sequence[int] | None, runs: int
) -> Drawing:
    """Draw a line for each name; only the first and the last time are written on the axis."""
    first = {name: value for _, name, value in reversed(points)}
    last = {name: value for _, name, value in points}
    change = ", ".join(f"{name} {first[name]:.3g} → {last[name]:.3g}" for name in last)
    rows = [(f"{at:%Y-%m-%d %H:%M}", name, f"{value:.4g}") for at, name, value in points]
    y: Spec = {"field": "value", "type": "quantitative", "title": unit or None}
    if domain:
        y["scale"] = {"domain": list(domain)}
    names = list(last)

    def by_name(*marks: object) -> Spec:
        scale = {"domain": names, "range": marks[: len(names)]}
        # A line as in the chart: a dashed circle would not be recognised.
        legend = {"symbolType": "stroke", "symbolStrokeWidth": 2} if len(names) > 1 else None
        return {"field": "metric", "type": "nominal", "sort": None, "scale": scale, "legend": legend}

    ends = [at.isoformat() for at in (points[0][0], points[-1][0])]
    axis = {"values": ends, "labelFlush": True, "format": "%b %d %H:%M"}
    encoding = {
        "x": {"field": "at", "type": "temporal", "scale": {"type": "utc"}, "title": None, "axis": axis},
        "y": y,
        "color": by_name("var(--accent)", "var(--good)", "var(--warn)"),
        "strokeDash": by_name([1, 0], [6, 3], [2, 2]),
    }
    values = [{"at": at.isoformat(), "metric": name, "value": value} for at, name, value in points]
    return Drawing(
        title,
        f"{runs} runs: {change} {unit}".strip() + ".",
        {"data": {"values": values}, "mark": {"type": "line", "point": True}, "encoding": encoding},
        Table(("run", "metric", "value"), rows),
    )


def draw_configurations(report: ConfigurationReport) -> Iterator[Drawing]:
    """Draw quality over latency for each configuration that has both, and the limit as a dashed line."""
    values: list[Spec] = [
        {
            "name": result.name,
            "quality": result.metrics[report.metric],
            "p95": result.latency.p95_ms,
            "state": "chosen" if result.name == report.choice.name else "other",
        }
        for result in report.results
        if result.latency and report.metric in result.metrics and result.not_compared is None
    ]
    if not values:
        return
    best = max(values, key=lambda value: value["quality"])
    fastest = min(values, key=lambda value: value["p95"])
    rows = [(value["name"], f"{value['quality']:.3f}", f"{value['p95']:.1f}") for value in values]
    x = {"field": "p95", "type": "quantitative", "title": "p95 ms", "scale": {"zero": True, "nice": True}}
    y = {"field": "quality", "type": "quantitative", "title": report.metric, "scale": {"zero": False, "padding": 12}}
    colours = {"domain": ["chosen", "other"], "range": ["var(--good)", "var(--accent)"]}
    colour = {"field": "state", "type": "nominal", "scale": colours, "legend": None}
    # Names beside the points would overlap where configurations perform alike.
    names = {"field": "name", "type": "nominal", "sort": None, "legend": {"orient": "right", "labelLimit": 300}}
    dots = {
        "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
        "encoding": {"x": x, "y": y, "color": colour, "shape": names},
    }
    limit = {
        "mark": {"type": "rule", "strokeDash": [4, 4], "color": "var(--bad)"},
        "encoding": {"x": {"datum": report.max_latency_ms, "type": "quantitative"}},
    }
    layers = [dots] if report.max_latency_ms is None else [dots, limit]
    yield Drawing(
        "Quality against latency",
        f"{best['name']} has the highest {report.metric} ({best['quality']:.3f}); "
        f"{fastest['name']} is the fastest ({fastest['p95']:.1f} ms).",
        {"width": 560, "height": 300, "data": {"values": values}, "layer": layers},
        Table(("configuration", report.metric, "p95 ms"), rows),
    )
