"""A clock that goes when it is told to."""

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
    """The clock that this module looks at from now on."""
    clock = Clock()
    monkeypatch.setattr(module, "monotonic", clock)
    return clock
