"""Read YAML with JSON's types (`no` and `2026-01-01` are strings) and with the line of each part."""

import re
import sys
from collections.abc import Hashable
from math import isfinite
from typing import Any

import yaml

from chunkproof.contract.model import MAX_DEPTH, Faulty, Path, Repeated, display_name
from chunkproof.suite.located_document import BrokenFileError, FileProblem, LineNumbers, LocatedDocument

MAX_REPEATED = 100_000  # values and characters that aliases add: nested, they expand to more than fits in memory
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "~": None, "": None}
_INTEGER = re.compile(r"[-+]?[0-9]{1,400}")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.inf|\.nan", re.I)
_Parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(text: str, name: str, max_values: int = sys.maxsize) -> LocatedDocument:
    """Read the document and its lines; `BrokenFileError` has the line where it is not valid YAML."""
    lines = LineNumbers(text)
    try:
        _check_size(text, name, lines, max_values)
        root = yaml.compose(text, Loader=_Parser)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = lines.at(mark.index) if mark else 1
        raise BrokenFileError([FileProblem(name, line, f"not valid YAML: {error.problem}")]) from None
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise BrokenFileError([FileProblem(name, 1, f"not valid YAML: {reason}")]) from None
    if root is None:
        return LocatedDocument(None, {})
    reader = _Reader(name, lines, MAX_REPEATED + 4 * len(text))
    return LocatedDocument(reader.value(root, ()), reader.lines)


def _check_size(text: str, name: str, lines: LineNumbers, max_values: int) -> None:
    """Refuse too many values, and deep nesting before yaml.compose, which recurses and can crash the process."""
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_Parser)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH or number > max_values:
            why = f"nested deeper than {MAX_DEPTH} levels" if depth > MAX_DEPTH else f"more than {max_values:,} values"
            raise BrokenFileError([FileProblem(name, lines.at(event.start_mark.index), why)])


class _Reader:
    """Converts nodes into plain values and notes their lines."""

    def __init__(self, name: str, numbers: LineNumbers, room: int) -> None:
        self.lines: dict[Path, int] = {}
        self._name = name
        self._numbers = numbers
        self._left = room

    def value(self, node: yaml.Node, path: Path) -> Any:
        line = self._line(node)
        self.lines.setdefault(path, line)
        self._left -= 1 + len(node.value)
        if self._left < 0 or len(path) > MAX_DEPTH:
            raise BrokenFileError([FileProblem(self._name, line, "nested too deeply, or too large")])
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        quoted = isinstance(node, yaml.ScalarNode) and node.style
        return node.value if quoted else _plain(node.value)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        fields = Repeated()
        twice: list[str] = []
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if key in fields:
                twice.append(key)
            self.lines[(*path, key)] = self._line(key_node)
            fields[key] = self.value(value_node, (*path, key))
        fields.names = tuple(dict.fromkeys(twice))
        return fields if twice else dict(fields)

    def _line(self, node: yaml.Node) -> int:
        return self._numbers.at(node.start_mark.index)

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise BrokenFileError([FileProblem(self._name, self._line(node), "a name must be a text")])
        return str(node.value)


def _plain(word: str) -> Hashable:
    """Return the value of an unquoted word by the core schema of YAML 1.2."""
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(word):
        return int(word)
    if _NUMBER.fullmatch(word) or _NO_NUMBER.fullmatch(word):
        number = float(word.replace(".inf", "inf").replace(".nan", "nan"))
        return number if isfinite(number) else Faulty(f"must be a finite number, not {display_name(word)}")
    return word
