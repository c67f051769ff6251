"""A parsed file that knows the line of each of its parts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

from chunkproof.errors import InvalidParameterError
from chunkproof.models.json import Path


@dataclass(frozen=True)
class Document:
    """The value in a file, and the line of each part."""

    value: Any
    lines: Mapping[Path, int]

    def line_of(self, path: Path) -> int:
        """Return the line of this part, or of the nearest enclosing part that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with its file and line."""

    file: str
    line: int
    message: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class BrokenFileError(InvalidParameterError):
    """The file cannot be used; each message names a line, and `findings` has them as objects."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__(*InvalidParameterError.listing([str(found) for found in self.findings]).messages)


def read_text(file: File) -> str:
    """Read the file's text; `InvalidParameterError` says why it cannot be read."""
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InvalidParameterError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidParameterError(f"{file}: not UTF-8 at byte {error.start}") from None
