"""Capture log records of a module, and the log lines of a handler on standard output."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from chunkproof.service.telemetry import logger

Line = dict[str, Any]


@contextmanager
def capture_records(module: str) -> Iterator[list[logging.LogRecord]]:
    """Collect the records of this module, from level INFO up."""
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
class CapturedOutput:
    """Everything on standard output so far; each line is a JSON object."""

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
        """The request lines."""
        return self.saying("request")

    @property
    def metrics(self) -> list[Line]:
        """The lines in the embedded metric format."""
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
    """The current standard output: pytest replaces it between a fixture and its test."""

    def write(self, text: str) -> None:
        sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


@contextmanager
def capture_stdout(capsys: pytest.CaptureFixture[str]) -> Iterator[CapturedOutput]:
    """Capture what handlers write. The logger keeps the stream it was made with, so that is replaced too."""
    handler: Any = logger.registered_handler
    before, handler.stream = handler.stream, _Now()
    try:
        yield CapturedOutput(capsys)
    finally:
        handler.stream = before
