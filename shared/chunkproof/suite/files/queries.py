"""Read the queries of test collections: BEIR's `queries.jsonl`, TREC's topics."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chunkproof.errors import InvalidParameterError
from chunkproof.models import read_json
from chunkproof.suite.files.document import Finding, read_text

_TOPIC = re.compile(r"<top>(.*?)</top>", re.S | re.I)
_NUMBER = re.compile(r"<num>\s*(?:Number:)?\s*([^\s<]+)", re.I)
_TITLE = re.compile(r"<title>\s*(?:Topic:)?\s*(.*?)\s*(?=<|\Z)", re.S | re.I)


@dataclass(frozen=True, slots=True)
class Query:
    """A question, its id and its line."""

    id: str
    text: str
    line: int


def read_queries(file: Path) -> tuple[list[Query], list[Finding]]:
    """Read BEIR's queries: an object with `_id` and `text` on each line."""
    queries: list[Query] = []
    findings: list[Finding] = []
    for number, line in enumerate(read_text(file).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            fields = read_json(line, "the line")
        except InvalidParameterError as error:
            findings.append(Finding(file.name, number, error.message))
            continue
        key, text = (fields.get("_id"), fields.get("text")) if isinstance(fields, dict) else (None, None)
        if isinstance(key, str | int) and isinstance(text, str):
            queries.append(Query(str(key), text, number))
        else:
            findings.append(Finding(file.name, number, "not a query: an object with _id and text"))
    return queries, findings


def read_topics(file: Path) -> tuple[list[Query], list[Finding]]:
    """Read TREC's topics: `<top>` elements with number and title, or lines of id, tab and question."""
    text = read_text(file)
    if re.search(r"<top>", text, re.I):
        return list(_parse_topics(text)), []
    queries: list[Query] = []
    findings: list[Finding] = []
    for number, line in enumerate(text.split("\n"), start=1):
        key, tab, question = line.strip().partition("\t")
        if tab:
            queries.append(Query(key.strip(), question.strip(), number))
        elif line.strip():
            findings.append(Finding(file.name, number, "not a topic: an id, a tab and a question"))
    return queries, findings


def _parse_topics(text: str) -> Iterator[Query]:
    for topic in _TOPIC.finditer(text):
        number, title = _NUMBER.search(topic[1]), _TITLE.search(topic[1])
        line = text.count("\n", 0, topic.start()) + 1
        yield Query(number[1] if number else "", " ".join(title[1].split()) if title else "", line)
