"""Find request lines, as docs/reference/logs.md describes them, in text of any kind."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

_COLOUR_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# A document over several lines is indented inside, and closed at the start of a line.
_CONTINUATIONS = (" ", "\t", "}", "]")
# Only request lines have this field.
_MARK = "stages_ms"
# Where CloudWatch wraps a line: in `filter-log-events` and in results of Logs Insights.
_WRAPPERS = ("message", "@message", "value")
_YEARS = range(2000, 3000)
_DECODER = json.JSONDecoder()


def _parse_time(value: Any) -> datetime:
    read = datetime.fromisoformat(value) if isinstance(value, str) else None
    if read is None or read.year not in _YEARS:
        raise ValueError("not a time")
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)


def _require_total(stages: dict[str, float]) -> dict[str, float]:
    if "total" not in stages:
        raise ValueError("no total")
    return stages


Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LoggedRequest(BaseModel):
    """The fields of a request line that latency needs."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    at: Annotated[datetime, BeforeValidator(_parse_time), Field(alias="timestamp")]
    route: str | None = None
    status: int
    code: str | None = None
    cold_start: bool
    gateway_ms: Milliseconds | None = None
    stages_ms: Annotated[dict[str, Milliseconds], AfterValidator(_require_total)]

    @property
    def total_ms(self) -> float:
        """Time in the handler."""
        return self.stages_ms["total"]

    @property
    def waited_ms(self) -> float:
        """Time that the caller waited: since API Gateway received the request, if it did."""
        return self.total_ms if self.gateway_ms is None else self.gateway_ms

    def is_left_out(self, target_ms: int) -> bool:
        """Whether it failed in time: then it is neither within the target nor beyond it."""
        return self.status >= 400 and self.waited_ms <= target_ms


@dataclass
class LogReader:
    """Reads lines, keeps the requests among them, and counts both."""

    lines: int = 0
    interrupted: bool = False
    unreadable: int = 0
    requests: list[LoggedRequest] = field(default_factory=list)

    def read(self, lines: Iterable[str]) -> None:
        """Read to the end, or until Ctrl-C, which is the only end when a running server is piped in."""
        for block in self._blocks(lines):
            if _MARK not in block:
                continue
            # In a CSV file from CloudWatch, quotes inside a field are doubled.
            text = block.replace('""', '"') if f'""{_MARK}""' in block else block
            for found in _objects(text):
                for line in _request_lines(found):
                    self._keep(line)

    def _blocks(self, lines: Iterable[str]) -> Iterator[str]:
        """Join each line with its continuations."""
        block: list[str] = []
        try:
            for line in lines:
                self.lines += 1
                plain = _COLOUR_CODES.sub("", line)
                if block and not plain.startswith(_CONTINUATIONS):
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
    """Find the outermost JSON objects in a text; a request line that a caller wrote into a field is not one."""
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
            elif name in _WRAPPERS and isinstance(value, str) and _MARK in value:
                yield from _wrapped_lines(value)


def _wrapped_lines(text: str) -> Iterator[dict[str, Any]]:
    try:
        yield from _request_lines(json.loads(text))
    except (ValueError, RecursionError):
        return
