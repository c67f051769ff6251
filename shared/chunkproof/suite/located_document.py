"""Documents with the line number of each part: JSON is read here, YAML in `yaml_document`."""

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from json import loads
from pathlib import Path as File
from typing import Any

from chunkproof.base.errors import InvalidParameterError, NotConfiguredError
from chunkproof.base.files import read_text
from chunkproof.contract.model import MAX_DEPTH, Path, display_name, format_path, read_json
from chunkproof.suite.cases import Problem

# A suite of 10,000 cases has a fifth of it. A value takes a kilobyte of memory until its line is known.
MAX_SUITE, MAX_VALUES = 32_000_000, 500_000
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A problem with its file and line."""

    file: str
    line: int
    message: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(frozen=True)
class LocatedDocument:
    """The value in a file, and the line of each part."""

    value: Any
    lines: Mapping[Path, int]

    def locate(self, problem: Problem, name: str) -> FileProblem:
        """Return the problem with the line of its part, or of the nearest enclosing part that is in the file.

        A value that a case inherits is where the suite sets it; the message then names the case.
        """
        path = next((place for place in self._spellings(problem.path) if place in self.lines), problem.path)
        while path and path not in self.lines:
            path = path[:-1]
        message = problem.message
        if path[:1] == ("defaults",) and problem.path[:1] == ("cases",):
            message += f" (case {display_name(str(self._value_at((*problem.path[:2], 'name'))))})"
        return FileProblem(name, self.lines.get(self._narrow(path, message), 1), message, problem.fatal)

    def _spellings(self, path: Path) -> Iterator[Path]:
        """Yield the places that can set a part of a case: the case, the defaults and, for a collection, the suite."""
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

    def __init__(self, findings: Iterable[FileProblem]) -> None:
        self.findings = tuple(findings)
        super().__init__(*InvalidParameterError.listing([str(finding) for finding in self.findings]).messages)


class LineNumbers:
    """The number of the line at a position, as editors count: to YAML, U+0085, U+2028 and U+2029 end a line too."""

    def __init__(self, text: str) -> None:
        self._ends = array("I", (end.start() for end in re.finditer("\n", text)))

    def at(self, position: int) -> int:
        """Return the number of the line, from 1."""
        return bisect_left(self._ends, position) + 1


def read_document(file: File) -> LocatedDocument:
    """Read a .yaml or .json file with the line of each of its parts."""
    text = read_text(file, most=MAX_SUITE)
    if file.suffix == ".json":
        return read_json_document(text, file.name)
    try:
        from chunkproof.suite.yaml_document import read_yaml  # Lambda has no PyYAML
    except ModuleNotFoundError as error:
        raise NotConfiguredError(
            f"{file.name}: reading YAML takes the package {error.name}: pip install pyyaml"
        ) from None
    return read_yaml(text, file.name, MAX_VALUES)


def read_json_document(text: str, name: str) -> LocatedDocument:
    """Read the document and its lines; `BrokenFileError` when it is not JSON."""
    try:
        value = read_json(text, "the file", MAX_VALUES)
    except InvalidParameterError as error:
        place = re.search(r"at line (\d+) column", error.message)
        raise BrokenFileError([FileProblem(name, int(place[1]) if place else 1, error.message)]) from None
    return LocatedDocument(value, _locate_parts(text, name))


def _locate_parts(text: str, name: str) -> dict[Path, int]:
    """Return the line of each part of a valid JSON text; a field begins with its name."""
    numbers, lines = LineNumbers(text), dict[Path, int]()
    steps: list[str | int | None] = []  # into each open list or object; None where a field's name comes next
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "}" | "]":
                steps.pop()
            case ",":
                steps[-1] = steps[-1] + 1 if isinstance(steps[-1], int) else None
            case ":":
                pass
            case mark:
                is_name = bool(steps) and steps[-1] is None
                if is_name:
                    steps[-1] = loads(mark)
                path, line = tuple(step for step in steps if step is not None), numbers.at(token.start())
                lines[path] = line if is_name else lines.get(path, line)
                if len(path) > MAX_DEPTH:
                    raise BrokenFileError([FileProblem(name, line, "nested too deeply")])
                if mark in "[{":
                    steps.append(0 if mark == "[" else None)
    return lines
