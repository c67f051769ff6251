"""Trace one warm search and one warm validation through the Lambda handlers, file by file (`make walk`).

Both run against a Qdrant server with the sample handbook and a loopback server that speaks Cohere's API. For each
request: totals, then the files of shared/ and functions/ in the order of their first call, each with its functions.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from support.api import Event, invoke, new_process, post
from support.cloud import handbook_host
from support.qdrant_server import NoServerError
from support.quiet import silence_handlers

ROOT = Path(__file__).resolve().parents[1]
TRACED = (f"{ROOT}/shared/", f"{ROOT}/functions/")
WARM_UP = 3
CHUNK = "vectordb-operations-00"
# Every query has another text: one whose embedding is cached would not reach Cohere's client.
REQUESTS: dict[str, Callable[[int], Event]] = {
    "POST /search": lambda turn: post("/search", {"query_text": f"How do I take a backup, take {turn}?"}),
    "POST /validate-chunk": lambda _: post("/validate-chunk", {"chunk_id": CHUNK, "original_text": "x"}),
}


@dataclass
class File:
    """A file on the way: its functions in the order of their first call, and the calls from other files."""

    functions: dict[str, None] = field(default_factory=dict)
    callers: set[str] = field(default_factory=set)
    entries: int = 0


@dataclass
class Walk:
    """The files that a request crosses, in the order of their first call."""

    files: dict[str, File] = field(default_factory=dict)
    # Calls of Python and C functions, also in libraries: a measure of the work that is the same on every machine.
    calls: int = 0

    def record(self, event: Event) -> None:
        """Invoke the handler and record its calls; the servers answer in threads, which are not traced."""
        sys.setprofile(self._on_event)
        try:
            reply = invoke(event)
        finally:
            sys.setprofile(None)
        if reply.status != 200:
            raise RuntimeError(reply.text)

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        self.calls += event in ("call", "c_call")
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        # A lambda or a comprehension belongs to the function around it.
        if event != "call" or not path.startswith(TRACED) or name.startswith("<"):
            return
        file = self.files.setdefault(path, File())
        file.functions.setdefault(frame.f_code.co_qualname)
        caller = frame.f_back
        while caller and not caller.f_code.co_filename.startswith(TRACED):
            caller = caller.f_back
        if caller is None or caller.f_code.co_filename != path:
            file.entries += 1
            file.callers.add(caller.f_code.co_qualname if caller else "the Lambda runtime")

    def count_functions(self) -> int:
        """Count the functions of all files."""
        return sum(len(file.functions) for file in self.files.values())

    def report(self, title: str) -> Iterator[str]:
        """Yield the totals, then the files with their functions."""
        lines = {path: len(Path(path).read_text("utf-8").splitlines()) for path in self.files}
        often = sum(len(file.callers) > 3 for file in self.files.values())
        total = sum(lines.values())
        yield f"{title}: {len(lines)} files, {self.count_functions()} functions, {total:,} lines in these files"
        yield f"{self.calls:,} calls of functions, including libraries and C"
        yield f"{often} files are called from more than three functions of other files"
        yield f"  {'file':44} lines functions callers entries"
        for path, file in self.files.items():
            name = str(Path(path).relative_to(ROOT))
            yield f"  {name:44} {lines[path]:5} {len(file.functions):9} {len(file.callers):7} {file.entries:7}"
            yield from (f"      {function}" for function in file.functions)


def walk_requests() -> dict[str, Walk]:
    """Trace each request after some warm-up; return the walks by their titles."""
    walks = {title: Walk() for title in REQUESTS}
    with (
        silence_handlers(),
        handbook_host("0.0.0.0") as host,
        # The official Qdrant client keeps no connection to 127.0.0.1.
        mock.patch.dict(os.environ, host.variables("127.0.0.2")),
        new_process(),
    ):
        for title, make_event in REQUESTS.items():
            for turn in range(WARM_UP):
                invoke(make_event(turn))
            walks[title].record(make_event(WARM_UP))
    return walks


def main() -> None:
    for title, walk in walk_requests().items():
        print("\n".join(walk.report(title)) + "\n")


if __name__ == "__main__":
    try:
        main()
    except NoServerError as reason:
        sys.exit(f"This needs a Qdrant server: {reason}")
