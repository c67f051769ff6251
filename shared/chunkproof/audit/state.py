"""Where an audit is. Written after every page, so that an interruption at any moment loses nothing but that page."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

from pydantic import Field

from chunkproof.errors import InvalidParameterError
from chunkproof.models import Model

FILE = "state.json"
LOGS = ("findings", "missing", "strays")


class Job(Model):
    """What is audited, and how; an audit goes on only with the same."""

    collection: str
    host: str
    manifest_sha256: str
    entries: int
    chunks: int
    by_ids: bool
    sample: int | None = None
    vectors: int | None = None
    model: str | None = None


class Progress(Model):
    """How far it is. Lengths of the logs are kept, so that what was written after the last state is cut off."""

    job: Job
    manifest_bytes: int = 0
    phase: str = "read"
    next_point: int | str | None = None
    offset: int = 0
    settled: int = 0
    embedded: int = 0
    lengths: dict[str, int] = Field(default_factory=dict)
    seen: int = 0
    points: int = 0
    changed: int = 0
    vectors_ok: int = 0
    checked: int = 0
    seconds: float = 0.0
    reading_seconds: float = 0.0
    resumed: int = 0


class Logs:
    """The files that an audit appends to, cut to where the last state left them."""

    def __init__(self, folder: Path, lengths: dict[str, int]) -> None:
        self.folder = folder
        self._files: dict[str, IO[bytes]] = {}
        for name in LOGS:
            path = folder / f"{name}.log"
            path.touch()
            if path.stat().st_size < lengths.get(name, 0):
                raise InvalidParameterError(
                    f"{path} is shorter than the audit left it: it cannot go on; start anew with --restart"
                )
            file = path.open("r+b")
            file.truncate(lengths.get(name, 0))
            file.seek(0, 2)
            self._files[name] = file

    def add(self, name: str, line: bytes) -> None:
        """One more line."""
        self._files[name].write(line)

    def lengths(self) -> dict[str, int]:
        """What has been written for good."""
        for file in self._files.values():
            file.flush()
        return {name: file.tell() for name, file in self._files.items()}

    def read(self, name: str) -> Iterator[bytes]:
        """All lines so far."""
        self._files[name].flush()
        with (self.folder / f"{name}.log").open("rb") as file:
            yield from file

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, lengths: dict[str, int]) -> Iterator[Self]:
        """The logs, closed at the end."""
        logs = cls(folder, lengths)
        try:
            yield logs
        finally:
            logs.close()


def save(folder: Path, progress: Progress) -> None:
    """Replace the state; a reader sees the old one or the new one, never half of it."""
    new = folder / f"{FILE}.new"
    new.write_text(progress.to_json(), "utf-8")
    new.replace(folder / FILE)


def saved(folder: Path) -> Progress | None:
    """The state that an interrupted audit left here."""
    try:
        return Progress.model_validate(json.loads((folder / FILE).read_text("utf-8")), strict=False)
    except FileNotFoundError:
        return None
    except ValueError:
        raise InvalidParameterError(
            f"{folder / FILE} is not the state of an audit; start anew with --restart"
        ) from None
