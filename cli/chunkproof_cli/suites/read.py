"""Any kind of suite on disk → a suite, and the line of everything in it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any

from chunkproof.errors import InvalidParameterError
from chunkproof.models.base import Limits
from chunkproof.models.json import Path
from chunkproof.suite.cases import Suite, read_suite
from chunkproof.suite.problems import BrokenSuiteError, Problem
from chunkproof_cli.suites import qrels as judging
from chunkproof_cli.suites.document import BrokenFileError, Finding, read_text
from chunkproof_cli.suites.json_document import read_json_document
from chunkproof_cli.suites.qrels import Qrels
from chunkproof_cli.suites.queries import Query, read_queries, read_topics
from chunkproof_cli.suites.yaml_document import read_yaml

Place = tuple[str, int]


@dataclass(frozen=True)
class Source:
    """What is read: a file or folder, and what else is needed to make sense of it."""

    path: File
    split: str | None = None
    qrels: File | None = None
    top_k: int | None = None


@dataclass(frozen=True)
class SuiteFile:
    """A suite that can be run, the place of each of its parts, and what is worth knowing of it."""

    suite: Suite
    place: Callable[[Path], Place]
    findings: tuple[Finding, ...] = ()

    def locate(self, problem: Problem) -> Finding:
        """A problem of the suite with its file and line."""
        file, line = self.place(problem.path)
        return Finding(file, line, problem.message, problem.fatal)


class BrokenSuiteFileError(BrokenFileError):
    """Some of the file is wrong; `rest` is the suite without that, for whoever looks for more problems."""

    def __init__(self, findings: Sequence[Finding], rest: SuiteFile | None) -> None:
        super().__init__(findings)
        self.rest = rest


def read_source(source: Source) -> SuiteFile:
    """The suite, or `InvalidParameterError` with everything that keeps it from being run."""
    if source.qrels is not None:
        return _trec(source)
    if source.path.is_dir():
        return _beir(source)
    if source.path.suffix not in (".yaml", ".yml", ".json"):
        raise InvalidParameterError(
            f"{source.path}: a suite is a .yaml or .json file, a BEIR folder, or TREC topics with --qrels"
        )
    text = read_text(source.path)
    name = source.path.name
    document = read_json_document(text, name) if source.path.suffix == ".json" else read_yaml(text, name)
    return _checked(_with_top_k(document.value, source.top_k), lambda path: (name, document.line_of(path)))


def _with_top_k(document: Any, top_k: int | None) -> Any:
    """The document with another default of `top_k`."""
    if top_k is None or not isinstance(document, dict) or not isinstance(document.get("defaults", {}), dict):
        return document
    document["defaults"] = {**document.get("defaults", {}), "top_k": top_k}
    return document


def _checked(document: Any, place: Callable[[Path], Place], findings: Sequence[Finding] = ()) -> SuiteFile:
    fatal = [found for found in findings if found.fatal]
    try:
        suite = read_suite(document)
    except BrokenSuiteError as error:
        broken = [Finding(*place(problem.path), problem.message) for problem in error.problems]
        raise BrokenSuiteFileError(
            _in_order([*findings, *broken]), _unbroken(document, place, error.problems)
        ) from None
    found = SuiteFile(suite, place, tuple(findings))
    if fatal:
        raise BrokenSuiteFileError(_in_order(findings), found)
    return found


def _unbroken(document: Any, place: Callable[[Path], Place], problems: Sequence[Problem]) -> SuiteFile | None:
    """The suite without what is wrong with it: a field that is, or else its case, is left out."""
    cases = document.get("cases") if isinstance(document, dict) else None
    if not isinstance(cases, list):
        return None
    known = {name: value for name, value in document.items() if name in Suite.model_fields}
    mended = {n: _without_faults(case, n, problems) for n, case in enumerate(cases)}
    kept = [n for n, case in mended.items() if case is not None and _can_be_read(known, case)]
    if not kept:
        return None

    def moved(path: Path) -> Place:
        index = path[1] if path[:1] == ("cases",) and len(path) > 1 else None
        return place(("cases", kept[index], *path[2:]) if isinstance(index, int) else path)

    try:
        suite = read_suite({"name": "suite", **known, "cases": [mended[n] for n in kept]})
    except BrokenSuiteError:
        return None
    return SuiteFile(suite, moved)


def _without_faults(case: Any, number: int, problems: Sequence[Problem]) -> dict[str, Any] | None:
    """A case without the fields that something is wrong with; its name, which may be another's, is no matter here."""
    paths = [problem.path[2:] for problem in problems if problem.path[:2] == ("cases", number)]
    faulty = {path[0] for path in paths if path}
    if not isinstance(case, dict) or () in paths or faulty & {"query_text", "collection", "collection_name"}:
        return None
    kept = {name: value for name, value in case.items() if name not in faulty}
    most = {"top_k": Limits().max_top_k} if "top_k" in faulty else {}
    return {**kept, **most, "name": f"case {number}"}


def _can_be_read(suite: dict[str, Any], case: dict[str, Any]) -> bool:
    """Whether a case still makes sense."""
    try:
        read_suite({"name": "suite", **suite, "cases": [case]})
    except BrokenSuiteError:
        return False
    return True


def _in_order(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda found: (found.file, found.line))


def _beir(source: Source) -> SuiteFile:
    folder = source.path
    if not (folder / "queries.jsonl").is_file():
        raise InvalidParameterError(f"{folder} is a folder without queries.jsonl: not a BEIR data set")
    splits = {file.stem: file for file in sorted((folder / "qrels").glob("*.tsv"))}
    chosen = judging.read_beir(splits[_chosen(source.split, list(splits), folder)])
    others = [judging.read_beir(file) for file in splits.values() if file != chosen.file]
    qrels = replace(chosen, elsewhere=frozenset(query for file in others for query in file.by_query))
    file = folder / "queries.jsonl"
    return _judged_suite(folder.resolve().name, file, read_queries(file), qrels, source.top_k)


def _chosen(wanted: str | None, splits: list[str], folder: File) -> str:
    if wanted in splits:
        return str(wanted)
    if wanted is None and ("test" in splits or len(splits) == 1):
        return "test" if "test" in splits else splits[0]
    have = ", ".join(splits) or "none"
    if wanted is None:
        raise InvalidParameterError(f"{folder}/qrels: choose one with --split ({have})")
    raise InvalidParameterError(f"{folder}/qrels has no {wanted}.tsv ({have})")


def _trec(source: Source) -> SuiteFile:
    if source.qrels is None:
        raise InvalidParameterError(f"{source.path}: give the judgments with --qrels")
    qrels = judging.read_trec(source.qrels)
    return _judged_suite(source.path.stem, source.path, read_topics(source.path), qrels, source.top_k)


def _judged_suite(
    name: str, file: File, read_: tuple[list[Query], list[Finding]], qrels: Qrels, top_k: int | None
) -> SuiteFile:
    """A case per query that has a relevant document; the others are listed, and left out."""
    queries, findings = read_
    asked = [query for query in queries if any(grade > 0 for grade in qrels.grades(query.id).values())]
    document = {
        "name": name,
        "defaults": {"expect": "any", **({"top_k": top_k} if top_k else {})},
        "cases": [
            {"name": query.id, "query_text": query.text, "judgments": qrels.grades(query.id)}
            for query in asked
        ],
    }

    def place(path: Path) -> Place:
        query = asked[path[1]] if len(path) > 1 and isinstance(path[1], int) else None
        if query is None:
            return file.name, 1
        if path[2:3] == ("judgments",) and len(path) > 3:
            return qrels.file.name, qrels.by_query[query.id][str(path[3])].line
        return file.name, query.line

    findings = [*findings, *qrels.findings, *_unused(queries, file, qrels)]
    return _checked(document, place, findings)


def _unused(queries: list[Query], file: File, qrels: Qrels) -> Iterator[Finding]:
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
            yield Finding(
                qrels.file.name, line, f"judges query {key}, which is not in {file.name}", fatal=False
            )
