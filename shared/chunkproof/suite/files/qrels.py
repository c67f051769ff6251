"""Relevance judgments: BEIR's `qrels/*.tsv` and TREC's qrels."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from chunkproof.suite.files.document import Finding, read_text


@dataclass(frozen=True, slots=True)
class Judgment:
    """How relevant a document is to a query, and the line of the judgment."""

    query: str
    document: str
    grade: int
    line: int


@dataclass(frozen=True)
class Qrels:
    """The judgments of a file by query and document, and the problems of the file.

    `elsewhere` has the queries that other files of the same data set judge.
    """

    file: Path
    by_query: Mapping[str, Mapping[str, Judgment]]
    findings: tuple[Finding, ...] = ()
    elsewhere: frozenset[str] = frozenset()

    def grades(self, query: str) -> dict[str, int]:
        """Return the grade of each document judged for the query."""
        return {document: found.grade for document, found in self.by_query.get(query, {}).items()}


def read_beir(file: Path) -> Qrels:
    """Read three tab-separated columns under a header: query-id, corpus-id, score."""
    return _read(file, _beir_columns, skip_header=True)


def read_trec(file: Path) -> Qrels:
    """Read four columns separated by spaces: topic, iteration, document, grade."""
    return _read(file, _trec_columns, skip_header=False)


def _beir_columns(line: str) -> tuple[str, str, str]:
    query, document, grade = line.split("\t")
    return query, document, grade


def _trec_columns(line: str) -> tuple[str, str, str]:
    query, _, document, grade = line.split()
    return query, document, grade


def _read(file: Path, columns: Callable[[str], tuple[str, str, str]], *, skip_header: bool) -> Qrels:
    by_query: dict[str, dict[str, Judgment]] = {}
    findings: list[Finding] = []
    for number, line in _lines(read_text(file)):
        if skip_header and number == 1 and "query" in line.lower():
            continue
        try:
            query, document, grade = columns(line)
            judgment = Judgment(query, document, int(grade), number)
        except ValueError:
            findings.append(Finding(file.name, number, "not a judgment: query, document and a whole number"))
            continue
        first = by_query.setdefault(query, {}).setdefault(document, judgment)
        if first is not judgment:
            findings.append(_describe_repetition(file, first, judgment))
    return Qrels(file, by_query, tuple(findings))


def _describe_repetition(file: Path, first: Judgment, again: Judgment) -> Finding:
    what = f"{again.document} for query {again.query}"
    if first.grade == again.grade:
        return Finding(file.name, again.line, f"judges {what} again, as line {first.line} did", fatal=False)
    contradiction = f"judges {what} as {again.grade}, line {first.line} as {first.grade}"
    return Finding(file.name, again.line, contradiction)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line.rstrip("\r")
