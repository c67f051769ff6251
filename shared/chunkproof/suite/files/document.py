"""A parsed file that knows the line of each of its parts."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

from chunkproof.errors import InvalidParameterError
from chunkproof.models.json import Path, display_name, format_path
from chunkproof.suite.problems import Problem


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with its file and line."""

    file: str
    line: int
    message: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Document:
    """The value in a file, and the line of each part."""

    value: Any
    lines: Mapping[Path, int]

    def locate(self, problem: Problem, name: str) -> Finding:
        """Return the problem with the line of its part, or of the nearest enclosing part that is in the file.

        A value that a case inherits is where the suite sets it; the message then names the case.
        """
        path = next((known for known in self._spellings(problem.path) if known in self.lines), problem.path)
        while path and path not in self.lines:
            path = path[:-1]
        message = problem.message
        if path[:1] == ("defaults",) and problem.path[:1] == ("cases",):
            message += f" (case {display_name(str(self._value_at((*problem.path[:2], 'name'))))})"
        return Finding(name, self.lines.get(self._narrow(path, message), 1), message, problem.fatal)

    def _spellings(self, path: Path) -> Iterator[Path]:
        """Yield where a part of a case can stand: in the case, in the defaults, and for a collection in the suite."""
        yield path
        if path[:1] == ("cases",) and len(path) > 2:
            _, case, field, *rest = path
            names = ("collection", "collection_name") if field == "collection_name" else (field,)
            yield from (("cases", case, name, *rest) for name in names)
            yield from (("defaults", name, *rest) for name in names)
            yield from ((name,) for name in names if len(names) > 1)

    def _narrow(self, path: Path, message: str) -> Path:
        """Return the part below this one that the message begins with, such as `filters.tags[2]`."""
        start = max(0, len(path) - 1)
        while deeper := [
            below
            for below in ((*path, step) for step in _steps(self._value_at(path)))
            if below in self.lines and re.match(rf"{re.escape(format_path(below[start:]))}[ .\[]", message)
        ]:
            path = deeper[0]
        return path

    def _value_at(self, path: Path) -> Any:
        value = self.value
        for step in path:
            value = value[step]
        return value


def _steps(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value
    return range(len(value)) if isinstance(value, list) else ()


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
