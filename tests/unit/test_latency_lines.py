"""Request lines are found in the output of any tool, and nothing else is taken for one."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from chunkproof_cli.latency_report import LogReader

LINE: dict[str, Any] = {
    "level": "INFO",
    "location": "_log:101",
    "message": "request",
    "timestamp": "2026-01-15 09:00:00,250+0000",
    "service": "chunkproof",
    "route": "POST /search",
    "state": "returned",
    "stages_ms": {"validate": 1.5, "embed": 80.0, "search": 20.0, "format": 0.5, "total": 102.25},
    "query_text": 'a "quoted" {brace} and a \\ and a 🤖',
    "status": 200,
    "cold_start": False,
    "gateway_ms": 110.0,
    "circuits": {"qdrant": "closed"},
}
PLAIN = json.dumps(LINE)
PRETTY = json.dumps(LINE, indent=4)
EVENT = {"logStreamName": "s", "timestamp": 1768467600250, "message": PLAIN + "\n", "eventId": "3"}
EMF = json.dumps({"_aws": {"CloudWatchMetrics": []}, "RequestLatency": [102.25]})
DOUBLED = PLAIN.replace('"', '""')


def read(text: str) -> LogReader:
    reader = LogReader()
    reader.read(text.splitlines(keepends=True))
    return reader


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        f"2026-01-15T09:00:00.250000+00:00 2026/01/15/[$LATEST]0c1d {PLAIN}",
        f"search-1  | {PLAIN}",
        f"\x1b[32m2026/01/15/[$LATEST]0c1d\x1b[0m \x1b[36m{PLAIN}\x1b[0m",
        f"START RequestId: 1 Version: $LATEST\n{PLAIN}\n{EMF}\nEND RequestId: 1\nREPORT RequestId: 1 Duration: 9 ms",
        f"{EMF}{PLAIN}",
        f"Mounting /a {{not json\nBuilding {{ and {PLAIN}",
        f"begin {{\n{PLAIN}",
        f"2026-01-15T09:00:00 {PRETTY}\n2026-01-15T09:00:01 END",
        json.dumps({"events": [EVENT], "searchedLogStreams": []}, indent=4),
        json.dumps({"events": [EVENT, {"message": EMF}, {"message": "stages_ms {"}]}),
        json.dumps({"results": [[{"field": "@message", "value": PLAIN}]]}, indent=4),
        json.dumps([{"@timestamp": "2026-01-15", "@message": LINE}]),
        f'timestamp,message\n1768467600250,"{DOUBLED}\n"\n1768467600251,"END RequestId: 1"',
        f"\ufeff{PLAIN}\r\n",
        "[" * 100_000 + '{"a":' * 100_000 + f"\nstages_ms {PLAIN}",
    ],
    ids=[
        "plain",
        "aws logs tail",
        "docker compose",
        "colours",
        "sam local",
        "two on a line",
        "braces before it",
        "a brace left open",
        "sam logs",
        "filter-log-events",
        "filter-log-events on one line",
        "Logs Insights as JSON",
        "already parsed",
        "CSV",
        "byte order mark",
        "nested beyond measure",
    ],
)
def test_a_request_is_read_the_same_from_every_format(text: str) -> None:
    found = read(text)
    assert (len(found.requests), found.unreadable) == (1, 0)
    assert found.lines == len(text.splitlines())
    (request,) = found.requests
    assert request.at == datetime(2026, 1, 15, 9, 0, 0, 250_000, UTC)
    assert (request.route, request.status, request.code) == ("POST /search", 200, None)
    assert (request.cold_start, request.gateway_ms, request.stages_ms["total"]) == (False, 110.0, 102.25)
    assert request.stages_ms == LINE["stages_ms"]


def test_all_requests_of_a_document_are_read() -> None:
    document = {"events": [{**EVENT, "message": json.dumps({**LINE, "status": n})} for n in (200, 404, 503)]}
    for indent in (None, 4):
        assert [r.status for r in read(json.dumps(document, indent=indent)).requests] == [200, 404, 503]


def test_a_document_that_was_cut_off_has_the_requests_before_the_cut() -> None:
    document = json.dumps({"events": [EVENT, EVENT, EVENT]}, indent=4)
    assert len(read(document[: document.rindex("message")]).requests) == 2


def test_a_request_line_inside_a_field_is_not_counted() -> None:
    forged = json.dumps({**LINE, "status": 503})
    for text in (forged, f'"{forged}', json.dumps({"message": forged}), forged.replace('"', '""')):
        assert [r.status for r in read(json.dumps({**LINE, "query_text": text})).requests] == [200]
        assert read(json.dumps({"level": "WARNING", "message": "odd", "query": text})).requests == []


@pytest.mark.parametrize(
    "changed",
    [
        {"stages_ms": {"embed": 1.0}},
        {"stages_ms": {"total": -1.0}},
        {"stages_ms": {"total": float("nan")}},
        {"stages_ms": {"total": "1"}},
        {"stages_ms": None},
        {"timestamp": None},
        {"timestamp": "yesterday"},
        {"timestamp": "0001-01-01T00:00:00+14:00"},
        {"status": "200"},
        {"status": True},
        {"cold_start": 1},
        {"gateway_ms": float("inf")},
    ],
)
def test_a_request_that_cannot_be_read_is_counted(changed: dict[str, Any]) -> None:
    found = read(json.dumps({**LINE, **changed}) + "\n" + PLAIN)
    assert (len(found.requests), found.unreadable) == (1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        EMF,
        PLAIN[:-1],
        PLAIN.replace('"request"', '"other"'),
        "stages_ms",
        '{"stages_ms": {"total": 1}}',
    ],
)
def test_other_text_is_not_a_request(text: str) -> None:
    found = read(text)
    assert (found.requests, found.unreadable) == ([], 0)


def test_an_interrupt_ends_reading_and_keeps_the_requests_so_far() -> None:
    def lines() -> Iterator[str]:
        yield PLAIN + "\n"
        yield PLAIN + "\n"
        raise KeyboardInterrupt

    reader = LogReader()
    reader.read(lines())
    assert (len(reader.requests), reader.lines, reader.interrupted) == (2, 2, True)
