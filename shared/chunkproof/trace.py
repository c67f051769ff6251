"""What is noted of a request while it is served: how far it came, how long each stage took, what it was about.

Use cases note; whoever opened the record reads it at the end. Without an open record, notes go nowhere.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from hashlib import sha256
from typing import Any

from chunkproof.deadline import Stopwatch

_current: ContextVar["Record | None"] = ContextVar("record", default=None)


class State(StrEnum):
    """How far a request came."""

    RECEIVED = "received"
    EMBEDDED = "embedded"
    SEARCHED = "searched"
    FILTERED = "filtered"
    FORMATTED = "formatted"
    RETURNED = "returned"


class Record:
    """One request. Stages are in milliseconds; one that was entered twice has the sum.

    `span` is told of every stage as it ends, for a tracer.
    """

    def __init__(self, span: Callable[[str, float], None] | None = None) -> None:
        self._span = span
        self.state = State.RECEIVED
        self.stages: dict[str, float] = {}
        self.facts: dict[str, Any] = {}
        self._since = Stopwatch()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Notes made inside go to this record."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def lap(self, name: str) -> None:
        """Everything since the last stage ended was this one."""
        ms = self._since.ms()
        self.stages[name] = round(self.stages.get(name, 0.0) + ms, 3)
        self._since = Stopwatch()
        if self._span is not None:
            self._span(name, ms)


@contextmanager
def stage(name: str, reached: State | None = None) -> Iterator[Stopwatch]:
    """Time a stage; when it ends well, the request has reached that state."""
    watch, record = Stopwatch(), _current.get()
    if record is not None:
        record._since = watch
    try:
        yield watch
        if record is not None and reached is not None:
            record.state = reached
    finally:
        if record is not None:
            record.lap(name)


def reach(state: State) -> None:
    """The request has come this far."""
    if (record := _current.get()) is not None:
        record.state = state


def note(**facts: Any) -> None:
    """Something worth keeping of the request."""
    if (record := _current.get()) is not None:
        record.facts |= facts


def note_query(text: str | None, *, in_full: bool) -> None:
    """A query: its length and a hash that finds the same one again; its text only where that is wanted."""
    if text is not None:
        note(query_chars=len(text), query_sha256=sha256(text.encode()).hexdigest()[:16])
        if in_full:
            note(query_text=text)
