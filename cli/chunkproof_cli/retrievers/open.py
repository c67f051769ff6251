"""Open the retriever that `--retriever` names."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from chunkproof.errors import InvalidParameterError
from chunkproof.retrieval.backend import Backend
from chunkproof.suite.cases import TestCase
from chunkproof_cli.retrievers.backend import Retriever, RetrieverBackend
from chunkproof_cli.retrievers.mapping import Mapper, read_mapper
from chunkproof_cli.retrievers.python_object import PythonRetriever
from chunkproof_cli.retrievers.recorded import RecordedRetriever

_ATTRIBUTE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
KINDS = "http(s)://…, module:attribute, mcp:TOOL@SERVER or a recorded run (TREC or .jsonl)"


@contextmanager
def open_retriever(
    name: str, mapping: str | None, store: Backend | None, cases: Sequence[TestCase]
) -> Iterator[RetrieverBackend]:
    """Open a retriever as a backend; `store` has the collection that diagnosis looks into."""
    mapper = read_mapper(mapping)
    retriever = _choose(name, mapper, cases)
    try:
        yield RetrieverBackend(_shown(name), retriever, mapper, store, cases)
    finally:
        retriever.close()


def _shown(name: str) -> str:
    """Return the name for reports, without what may be secret: parameters and passwords of a URL, commands."""
    if name.startswith("mcp:"):
        return name.partition("@")[0]
    parts = urlsplit(name)
    if parts.scheme not in ("http", "https"):
        return name
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _choose(name: str, mapper: Mapper, cases: Sequence[TestCase]) -> Retriever:
    if name.startswith(("http://", "https://")):
        from chunkproof_cli.retrievers.http_service import HttpRetriever

        return HttpRetriever(name, mapper)
    if name.startswith("mcp:"):
        from chunkproof_cli.retrievers.mcp_tool import McpRetriever

        return McpRetriever(name.removeprefix("mcp:"), mapper)
    file = Path(name)
    if file.is_file():
        return RecordedRetriever(file, mapper, cases)
    if _ATTRIBUTE.fullmatch(name):
        return PythonRetriever(name, mapper)
    raise InvalidParameterError(f"--retriever {name}: there is no such file; a retriever is {KINDS}")
