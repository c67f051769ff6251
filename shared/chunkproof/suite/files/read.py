"""Read any kind of suite on disk, with the line of each of its parts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any

from chunkproof.errors import InvalidParameterError, NotConfiguredError
from chunkproof.models.base import Limits
from chunkproof.suite.cases import Suite, read_suite
from chunkproof.suite.files import qrels as judging
from chunkproof.suite.files.document import BrokenFileError, Document, Finding, read_text
from chunkproof.suite.files.json_document import read_json_document
from chunkproof.suite.files.qrels import Qrels
from chunkproof.suite.files.queries import Query, read_queries, read_topics
from chunkproof.suite.problems import BrokenSuiteError, Problem

Locate = Callable[[Problem], Finding]
DOCUMENTS = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Source:
    """What to read: a file or folder, and the options that go with it."""

    path: File
    split: str | None = None
    qrels: File | None = None
    top_k: int | None = None


@dataclass(frozen=True)
class SuiteFile:
    """A suite that can be run, the function that adds file and line to a problem of it, and warnings about it."""

    suite: Suite
    locate: Locate
    findings: tuple[Finding, ...] = ()


class BrokenSuiteFileError(BrokenFileError):
    """Some of the file is invalid; `rest` is the suite without that, in which `lint` finds further problems."""

    def __init__(self, findings: Sequence[Finding], rest: SuiteFile | None) -> None:
        super().__init__(findings)
        self.rest = rest


def read_source(source: Source) -> SuiteFile:
    """Read the suite; `InvalidParameterError` has everything that keeps it from being run."""
    if source.qrels is not None:
        return _read_trec(source)
    if source.path.is_dir():
        return _read_beir(source)
    if source.path.suffix not in DOCUMENTS:
        raise InvalidParameterError(
            f"{source.path}: a suite is a .yaml or .json file, a BEIR folder, or TREC topics with --qrels"
        )
    document, name = read_document(source.path), source.path.name
    return _check(_set_top_k(document.value, source.top_k), lambda problem: document.locate(problem, name))


def read_document(file: File) -> Document:
    """Read a .yaml or .json file with the line of each of its parts."""
    text = read_text(file)
    return read_json_document(text, file.name) if file.suffix == ".json" else _read_yaml(text, file.name)


def _read_yaml(text: str, name: str) -> Document:
    try:
        from chunkproof.suite.files.yaml_document import read_yaml  # Lambda has no PyYAML
    except ModuleNotFoundError as error:
        raise NotConfiguredError(f"{name}: reading YAML takes the package {error.name}: pip install pyyaml") from None
    return read_yaml(text, name)


def _set_top_k(document: Any, top_k: int | None) -> Any:
    """Replace the document's default of `top_k`."""
    if top_k is None or not isinstance(document, dict) or not isinstance(document.get("defaults", {}), dict):
        return document
    document["defaults"] = {**document.get("defaults", {}), "top_k": top_k}
    return document


def _check(document: Any, locate: Locate, findings: Sequence[Finding] = ()) -> SuiteFile:
    fatal = [found for found in findings if found.fatal]
    try:
        suite = read_suite(document)
    except BrokenSuiteError as error:
        broken = map(locate, error.problems)
        raise BrokenSuiteFileError(
            _sort([*findings, *broken]), _drop_broken_parts(document, locate, error.problems)
        ) from None
    found = SuiteFile(suite, locate, tuple(findings))
    if fatal:
        raise BrokenSuiteFileError(_sort(findings), found)
    return found


def _drop_broken_parts(document: Any, locate: Locate, problems: Sequence[Problem]) -> SuiteFile | None:
    """Return the suite without its invalid fields, or without their cases where that is not enough."""
    cases = document.get("cases") if isinstance(document, dict) else None
    if not isinstance(cases, list):
        return None
    known = {name: value for name, value in document.items() if name in Suite.model_fields and name != "limits"}
    repaired = {n: _drop_faulty_fields(case, n, problems) for n, case in enumerate(cases)}
    kept = [n for n, case in repaired.items() if case is not None and _can_be_read(known, case)]
    if not kept:
        return None

    def locate_in_file(problem: Problem) -> Finding:
        path = problem.path
        index = path[1] if path[:1] == ("cases",) and len(path) > 1 else None
        moved = ("cases", kept[index], *path[2:]) if isinstance(index, int) else path
        return locate(replace(problem, path=moved))

    try:
        suite = read_suite({"name": "suite", **known, "cases": [repaired[n] for n in kept]})
    except BrokenSuiteError:
        return None
    return SuiteFile(suite, locate_in_file)


def _drop_faulty_fields(case: Any, number: int, problems: Sequence[Problem]) -> dict[str, Any] | None:
    """Return the case without its invalid fields, under a name of its own; None when nothing useful is left."""
    paths = [problem.path[2:] for problem in problems if problem.path[:2] == ("cases", number)]
    faulty = {path[0] for path in paths if path}
    if not isinstance(case, dict) or () in paths or faulty & {"query_text", "collection", "collection_name"}:
        return None
    kept = {name: value for name, value in case.items() if name not in faulty}
    most = {"top_k": Limits().max_top_k} if "top_k" in faulty else {}
    return {**kept, **most, "name": f"case {number}"}


def _can_be_read(suite: dict[str, Any], case: dict[str, Any]) -> bool:
    """Return whether a case is still valid."""
    try:
        read_suite({"name": "suite", **suite, "cases": [case]})
    except BrokenSuiteError:
        return False
    return True


def _sort(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda found: (found.file, found.line))


def _read_beir(source: Source) -> SuiteFile:
    folder = source.path
    if not (folder / "queries.jsonl").is_file():
        raise InvalidParameterError(f"{folder} is a folder without queries.jsonl: not a BEIR data set")
    splits = {file.stem: file for file in sorted((folder / "qrels").glob("*.tsv"))}
    chosen = judging.read_beir(splits[_choose_split(source.split, list(splits), folder)])
    others = [judging.read_beir(file) for file in splits.values() if file != chosen.file]
    qrels = replace(chosen, elsewhere=frozenset(query for file in others for query in file.by_query))
    file = folder / "queries.jsonl"
    return _build_suite(folder.resolve().name, file, read_queries(file), qrels, source.top_k)


def _choose_split(wanted: str | None, splits: list[str], folder: File) -> str:
    if wanted in splits:
        return str(wanted)
    if wanted is None and ("test" in splits or len(splits) == 1):
        return "test" if "test" in splits else splits[0]
    have = ", ".join(splits) or "none"
    if wanted is None:
        raise InvalidParameterError(f"{folder}/qrels: choose one with --split ({have})")
    raise InvalidParameterError(f"{folder}/qrels has no {wanted}.tsv ({have})")


def _read_trec(source: Source) -> SuiteFile:
    if source.qrels is None:
        raise InvalidParameterError(f"{source.path}: give the judgments with --qrels")
    qrels = judging.read_trec(source.qrels)
    return _build_suite(source.path.stem, source.path, read_topics(source.path), qrels, source.top_k)


def _build_suite(
    name: str, file: File, queries_read: tuple[list[Query], list[Finding]], qrels: Qrels, top_k: int | None
) -> SuiteFile:
    """Make a case of each query with a relevant document; the others become findings."""
    queries, findings = queries_read
    judged = [query for query in queries if any(grade > 0 for grade in qrels.grades(query.id).values())]
    document = {
        "name": name,
        "defaults": {"expect": "any", **({"top_k": top_k} if top_k else {})},
        "cases": [
            {"name": query.id, "query_text": query.text, "judgments": qrels.grades(query.id)} for query in judged
        ],
    }

    def locate(problem: Problem) -> Finding:
        path, name, line = problem.path, file.name, 1
        if len(path) > 1 and isinstance(path[1], int):
            query = judged[path[1]]
            name, line = file.name, query.line
            if path[2:3] == ("judgments",) and len(path) > 3:
                name, line = qrels.file.name, qrels.by_query[query.id][str(path[3])].line
        return Finding(name, line, problem.message, problem.fatal)

    findings = [*findings, *qrels.findings, *_find_unused(queries, file, qrels)]
    return _check(document, locate, findings)


def _find_unused(queries: list[Query], file: File, qrels: Qrels) -> Iterator[Finding]:
    for query in queries:
        grades = qrels.grades(query.id)
        if not grades and query.id not in qrels.elsewhere:
            yield Finding(file.name, query.line, f"query {query.id} has no judgments", fatal=False)
        elif grades and not any(grade > 0 for grade in grades.values()):
            yield Finding(
                file.name,
                query.line,
                f"query {query.id} has no relevant document in {qrels.file.name}",
                fatal=False,
            )
    known = {query.id for query in queries}
    for key, documents in qrels.by_query.items():
        if key not in known:
            line = min(found.line for found in documents.values())
            yield Finding(qrels.file.name, line, f"judges query {key}, which is not in {file.name}", fatal=False)
