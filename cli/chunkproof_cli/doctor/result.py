"""The result of one check."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """The result of a check: passed, worth knowing, or failed."""

    OK = "ok"
    NOTE = "note"
    FAIL = "FAIL"


@dataclass(frozen=True)
class CheckResult:
    """The result of one check, and how to fix what it found."""

    level: Level
    name: str
    message: str
    remedy: str = ""
