"""The state of an audit on disk, written after every page: an interruption loses at most that page."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex
from typing import IO

from pydantic import Field

from chunkproof.errors import InvalidParameterError
from chunkproof.models import Model

STATE_FILE = "state.json"
LOG_NAMES = ("findings", "absent", "strays", "missing", "unclaimed", "pairs")


class AuditSpec(Model):
    """What is audited, and how; an audit can be resumed only with the same."""

    collection: str
    host: str
    manifest_sha256: str
    entries: int
    chunks: int
    by_ids: bool
    sample: int | None = None
    vectors: int | None = None
    model: str | None = None
    match_by: str = "text"
    near_duplicates: float | None = None
    presence_only: int = 0
    version: str | None = None


class Progress(Model):
    """How far an audit is. What the logs hold beyond `log_lengths` was written after this state, and is cut off."""

    spec: AuditSpec
    process: str = Field(default_factory=lambda: token_hex(8), description="Which process writes this state")
    manifest_bytes: int = 0
    phase: str = "read"
    next_point: int | str | None = None
    offset: int = 0
    matched: int = 0
    vector_offset: int = 0
    log_lengths: dict[str, int] = Field(default_factory=dict)
    compared: int = 0
    points: int = 0
    changed: int = 0
    missing_ids: int = 0
    by_text: int = 0
    by_nearest_text: int = 0
    repeated_texts: int = 0
    extra_points: int = 0
    near_duplicates: int = 0
    vectors_ok: int = 0
    vectors_checked: int = 0
    same_from: float | None = None
    seconds: float = 0.0
    reading_seconds: float = 0.0
    resumed: int = 0


class Logs:
    """The files that an audit appends to, cut to their lengths in the last state."""

    def __init__(self, folder: Path, lengths: dict[str, int]) -> None:
        self.folder = folder
        self._files: dict[str, IO[bytes]] = {}
        for name in LOG_NAMES:
            path = folder / f"{name}.log"
            path.touch()
            if path.stat().st_size < lengths.get(name, 0):
                raise InvalidParameterError(
                    f"{path} has changed since the audit was interrupted: start again with --restart"
                )
            file = path.open("r+b")
            file.truncate(lengths.get(name, 0))
            file.seek(0, 2)
            self._files[name] = file

    def add(self, name: str, line: bytes) -> None:
        """Add a line to a log."""
        self._files[name].write(line)

    def flush(self) -> dict[str, int]:
        """Write what is buffered, and return the lengths of the logs."""
        for file in self._files.values():
            file.flush()
        return {name: file.tell() for name, file in self._files.items()}

    def read(self, name: str) -> Iterator[bytes]:
        """Yield all lines so far."""
        self._files[name].flush()
        with (self.folder / f"{name}.log").open("rb") as file:
            yield from file

    def close(self) -> None:
        """Close the files; on a full disk each of them can fail, and the others are closed all the same."""
        with ExitStack() as closing:
            for file in self._files.values():
                closing.callback(file.close)


def create_state(folder: Path, progress: Progress) -> None:
    """Save the first state of a process: of a new audit, or of one that it resumes."""
    new = folder / f"{STATE_FILE}.new"
    new.write_text(progress.to_json(), "utf-8")
    new.replace(folder / STATE_FILE)


def save_state(folder: Path, progress: Progress) -> None:
    """Replace the state atomically; refuse if it is not this process's own any more."""
    found = load_state(folder)
    if found is None or found.process != progress.process:
        raise InvalidParameterError(
            f"{folder} was removed or taken over by another audit while this one ran: "
            "start again, with a folder of its own (--state)"
        )
    create_state(folder, progress)


def load_state(folder: Path) -> Progress | None:
    """Load the state that an interrupted audit left here; None when there is none."""
    try:
        return Progress.model_validate(json.loads((folder / STATE_FILE).read_text("utf-8")), strict=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        raise InvalidParameterError(
            f"{folder / STATE_FILE} is not the state of an audit: start again with --restart"
        ) from None
