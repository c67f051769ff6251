"""What is logged: by one module, or by a handler on standard output, which is where Lambda collects it."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from chunkproof.runtime.telemetry import logger

Line = dict[str, Any]


@contextmanager
def records_of(module: str) -> Iterator[list[logging.LogRecord]]:
    """The records of this module, as they come, from level INFO on."""
    records: list[logging.LogRecord] = []
    keeper = logging.Handler()
    keeper.emit = records.append
    log = logging.getLogger(module)
    level = log.level
    log.addHandler(keeper)
    log.setLevel(logging.INFO)
    try:
        yield records
    finally:
        log.removeHandler(keeper)
        log.setLevel(level)


@dataclass
class Written:
    """Everything on standard output so far; every line of it is a JSON object."""

    capsys: pytest.CaptureFixture[str]
    _text: str = ""

    @property
    def text(self) -> str:
        self._text += self.capsys.readouterr().out
        return self._text

    @property
    def lines(self) -> list[Line]:
        return [json.loads(line) for line in self.text.split("\n") if line]

    @property
    def requests(self) -> list[Line]:
        """The lines that tell of a request."""
        return self.saying("request")

    @property
    def metrics(self) -> list[Line]:
        """The lines that CloudWatch makes metrics of."""
        return [line for line in self.lines if "_aws" in line]

    @property
    def warnings(self) -> list[str]:
        return [line["message"] for line in self.lines if line.get("level") == "WARNING"]

    def saying(self, message: str) -> list[Line]:
        """The lines with this message."""
        return [line for line in self.lines if line.get("message") == message]

    def clear(self) -> None:
        self.capsys.readouterr()
        self._text = ""


class _Now:
    """Standard output as it is at the time: pytest changes it between a fixture and its test."""

    def write(self, text: str) -> None:
        sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


@contextmanager
def stdout(capsys: pytest.CaptureFixture[str]) -> Iterator[Written]:
    """What handlers write meanwhile. The logger took hold of the stream when it was made, so it is told."""
    handler: Any = logger.registered_handler
    before, handler.stream = handler.stream, _Now()
    try:
        yield Written(capsys)
    finally:
        handler.stream = before
