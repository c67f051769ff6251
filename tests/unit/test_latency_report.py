"""Latency reports: figures worked out by hand, and how they are shown."""

from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from chunkproof.base.errors import InvalidParameterError
from chunkproof_cli.aws.stack_metrics import METRICS, Window
from chunkproof_cli.latency_report import (
    STAGES,
    LatencyReport,
    LoggedRequest,
    LogReader,
    choose_bucket_seconds,
    compute_spread,
    report_from_log,
)
from chunkproof_cli.reports.latency_blocks import (
    chart_buckets,
    format_interval,
    format_ms,
    format_percent,
    format_time,
    say_verdict,
    summary_lines,
)
from chunkproof_cli.reports.outputs import LATENCY
from chunkproof_cli.reports.to_text import BAR_WIDTH, draw_bars

NINE = datetime(2026, 1, 15, 9, tzinfo=UTC)


def logged(total: float, after: float = 0, **changed: Any) -> LoggedRequest:
    """Make a request line, this many seconds after nine."""
    stages = {"search": total / 2, "total": total, **changed.pop("stages", {})}
    line = {"status": 200, "cold_start": False, "route": "POST /search", "stages_ms": stages}
    at = (NINE + timedelta(seconds=after)).isoformat()
    return LoggedRequest.model_validate({**line, "timestamp": at, **changed})


def report_on(*requests: LoggedRequest, slo: float | None = None, target_ms: int = 2_000, **read: int) -> LatencyReport:
    reader = LogReader(requests=list(requests), **{"lines": len(requests), **read})
    return report_from_log(reader, "a.log", target_ms=target_ms, slo=slo, since=None)


# figures


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (range(1, 101), (50, 95, 99, 100)),
        (range(1, 11), (5, 10, 10, 10)),
        (range(1, 21), (10, 19, 20, 20)),
        (range(1, 1001), (500, 950, 990, 1000)),
        ([7], (7, 7, 7, 7)),
        ([3, 1, 2], (2, 3, 3, 3)),
    ],
)
def test_percentiles_are_by_nearest_rank(values: Any, expected: tuple[float, ...]) -> None:
    spread = compute_spread(list(map(float, values)))
    assert (spread.p50, spread.p95, spread.p99, spread.max) == expected
    assert spread.count == len(values)


def test_each_stage_is_reported_if_it_was_reached_cold_and_warm_apart() -> None:
    (group,) = report_on(
        logged(10, stages={"embed": 4.0}),
        logged(30, stages={"embed": 20.0}),
        logged(100, cold_start=True, gateway_ms=900.0),
    ).groups
    rows = {(row.starts, row.stage): (row.count, row.p50, row.max) for row in group.stages}
    assert rows == {
        ("all", "embed"): (2, 4.0, 20.0),
        ("all", "search"): (3, 15.0, 50.0),
        ("all", "total"): (3, 30.0, 100.0),
        ("all", "gateway"): (1, 900.0, 900.0),
        ("warm", "embed"): (2, 4.0, 20.0),
        ("warm", "search"): (2, 5.0, 15.0),
        ("warm", "total"): (2, 10.0, 30.0),
        ("cold", "search"): (1, 50.0, 50.0),
        ("cold", "total"): (1, 100.0, 100.0),
        ("cold", "gateway"): (1, 900.0, 900.0),
    }
    assert [row.stage for row in group.stages if row.starts == "all"] == [
        "embed",
        "search",
        "total",
        "gateway",
    ]
    assert group.cold_starts == 1


def test_cold_and_warm_are_not_separated_if_all_starts_are_alike() -> None:
    (group,) = report_on(logged(10, cold_start=True), logged(20, cold_start=True)).groups
    assert {row.starts for row in group.stages} == {"all"}
    assert group.cold_starts == 2


def test_the_target_applies_to_the_time_that_the_caller_waited() -> None:
    report = report_on(
        logged(1_999.0, gateway_ms=2_000.5),
        logged(2_001.0, gateway_ms=1_999.0),
        logged(2_000.0),
        logged(2_000.5),
    )
    assert (report.requests, report.missed, report.within_target_percent) == (4, 2, 50.0)


def test_a_failed_request_is_never_within_the_target() -> None:
    report = report_on(
        logged(1.0), logged(1.0, status=404), logged(1.0, status=503), logged(3_000.0, status=429), slo=50.0
    )
    assert (report.requests, report.missed, report.left_out, report.within_target_percent) == (4, 1, 2, 50.0)
    assert say_verdict(report) == (
        "50.00 % within the target of 2,000 ms (1 of 2), 2 failed requests left out: meets the SLO of 50 %"
    )
    nothing = report_on(logged(1.0, status=404), slo=50.0)
    assert "0.00 % within the target of 2,000 ms (0 of 0), 1 failed request left out: BELOW" in say_verdict(nothing)


def test_errors_are_counted_by_code_and_the_most_frequent_comes_first() -> None:
    (group,) = report_on(
        logged(1),
        logged(1, status=404, code="CHUNK_NOT_FOUND"),
        logged(1, status=503, code="QDRANT_TIMEOUT"),
        logged(1, status=503, code="QDRANT_TIMEOUT"),
        logged(1, status=503),
    ).groups
    assert list(group.errors.items()) == [("QDRANT_TIMEOUT", 2), ("CHUNK_NOT_FOUND", 1), ("(no code)", 1)]


def test_routes_are_reported_by_their_total_and_the_busiest_comes_first() -> None:
    (group,) = report_on(logged(1, route=None), logged(2), logged(4), logged(3, route="GET /health")).groups
    assert [(row.route, row.count, row.max) for row in group.routes] == [
        ("POST /search", 2, 4.0),
        ("(none)", 1, 1.0),
        ("GET /health", 1, 3.0),
    ]


def test_time_is_divided_into_at_most_a_dozen_buckets_and_empty_ones_are_shown() -> None:
    (group,) = report_on(logged(10, 1), logged(30, 14), logged(20, 2), logged(5, 62, gateway_ms=50.0)).groups
    assert group.bucket_seconds == 15
    assert [(b.start, b.requests, b.p95) for b in group.buckets] == [
        (NINE, 3, 30.0),
        (NINE + timedelta(seconds=15), 0, None),
        (NINE + timedelta(seconds=30), 0, None),
        (NINE + timedelta(seconds=45), 0, None),
        (NINE + timedelta(seconds=60), 1, 50.0),
    ]


@pytest.mark.parametrize(
    ("seconds", "step"),
    [(0, 1), (12, 1), (13, 5), (60, 5), (61, 15), (10_800, 900), (604_800, 86_400), (10**9, 364 * 86_400)],
)
def test_a_bucket_has_a_round_length(seconds: float, step: int) -> None:
    assert choose_bucket_seconds(seconds) == step


@pytest.mark.parametrize(
    ("missed", "of", "slo", "met"),
    [
        (1, 1000, 99.9, True),
        (2, 1000, 99.9, False),
        (0, 3, 100.0, True),
        (1, 3, 66.66, True),
        (1, 3, 66.67, False),
    ],
)
def test_an_slo_is_met_exactly_at_its_share(missed: int, of: int, slo: float, met: bool) -> None:
    requests = [logged(3_000.0)] * missed + [logged(1.0)] * (of - missed)
    report = report_on(*requests, slo=slo)
    assert report.slo is not None
    assert report.slo.met is met
    assert ("BELOW" in say_verdict(report)) is not met


def test_the_share_is_rounded_down_so_that_only_all_requests_are_a_hundred_percent() -> None:
    assert format_percent(report_on(*[logged(1.0)] * 99_999, logged(3_000.0))) == "99.99 %"
    assert format_percent(report_on(logged(1.0))) == "100.00 %"


def test_the_summary_counts_lines_that_could_not_be_read() -> None:
    lines = list(summary_lines(report_on(logged(1), lines=1_200, unreadable=3)))
    assert lines[1] == "1,200 lines read, 1 of them requests; 3 more could not be read"


def test_a_log_without_requests_is_an_error_that_describes_a_request_line() -> None:
    with pytest.raises(InvalidParameterError, match=r"none of its 5 lines is a request\. .*stages_ms.*serve > FILE"):
        report_on(lines=5)
    with pytest.raises(InvalidParameterError, match="2 that look like one cannot be read"):
        report_on(lines=5, unreadable=2)


# of a stack


def test_every_stage_has_a_metric() -> None:
    assert set(METRICS) == set(STAGES)


@pytest.mark.parametrize(
    ("since", "seconds", "bucket"),
    [
        (timedelta(minutes=1), 60, 60),
        (timedelta(minutes=30), 1_800, 300),
        (timedelta(hours=3), 10_800, 900),
        (timedelta(weeks=1), 604_800, 86_400),
        (timedelta(days=20, minutes=1), 1_728_300, 604_800),
        (timedelta(days=63, minutes=1), 5_446_800, 604_800),
    ],
)
def test_periods_are_multiples_of_what_cloudwatch_keeps(since: timedelta, seconds: int, bucket: int) -> None:
    window = Window.until_now(since)
    assert (window.seconds, window.bucket) == (seconds, bucket)
    assert timedelta(0) <= window.end - datetime.now(UTC) + timedelta(seconds=1) <= timedelta(hours=1, seconds=1)


# shown


def bars(report: LatencyReport, *, ascii_only: bool) -> list[str]:
    return [line.plain for line in draw_bars(chart_buckets(report.groups[0], report.target_ms), ascii_only=ascii_only)]


def test_a_bar_shows_p95_against_the_target() -> None:
    report = report_on(logged(1_000, 1), logged(4_000, 3), logged(0.1, 5), target_ms=2_000)
    half, whole = BAR_WIDTH // 2, BAR_WIDTH
    assert bars(report, ascii_only=False) == [
        f"09:00:01  {'█' * 10}{' ' * 10}│{' ' * half}   1,000 ms  1 request",
        f"09:00:02  {' ' * half}│{' ' * half} -",
        f"09:00:03  {'█' * half}│{'█' * (whole - half - 1)}    4,000 ms  1 request",
        f"09:00:04  {' ' * half}│{' ' * half} -",
        f"09:00:05  ▏{' ' * (half - 1)}│{' ' * half}     0.1 ms  1 request",
    ]
    assert bars(report, ascii_only=True)[0] == (f"09:00:01  {'#' * 10}{' ' * 10}|{' ' * half}   1,000 ms  1 request")
    assert all(line.isascii() for line in bars(report, ascii_only=True))


def test_a_target_that_no_request_reaches_is_at_the_end() -> None:
    (line,) = bars(report_on(logged(1_000)), ascii_only=True)
    assert line == f"09:00:00  {'#' * 20}{' ' * 20}|   1,000 ms  1 request"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1 second"), (15, "15 seconds"), (900, "15 minutes"), (21_600, "6 hours"), (604_800, "1 week")],
)
def test_intervals_are_written_in_words(seconds: int, text: str) -> None:
    assert format_interval(seconds) == text


def test_times_have_as_many_digits_as_they_need() -> None:
    assert [format_ms(time) for time in (0.04, 5.25, 99.94, 100.4, 12_345.6)] == [
        "0.0",
        "5.2",
        "99.9",
        "100",
        "12,346",
    ]
    assert [format_time(NINE, step) for step in (1, 60, 86_400)] == ["09:00:00", "01-15 09:00", "2026-01-15"]


class Markup(HTMLParser):
    """Collects tags and text, and checks that each tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_every_figure_and_loads_nothing() -> None:
    report = report_on(logged(1_234.0), logged(3_000.0, route="GET /health", status=503, code="INTERNAL"), slo=99)
    markup = Markup()
    markup.feed(LATENCY.render(report, ".html"))
    assert markup.open == []
    for text in (
        "1,234",
        "3,000",
        "GET /health",
        "INTERNAL",
        "50.00 %",
        "BELOW the SLO of 99 %",
        "nearest rank",
    ):
        assert text in markup.text
    assert not {"script", "link", "img", "iframe"} & set(markup.seen)
    assert not {"src", "href"} & markup.attributes
    assert "url(" not in LATENCY.render(report, ".html")


def test_logged_text_is_escaped_on_the_page() -> None:
    evil = "<script>alert(1)</script>&\"'"
    report = report_on(logged(1, route=evil, status=500, code=evil), logged(1))
    named = report.model_copy(update={"source": report.source.model_copy(update={"name": evil})})
    markup = Markup()
    markup.feed(LATENCY.render(named, ".html"))
    assert "script" not in markup.seen
    assert markup.text.count(evil) == 5, "title, heading, summary, route, code"
