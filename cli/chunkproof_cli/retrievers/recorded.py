"""A recorded run: the results that any retriever once returned, as a TREC run or JSONL."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chunkproof.errors import InvalidParameterError
from chunkproof.suite.cases import TestCase
from chunkproof.suite.files.document import BrokenFileError, Finding, read_text
from chunkproof_cli.retrievers.errors import RetrieverError
from chunkproof_cli.retrievers.mapping import Mapper

QUERY_IDS = ("name", "case", "query_id", "qid", "topic", "query-id")
QUERY_TEXTS = ("query_text", "query", "question")
TREC_COLUMNS = 6
SUFFIXES = (".jsonl", ".ndjson", ".run", ".trec", ".txt", ".tsv", ".res")

Rows = dict[str, list[Any]]


class RecordedRetriever:
    """Returns what a file has for a case: by the case's name, else by its query."""

    jobs = 1
    is_live = False
    is_served = False

    def __init__(self, file: Path, mapper: Mapper, cases: Sequence[TestCase]) -> None:
        text = read_text(file)
        self._file, self._mapper = file, mapper
        self._rows = _read_jsonl(text, file) if text.lstrip().startswith("{") else _read_trec(text, file)
        self._cases: dict[str, list[TestCase]] = {}
        for case in cases:
            self._cases.setdefault(_key(case.request()), []).append(case)
        known = {key for case in cases for key in (case.name, case.query_text)}
        if not known & self._rows.keys():
            some = ", ".join(list(self._rows)[:3])
            raise InvalidParameterError(
                f"--retriever {file}: none of its queries ({some} …) is the name or query_text of a case"
            )

    def retrieve(self, request: Mapping[str, Any]) -> Any:
        """Return the recorded results; a query that was not recorded is an error."""
        cases = self._cases.get(_key(request), [])
        if any(case.max_latency_ms for case in cases):
            raise RetrieverError("A recorded run has no latency, so max_latency_ms cannot be judged")
        names = [case.name for case in cases]
        for key in (*names, str(request["query_text"])):
            if key in self._rows:
                return self._rows[key]
        raise RetrieverError(f"{self._file.name} has no results for {names[0] if names else request['query_text']}")

    def close(self) -> None:
        """Do nothing: the file was read as a whole."""


def _key(request: Mapping[str, Any]) -> str:
    return json.dumps(request, sort_keys=True)


def _read_trec(text: str, file: Path) -> Rows:
    """Read lines of topic, Q0, document, rank, score and run; ordered by score as trec_eval does, then by rank."""
    ranked: dict[str, list[tuple[float, int, str]]] = {}
    findings: list[Finding] = []
    for number, line in enumerate(text.splitlines(), start=1):
        columns = line.split()
        if not columns:
            continue
        try:
            topic, _, document, rank, score = columns[: TREC_COLUMNS - 1]
            ranked.setdefault(topic, []).append((-float(score), int(rank), document))
        except ValueError:
            findings.append(Finding(file.name, number, "not a line of a run: topic Q0 document rank score name"))
    if findings or not ranked:
        raise BrokenFileError(findings or [Finding(file.name, 1, "there are no results in it")])
    return {
        topic: [{"id": document, "score": -negative} for negative, _, document in sorted(rows)]
        for topic, rows in ranked.items()
    }


def _read_jsonl(text: str, file: Path) -> Rows:
    """Read a query with its `results` on each line, or one result on each line, in order of rank."""
    rows: Rows = {}
    findings: list[Finding] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            findings.append(Finding(file.name, number, "not a JSON object"))
            continue
        key = next((record.pop(name) for name in (*QUERY_IDS, *QUERY_TEXTS) if name in record), None)
        if not isinstance(key, str | int) or isinstance(key, bool):
            known = ", ".join((*QUERY_IDS, *QUERY_TEXTS))
            findings.append(Finding(file.name, number, f"names no query; expected is one of {known}"))
        elif isinstance(record.get("results"), list):
            rows.setdefault(str(key), []).extend(record["results"])
        else:
            rows.setdefault(str(key), []).append(record)
    if findings:
        raise BrokenFileError(findings)
    return rows
