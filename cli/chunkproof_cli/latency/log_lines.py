"""Text of any kind → the request lines in it, as docs/reference/logs.md describes them."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Who prints a document over several lines indents what is inside, and closes it at the start of a line.
_GOES_ON = (" ", "\t", "}", "]")
# The one field that no other line has.
_MARK = "stages_ms"
# Where CloudWatch puts a line into a document of its own: `filter-log-events`, and answers of Logs Insights.
_CARRIERS = ("message", "@message", "value")
_YEARS = range(2000, 3000)
_DECODER = json.JSONDecoder()


def _time(value: Any) -> datetime:
    read = datetime.fromisoformat(value) if isinstance(value, str) else None
    if read is None or read.year not in _YEARS:
        raise ValueError("no time")
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)


def _with_total(stages: dict[str, float]) -> dict[str, float]:
    if "total" not in stages:
        raise ValueError("no total")
    return stages


Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LoggedRequest(BaseModel):
    """What the log tells of one request, as far as it concerns its times."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    at: Annotated[datetime, BeforeValidator(_time), Field(alias="timestamp")]
    route: str | None = None
    status: int
    code: str | None = None
    cold_start: bool
    gateway_ms: Milliseconds | None = None
    stages_ms: Annotated[dict[str, Milliseconds], AfterValidator(_with_total)]

    @property
    def total_ms(self) -> float:
        """From the handler's first line to its last."""
        return self.stages_ms["total"]

    @property
    def waited_ms(self) -> float:
        """What the target is about: the time since API Gateway had the request, where there is one."""
        return self.total_ms if self.gateway_ms is None else self.gateway_ms


@dataclass
class LogReader:
    """Takes the requests out of lines, and counts both."""

    lines: int = 0
    interrupted: bool = False
    unreadable: int = 0
    requests: list[LoggedRequest] = field(default_factory=list)

    def read(self, lines: Iterable[str]) -> None:
        """Read to the end, or until Ctrl-C: whoever pipes a running server in has no other end."""
        for block in self._blocks(lines):
            if _MARK not in block:
                continue
            # In a CSV file of CloudWatch, quotes inside of a field are doubled.
            text = block.replace('""', '"') if f'""{_MARK}""' in block else block
            for found in _objects(text):
                for line in _request_lines(found):
                    self._keep(line)

    def _blocks(self, lines: Iterable[str]) -> Iterator[str]:
        """A line with those that go on with it."""
        block: list[str] = []
        try:
            for line in lines:
                self.lines += 1
                plain = _COLOURS.sub("", line)
                if block and not plain.startswith(_GOES_ON):
                    yield "".join(block)
                    block = []
                block.append(plain)
        except KeyboardInterrupt:
            self.interrupted = True
        yield "".join(block)

    def _keep(self, line: dict[str, Any]) -> None:
        try:
            self.requests.append(LoggedRequest.model_validate(line))
        except ValidationError:
            self.unreadable += 1


def _objects(text: str) -> Iterator[Any]:
    """Every JSON object in a text, outermost ones only: what a caller wrote into a field is no line."""
    at = text.find("{")
    while at >= 0:
        try:
            found, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
        else:
            yield found
        at = text.find("{", at)


def _request_lines(found: Any) -> Iterator[dict[str, Any]]:
    if isinstance(found, list):
        for item in found:
            yield from _request_lines(item)
    elif isinstance(found, dict) and found.get("message") == "request" and _MARK in found:
        yield found
    elif isinstance(found, dict):
        for name, value in found.items():
            if isinstance(value, list | dict):
                yield from _request_lines(value)
            elif name in _CARRIERS and isinstance(value, str) and _MARK in value:
                yield from _carried(value)


def _carried(text: str) -> Iterator[dict[str, Any]]:
    try:
        yield from _request_lines(json.loads(text))
    except (ValueError, RecursionError):
        return
