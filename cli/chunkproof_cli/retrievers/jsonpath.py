"""The part of JSONPath that a mapping needs: `$`, `.name`, `['name']`, `[0]`, `[-1]`, `[*]` and `.*`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chunkproof.errors import InvalidParameterError

_STEP = re.compile(
    r"""\.?\[\s*(?:(?P<index>-?\d+)|(?P<all>\*)|'(?P<single>[^']*)'|"(?P<double>[^"]*)")\s*\]"""
    r"""|\.?(?P<any>\*)|\.?(?P<name>[^.\[\]'"*\s]+)"""
)

Step = str | int | None


class JsonPath:
    """A path into a JSON value; `$` at its beginning may be left out."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._steps = tuple(_parse(text))

    @property
    def is_list(self) -> bool:
        """Whether the path can have more than one value."""
        return None in self._steps

    def find(self, value: Any) -> list[Any]:
        """Return every value at this path, in order; what is not there is left out."""
        found = [value]
        for step in self._steps:
            found = [inner for outer in found for inner in _follow(outer, step)]
        return found

    def first(self, value: Any) -> Any:
        """Return the first value at this path, None without any."""
        return next(iter(self.find(value)), None)


def _parse(text: str) -> Iterator[Step]:
    """Yield a name, an index, or None for every element."""
    rest = text.strip().removeprefix("$")
    if ".." in rest:
        raise InvalidParameterError(f"{text}: '..' is not supported; write the whole path, such as $.hits[*].id")
    while rest:
        step = _STEP.match(rest)
        if step is None:
            raise InvalidParameterError(f"{text} is not a path such as $.hits[*].id: {rest!r} cannot be read")
        rest = rest[step.end() :]
        if step["index"] is not None:
            yield int(step["index"])
        elif step["all"] or step["any"]:
            yield None
        else:
            yield next(name for name in (step["single"], step["double"], step["name"]) if name is not None)


def _follow(value: Any, step: Step) -> Sequence[Any]:
    if isinstance(value, Mapping):
        return list(value.values()) if step is None else [value[step]] if step in value else []
    if not isinstance(value, list | tuple):
        return []
    if step is None:
        return value
    in_range = isinstance(step, int) and -len(value) <= step < len(value)
    return [value[step]] if isinstance(step, int) and in_range else []
