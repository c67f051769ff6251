"""Read JSON with the line of each of its parts."""

from bisect import bisect_right
from json import JSONDecodeError, JSONDecoder

from chunkproof.errors import InvalidParameterError
from chunkproof.models.json import MAX_DEPTH, Path, read_json
from chunkproof.suite.files.document import BrokenFileError, Document, Finding

_SPACE = " \t\n\r"


def read_json_document(text: str, name: str) -> Document:
    """Read the document and its lines; `BrokenFileError` when it is not JSON."""
    try:
        value = read_json(text, "the file")
    except InvalidParameterError as error:
        raise BrokenFileError([Finding(name, _line_of_fault(text), error.message)]) from None
    scanner = _Scanner(text, name)
    scanner.scan(0, ())
    return Document(value, scanner.lines)


def _line_of_fault(text: str) -> int:
    """Return the line where the text stops being JSON."""
    try:
        JSONDecoder().decode(text)
    except JSONDecodeError as error:
        return error.lineno
    except RecursionError:
        pass
    return 1


class _Scanner:
    """Walks over a text that is known to be valid JSON."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self.lines: dict[Path, int] = {}
        self._text = text
        self._ends = [at for at, character in enumerate(text) if character == "\n"]
        self._scalar = JSONDecoder().raw_decode

    def scan(self, at: int, path: Path) -> int:
        """Note the line of the value that starts at or after this position; return where it ends."""
        at = self._skip(at)
        self.lines.setdefault(path, self._line(at))
        if len(path) > MAX_DEPTH:
            raise BrokenFileError([Finding(self._name, self._line(at), "nested too deeply")])
        if self._text[at] == "{":
            return self._object(at + 1, path)
        if self._text[at] == "[":
            return self._array(at + 1, path)
        _, end = self._scalar(self._text, at)
        return end

    def _object(self, at: int, path: Path) -> int:
        at = self._skip(at)
        while self._text[at] != "}":
            line = self._line(at)
            key, at = self._scalar(self._text, at)
            self.lines[(*path, key)] = line
            at = self._next(self.scan(self._skip(at) + 1, (*path, key)))
        return at + 1

    def _array(self, at: int, path: Path) -> int:
        at, index = self._skip(at), 0
        while self._text[at] != "]":
            at = self._next(self.scan(at, (*path, index)))
            index += 1
        return at + 1

    def _next(self, at: int) -> int:
        """Skip a comma, if there is one."""
        at = self._skip(at)
        return self._skip(at + 1) if self._text[at] == "," else at

    def _skip(self, at: int) -> int:
        while at < len(self._text) and self._text[at] in _SPACE:
            at += 1
        return at

    def _line(self, at: int) -> int:
        return bisect_right(self._ends, at - 1) + 1
