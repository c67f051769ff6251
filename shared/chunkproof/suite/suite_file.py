"""Read any kind of suite on disk, with the line of each of its parts: YAML, JSON, a BEIR folder, TREC topics."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any, TypeVar

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.files import MAX_PROBLEMS, read_text, read_text_lines
from chunkproof.contract.model import Limits, Path, read_json
from chunkproof.suite.cases import BrokenSuiteError, Problem, Suite, read_suite
from chunkproof.suite.located_document import MAX_SUITE, BrokenFileError, FileProblem, LineNumbers, read_document

Locate = Callable[[Problem], FileProblem]
Columns = tuple[str, str, int]
Parsed = TypeVar("Parsed")
DOCUMENTS = (".yaml", ".yml", ".json")
_TOPIC = re.compile(r"<top>([^<]*(?:<(?!/?top>)[^<]*)*)</top>", re.I)
_NUMBER = re.compile(r"<num>\s*+(?:Number:)?\s*+([^\s<]+)", re.I)
_TITLE = re.compile(r"<title>\s*+(?:Topic:)?([^<]*)", re.I)


@dataclass(frozen=True)
class SuiteSource:
    """What to read: a file or folder, and the options that go with it."""

    path: File
    split: str | None = None
    qrels: File | None = None
    top_k: int | None = None


@dataclass(frozen=True)
class SuiteFile:
    """A suite that can be run, warnings about it, and the function that adds file and line to a problem."""

    suite: Suite
    locate: Locate
    findings: tuple[FileProblem, ...] = ()


class BrokenSuiteFileError(BrokenFileError):
    """Some of the file is invalid; `rest` is the suite without that, in which `lint` finds further problems."""

    def __init__(self, findings: Sequence[FileProblem], rest: SuiteFile | None) -> None:
        super().__init__(sorted(findings, key=lambda finding: (finding.file, finding.line)))
        self.rest = rest


def read_source(source: SuiteSource) -> SuiteFile:
    """Read the suite; `InvalidParameterError` has everything that keeps it from being run."""
    path = source.path
    if source.qrels is not None:
        qrels = _read_qrels(source.qrels, _trec_columns)
        return _build_suite(path.stem, path, _read_topics(path), qrels, source.top_k)
    if path.is_dir():
        return _read_beir(source)
    if path.suffix not in DOCUMENTS:
        raise InvalidParameterError(
            f"{path}: a suite is a .yaml or .json file, a BEIR folder, or TREC topics with --qrels"
        )
    document = read_document(path)
    return _check(_set_top_k(document.value, source.top_k), lambda problem: document.locate(problem, path.name))


def _set_top_k(document: Any, top_k: int | None) -> Any:
    """Replace the document's default of `top_k`."""
    if top_k is None or not isinstance(document, dict) or not isinstance(document.get("defaults", {}), dict):
        return document
    document["defaults"] = {**document.get("defaults", {}), "top_k": top_k}
    return document


def _check(document: Any, locate: Locate, findings: Sequence[FileProblem] = ()) -> SuiteFile:
    try:
        suite = read_suite(document)
    except BrokenSuiteError as error:
        if not isinstance(document, dict):  # no suite at all, in which nothing can be linted
            raise BrokenFileError(list(map(locate, error.problems))) from None
        rest = _drop_broken_parts(document, locate, error.problems)
        raise BrokenSuiteFileError([*findings, *map(locate, error.problems)], rest) from None
    file = SuiteFile(suite, locate, tuple(findings))
    if any(finding.fatal for finding in findings):
        raise BrokenSuiteFileError(findings, file)
    return file


def _drop_broken_parts(document: Any, locate: Locate, problems: Sequence[Problem]) -> SuiteFile | None:
    """Return the suite without its invalid fields, or without their cases where that is not enough."""
    cases = document.get("cases") if isinstance(document, dict) else None
    if not isinstance(cases, list):
        return None
    fields = {name: value for name, value in document.items() if name in Suite.model_fields and name != "limits"}
    paths = defaultdict[Path, list[Path]](list)
    for problem in problems:
        paths[problem.path[:2]].append(problem.path[2:])
    repaired = {n: _drop_faulty_fields(case, n, paths["cases", n]) for n, case in enumerate(cases)}
    kept = [n for n, case in repaired.items() if case is not None and _try_to_read(fields, [case])]
    suite = _try_to_read(fields, [repaired[n] for n in kept]) if kept else None
    if suite is None:
        return None

    def locate_in_file(problem: Problem) -> FileProblem:
        path = problem.path
        index = path[1] if path[:1] == ("cases",) and len(path) > 1 else None
        moved = ("cases", kept[index], *path[2:]) if isinstance(index, int) else path
        return locate(replace(problem, path=moved))

    return SuiteFile(suite, locate_in_file)


def _drop_faulty_fields(case: Any, number: int, paths: Sequence[Path]) -> dict[str, Any] | None:
    """Return the case without its invalid fields, under a name of its own; None when nothing useful is left."""
    faulty = {path[0] for path in paths if path}
    if not isinstance(case, dict) or () in paths or faulty & {"query_text", "collection", "collection_name"}:
        return None
    kept = {name: value for name, value in case.items() if name not in faulty}
    most = {"top_k": Limits().max_top_k} if "top_k" in faulty else {}
    return {**kept, **most, "name": f"case {number}"}


def _try_to_read(fields: dict[str, Any], cases: list[Any]) -> Suite | None:
    """Return the suite of these cases; None when it is not valid."""
    try:
        return read_suite({"name": "suite", **fields, "cases": cases})
    except BrokenSuiteError:
        return None


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """A question of a test collection, its id and its line."""

    id: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Judgment:
    """How relevant a document is to a query, and the line of the judgment."""

    grade: int
    line: int


@dataclass(frozen=True)
class Qrels:
    """The judgments of a file by query and document, and the problems of the file.

    `elsewhere` has the queries that other files of the same data set judge.
    """

    file: File
    by_query: Mapping[str, Mapping[str, Judgment]]
    findings: tuple[FileProblem, ...] = ()
    elsewhere: frozenset[str] = frozenset()

    def grades(self, query: str) -> dict[str, int]:
        """Return the grade of each document judged for the query."""
        return {document: judgment.grade for document, judgment in self.by_query.get(query, {}).items()}


Queries = tuple[list[JudgedQuery], list[FileProblem]]


def _read_beir(source: SuiteSource) -> SuiteFile:
    folder, file = source.path, source.path / "queries.jsonl"
    if not file.is_file():
        raise InvalidParameterError(f"{folder} is a folder without queries.jsonl: not a BEIR data set")
    splits = {split.stem: split for split in sorted((folder / "qrels").glob("*.tsv"))}
    name = _choose_split(source.split, list(splits), folder)
    qrels = {split: _read_qrels(path, _beir_columns, skip_header=True) for split, path in splits.items()}
    elsewhere = frozenset(query for split, other in qrels.items() if split != name for query in other.by_query)
    queries = _read_queries(file, _beir_query, "not a query: an object with _id and text")
    chosen = replace(qrels[name], elsewhere=elsewhere)
    return _build_suite(folder.resolve().name, file, queries, chosen, source.top_k)


def _choose_split(wanted: str | None, splits: list[str], folder: File) -> str:
    if wanted is None and ("test" in splits or len(splits) == 1):
        return "test" if "test" in splits else splits[0]
    if wanted in splits:
        return wanted
    problem = ": choose one with --split" if wanted is None else f" has no {wanted}.tsv"
    raise InvalidParameterError(f"{folder}/qrels{problem} ({', '.join(splits) or 'none'})")


def _read_qrels(file: File, columns: Callable[[str], Columns], *, skip_header: bool = False) -> Qrels:
    by_query: dict[str, dict[str, Judgment]] = {}
    judgments, findings = _parse_lines(file, columns, "not a judgment: query, document and a whole number", skip_header)
    for number, (query, document, grade) in judgments:
        first = by_query.setdefault(query, {}).setdefault(document, Judgment(grade, number))
        if first.line != number:
            message = f"judges {document} for query {query} as {grade}, line {first.line} as {first.grade}"
            if is_same := first.grade == grade:
                message = f"judges {document} for query {query} again, as line {first.line} did"
            findings.append(FileProblem(file.name, number, message, fatal=not is_same))
    return Qrels(file, by_query, tuple(findings))


def _beir_columns(line: str) -> Columns:
    """Return query, document and grade of a line of BEIR, three tab-separated columns under a header."""
    query, document, grade = line.split("\t")
    return query, document, int(grade)


def _trec_columns(line: str) -> Columns:
    """Return query, document and grade of a line of TREC: topic, iteration, document, grade."""
    query, _, document, grade = line.split()
    return query, document, int(grade)


def _read_queries(file: File, parse: Callable[[str], tuple[str, str]], expected: str) -> Queries:
    parsed, findings = _parse_lines(file, parse, expected)
    return [JudgedQuery(key, text, number) for number, (key, text) in parsed], findings


def _beir_query(line: str) -> tuple[str, str]:
    """Return id and question of a line of BEIR: an object with `_id` and `text`."""
    fields = read_json(line, "the line")
    key, text = (fields.get("_id"), fields.get("text")) if isinstance(fields, dict) else (None, None)
    if not isinstance(key, str | int) or not isinstance(text, str):
        raise ValueError
    return str(key), text


def _read_topics(file: File) -> Queries:
    """Read TREC's topics: `<top>` elements with number and title, or lines of id, tab and question."""
    text = read_text(file, most=MAX_SUITE)
    if re.search(r"<top>", text, re.I):
        return list(_parse_topics(text)), []

    def parse(line: str) -> tuple[str, str]:
        key, question = line.strip().split("\t", 1)
        return key.strip(), question.strip()

    return _read_queries(file, parse, "not a topic: an id, a tab and a question")


def _parse_topics(text: str) -> Iterator[JudgedQuery]:
    lines = LineNumbers(text)
    for topic in _TOPIC.finditer(text):
        number, title = _NUMBER.search(topic[1]), _TITLE.search(topic[1])
        words = " ".join(title[1].split()) if title else ""
        yield JudgedQuery(number[1] if number else "", words, lines.at(topic.start()))


def _parse_lines(
    file: File, parse: Callable[[str], Parsed], expected: str, skip_header: bool = False
) -> tuple[list[tuple[int, Parsed]], list[FileProblem]]:
    """Parse each line that is not blank; return the results with their line numbers, and the problems."""
    parsed: list[tuple[int, Parsed]] = []
    findings: list[FileProblem] = []
    for number, line in read_text_lines(file):
        if skip_header and number == 1 and "query" in line.lower():
            continue
        if len(findings) > MAX_PROBLEMS:  # it is another kind of file
            break
        try:
            parsed.append((number, parse(line)))
        except InvalidParameterError as error:
            findings.append(FileProblem(file.name, number, error.message))
        except ValueError:
            findings.append(FileProblem(file.name, number, expected))
    return parsed, findings


def _build_suite(name: str, file: File, read: Queries, qrels: Qrels, top_k: int | None) -> SuiteFile:
    """Make a case of each query with a relevant document; report the other queries as findings."""
    queries, findings = read
    judged = [query for query in queries if any(grade > 0 for grade in qrels.grades(query.id).values())]
    document = {
        "name": name,
        "defaults": {"expect": "any", **({"top_k": top_k} if top_k else {})},
        "cases": [
            {"name": query.id, "query_text": query.text, "judgments": qrels.grades(query.id)} for query in judged
        ],
    }

    def locate(problem: Problem) -> FileProblem:
        path, name, line = problem.path, file.name, 1
        if len(path) > 1 and isinstance(path[1], int):
            query = judged[path[1]]
            line = query.line
            if path[2:3] == ("judgments",) and len(path) > 3:
                name, line = qrels.file.name, qrels.by_query[query.id][str(path[3])].line
        return FileProblem(name, line, problem.message, problem.fatal)

    return _check(document, locate, [*findings, *qrels.findings, *_find_unused(queries, file, qrels)])


def _find_unused(queries: list[JudgedQuery], file: File, qrels: Qrels) -> Iterator[FileProblem]:
    for query in queries:
        grades = qrels.grades(query.id)
        if not grades and query.id not in qrels.elsewhere:
            yield FileProblem(file.name, query.line, f"query {query.id} has no judgments", fatal=False)
        elif grades and not any(grade > 0 for grade in grades.values()):
            message = f"query {query.id} has no relevant document in {qrels.file.name}"
            yield FileProblem(file.name, query.line, message, fatal=False)
    asked = {query.id for query in queries}
    for key, documents in qrels.by_query.items():
        if key not in asked:
            line = min(judgment.line for judgment in documents.values())
            yield FileProblem(qrels.file.name, line, f"judges query {key}, which is not in {file.name}", fatal=False)
