"""A clock that only moves when a test sets it."""

from dataclasses import dataclass
from types import ModuleType

import pytest


@dataclass
class Clock:
    """Seconds, as `time.monotonic` counts them."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


def replace_clock(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the clock of a module, and return the new one."""
    clock = Clock()
    monkeypatch.setattr(module, "monotonic", clock)
    return clock
