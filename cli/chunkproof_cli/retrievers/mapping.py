"""Requests to retrievers, and their results.

A request is made by a small mapping, in a file or as inline JSON. Results are JSON, plain ids, or the documents of a
framework, known by their attributes.
"""

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jmespath
from jmespath.exceptions import JMESPathError

from chunkproof.base.errors import ChunkproofError, CorruptChunkError, InvalidParameterError, UnavailableError
from chunkproof.collection.payload_map import PayloadMap
from chunkproof.contract import ChunkMetadata
from chunkproof.stores.store_port import Point
from chunkproof.suite.located_document import read_document, read_json_document
from chunkproof_cli.output import add_secrets, mask_secrets

FLAG = "--retriever-map"
# A name in a mapping, and the field of a result that its path leads to.
FIELDS = {"id": "chunk_id", "text": "text", "score": "score", "url": "url", "document_id": "document_id"}
FIELDS |= {"title": "document_title"}
PLACEHOLDERS = ("query_text", "top_k", "collection", "filters")
METHODS = ("GET", "POST", "PUT")
_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")
# No version, date or content type has letters and digits beside each other.
_LOOKS_SECRET = re.compile(r"[A-Za-z]\d|\d[A-Za-z]")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
# A name in JSONPath: `.name`, `['name']` or `["name"]`.
_JSONPATH_NAME = re.compile(r"""\[\s*['"]([^'"]*)['"]\s*\]|(?:^|\.)([^.\[\]'"*\s]+)""")
# Where services, chains and pipelines keep their results.
LISTS = (
    *("results", "documents", "hits", "matches", "points", "chunks", "source_documents", "source_nodes", "nodes"),
    *("context", "contexts", "passages", "items", "data", "result"),
)
IDS = ("chunk_id", "id", "_id", "id_", "point_id", "node_id", "docid", "docno", "doc_id", "document_id", "corpus_id")
TEXTS = ("body", "passage", "snippet", "chunk", "data")
SCORES = ("score", "similarity_score", "similarity", "relevance_score", "_score", "@search.score")
# Attributes of the documents of LangChain, LlamaIndex and Haystack, and of Qdrant's points.
ATTRIBUTES = (*IDS, *SCORES, "text", "content", "page_content", "url", "title", "ref_doc_id")
METADATA = ("metadata", "meta", "payload")
MAX_DEPTH = 4

_payloads = PayloadMap()


class RetrieverError(ChunkproofError):
    """The retriever raised an exception, refused the query, or returned something that has no results.

    Like `RetrieverUnavailableError`, it leaves a case in error, and never fails it.
    """

    code = "RETRIEVER_FAILED"


class RetrieverUnavailableError(UnavailableError):
    """The retriever could not be reached, or did not respond in time."""

    code = "RETRIEVER_UNAVAILABLE"


class Retriever(ABC):
    """Anything that returns results for a query.

    `jobs` is how many calls at a time it takes by default; `is_live` is false where latency means nothing; `is_served`
    is true of a service, whose latency is judged.
    """

    jobs = 1
    is_live = True
    is_served = False

    @abstractmethod
    def retrieve(self, request: Mapping[str, Any]) -> Any:
        """Return results for the body of a `POST /search`, in the retriever's own form."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release what it holds."""


class ResultPath:
    """A JMESPath expression; one that starts with `$` is read as JSONPath with names, indexes and `[*]`."""

    def __init__(self, text: str, field_name: str) -> None:
        self.text = text
        expression = text.strip()
        if expression.startswith("$"):
            quoted = _JSONPATH_NAME.sub(lambda name: "." + json.dumps(name[1] or name[2]), expression[1:])
            expression = quoted.removeprefix(".") or "@"
        try:
            self._compiled = jmespath.compile(expression)
        except JMESPathError as error:
            reason = str(error).partition("\n")[0]
            raise InvalidParameterError(
                f"{FLAG}: {field_name}: {text} is not a path such as hits[*].id: {reason}"
            ) from None

    def find(self, value: Any) -> list[Any]:
        """Return the elements of the list at this path, or the one value there; what is missing is left out."""
        try:
            values = self._compiled.search(value)
        except JMESPathError as error:
            raise RetrieverError(f"{self.text} cannot be read in the response: {error}") from None
        if isinstance(values, list | tuple):
            return list(values)
        return [] if values is None else [values]


@dataclass(frozen=True, slots=True)
class RetrieverResult:
    """One result; `text` and `score` are None where the retriever returns none."""

    metadata: ChunkMetadata
    text: str | None
    score: float | None


def read_results(answer: Any) -> list[RetrieverResult]:
    """Read the results in what a retriever returned; `RetrieverError` says what cannot be read."""
    items = find_items(answer)
    if items is None:
        raise RetrieverError(f"The retriever returned {_describe(answer)}; a list of results is expected")
    return [_read(item, number) for number, item in enumerate(items, start=1)]


def find_items(answer: Any, depth: int = 0) -> Sequence[Any] | None:
    """Return the list of results, which may lie inside of objects; None when there is no list."""
    if isinstance(answer, list | tuple):
        return answer
    if isinstance(answer, Mapping):
        # The last component of a pipeline has the final results.
        objects = [value for value in answer.values() if isinstance(value, Mapping)]
        inner = [answer[name] for name in (*LISTS, "ids") if name in answer] + objects[::-1]
    elif isinstance(answer, str | bytes) or answer is None:
        return None
    else:
        inner = [value for name in LISTS if (value := getattr(answer, name, None)) is not None]
        if not inner and isinstance(answer, Iterable):
            return list(answer)
    if depth == MAX_DEPTH:
        return None
    lists = (found for value in inner if (found := find_items(value, depth + 1)) is not None)
    return next(lists, None)


def make_result(fields: Mapping[str, Any], number: int) -> RetrieverResult:
    """Make a result of its fields; `number` is for the message when it has neither an id nor a text."""
    fields = _clean(fields)
    inner = [fields, *(fields[name] for name in METADATA if isinstance(fields.get(name), Mapping))]
    payload = {**fields, **(fields["payload"] if isinstance(fields.get("payload"), Mapping) else {})}
    text = _payloads.value("text", payload)
    if not isinstance(text, str):
        text = next((payload[name] for name in TEXTS if isinstance(payload.get(name), str)), None)
    # A result that has only a text gets an id, so that reports can list it.
    key = _find_id(inner) or (f"sha256:{sha256(text.encode()).hexdigest()[:16]}" if text else None)
    if key is None:
        raise RetrieverError(f"Result {number} of the retriever has neither an id nor a text")
    try:
        chunk = _payloads.chunk_of(Point(key, {**payload, "text": text or ""}))
    except CorruptChunkError:
        raise RetrieverError(f"The metadata of result {number} cannot be read") from None
    score = next((value for part in inner for name in SCORES if (value := _number(part.get(name))) is not None), None)
    return RetrieverResult(chunk.metadata.model_copy(update={"chunk_id": key}), text, score)


def _read(item: Any, number: int) -> RetrieverResult:
    """Read one result. A text alone is an id; a pair is a result and its score."""
    if isinstance(item, list | tuple) and len(item) == 2 and _number(item[1]) is not None:
        return make_result({**_fields_of(item[0]), "score": item[1]}, number)
    return make_result(_fields_of(item), number)


def _fields_of(item: Any) -> dict[str, Any]:
    if isinstance(item, Mapping):
        inner = item.get("node") if isinstance(item.get("node"), Mapping) else item.get("document")
        return {**(inner if isinstance(inner, Mapping) else {}), **item}
    if isinstance(item, str | int):
        return {"id": item}
    node = getattr(item, "node", None)
    fields = _fields_of(node) if node is not None else {}
    for names, kinds in ((ATTRIBUTES, str | int | float), (METADATA, Mapping)):
        fields |= {name: value for name in names if isinstance(value := getattr(item, name, None), kinds)}
    return fields


def _find_id(parts: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the chunk's id wherever it is; an id that may be the document's comes last."""
    names = [(IDS[:1], parts), (IDS, parts[:1]), (IDS, parts[1:])]
    values = (part.get(name) for group, inside in names for part in inside for name in group)
    ids = (value for value in values if isinstance(value, str | int) and not isinstance(value, bool))
    return next((str(value) for value in ids if str(value).strip()), None)


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, bool | str | bytes):
        return None
    try:
        number = float(value)  # also of numpy
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def _clean(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields as JSON that a report can hold: dates as text, question marks for lone surrogates."""

    def as_json(value: Any) -> Any:
        """Convert what JSON has no type for: numbers of numpy to numbers, mappings to objects, all else to text."""
        number = _number(value)
        return dict(value) if isinstance(value, Mapping) else str(value) if number is None else number

    try:
        text = json.dumps(dict(fields), default=as_json, ensure_ascii=False, skipkeys=True)
        cleaned: dict[str, Any] = json.loads(mask_secrets(text).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise RetrieverError(f"A result of the retriever is not JSON: {error}") from None
    return cleaned


def _describe(answer: Any) -> str:
    if answer is None:
        return "nothing"
    if isinstance(answer, Mapping):
        return f"an object with {', '.join(map(str, list(answer)[:5])) or 'no fields'}"
    return f"a value of type {type(answer).__name__}"


@dataclass(frozen=True)
class Mapper:
    """A request template, and paths to the results; whatever is not set is chosen by what usual retrievers do."""

    request: Any = None
    method: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    results: ResultPath | None = None
    fields: Mapping[str, ResultPath] = field(default_factory=dict)
    timeout_s: float = 30.0

    def check_filters(self, request: Mapping[str, Any], *, taken: bool) -> None:
        """Raise `RetrieverError` when a case has filters that neither the retriever nor the template takes.

        The results of a search without the filters would say nothing about the case.
        """
        if request.get("filters") and not taken and "{filters}" not in json.dumps(self.request):
            raise RetrieverError(
                f"The case has filters, which the retriever does not take; put {{filters}} into request of {FLAG}"
            )

    def fill_headers(self) -> dict[str, str]:
        """Return the headers, with the environment variables that they name as `${NAME}`."""
        headers = {name: _VARIABLE.sub(_read_variable, value) for name, value in self.headers.items()}
        add_secrets(("key" if _LOOKS_SECRET.search(value) else name, value) for name, value in headers.items())
        for name, value in headers.items():
            if not (value.isascii() and value.isprintable()):
                raise InvalidParameterError(f"{FLAG}: header {name} has a character that no header can have")
        return headers

    def read(self, answer: Any) -> list[RetrieverResult]:
        """Read the results of a response."""
        if self.results is not None:
            items = self.results.find(answer)
            if not self.fields:
                return read_results(items)
            rows = [{name: next(iter(path.find(item)), None) for name, path in self.fields.items()} for item in items]
        elif self.fields:
            rows = self._read_columns(answer)
        else:
            return read_results(answer)
        filled = ({FIELDS[name]: value for name, value in row.items() if value is not None} for row in rows)
        return [make_result(row, number) for number, row in enumerate(filled, start=1)]

    def _read_columns(self, answer: Any) -> list[dict[str, Any]]:
        """Read lists side by side, such as all ids and all texts; they must be of one length."""
        columns = {name: path.find(answer) for name, path in self.fields.items()}
        sizes = {name: len(values) for name, values in columns.items()}
        if len(set(sizes.values())) > 1:
            counts = ", ".join(f"{count} of {self.fields[name].text}" for name, count in sizes.items())
            raise RetrieverError(
                f"The response has {counts}: the paths must lead to as many values each; "
                f"with results: in {FLAG}, a result may lack a field"
            )
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def read_mapper(given: str | None) -> Mapper:
    """Read a mapping from a .yaml or .json file, or from JSON; `InvalidParameterError` names what is wrong with it."""
    if given is None:
        return Mapper()
    is_inline = given.lstrip().startswith("{")
    value = (read_json_document(given, FLAG) if is_inline else read_document(Path(given))).value
    known = ("request", "method", "headers", "timeout_s", "results", *FIELDS)
    if not isinstance(value, dict):
        raise InvalidParameterError(f"{FLAG} is an object with {', '.join(known)}")
    problems = [f"{FLAG}: {name} is not a known field; known are {', '.join(known)}" for name in value.keys() - known]
    method, timeout_s = value.get("method"), value.get("timeout_s", 30)
    headers = value.get("headers", {})
    paths = {name: value[name] for name in ("results", *FIELDS) if name in value}
    if method is not None and str(method).upper() not in METHODS:
        problems.append(f"{FLAG}: method must be GET, POST or PUT")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or timeout_s <= 0:
        problems.append(f"{FLAG}: timeout_s must be a number of seconds above 0")
    if not isinstance(headers, dict) or not all(isinstance(text, str) for text in headers.values()):
        problems.append(f"{FLAG}: headers must be an object of texts")
    problems += [f"{FLAG}: {name} must be a path" for name, path in paths.items() if not isinstance(path, str)]
    if problems:
        raise InvalidParameterError(*sorted(problems))
    parsed = {name: ResultPath(path, name) for name, path in paths.items()}
    return Mapper(
        request=value.get("request"),
        method=str(method).upper() if method else None,
        headers=headers,
        timeout_s=float(timeout_s),
        results=parsed.pop("results", None),
        fields=parsed,
    )


def fill_template(template: Any, request: Mapping[str, Any]) -> Any:
    """Replace the placeholders of a template; a text that is only a placeholder becomes the value itself."""
    if isinstance(template, Mapping):
        return {name: fill_template(value, request) for name, value in template.items()}
    if isinstance(template, list):
        return [fill_template(value, request) for value in template]
    if not isinstance(template, str):
        return template
    if (whole := _PLACEHOLDER.fullmatch(template)) is not None:
        return request.get(whole[1])
    return _fill_text(template, request, str)


def fill_url(url: str, request: Mapping[str, Any]) -> str:
    """Replace the placeholders of a URL, percent-encoded."""
    return _fill_text(url, request, lambda value: quote(str(value), safe=""))


def _fill_text(text: str, request: Mapping[str, Any], write: Callable[[Any], str]) -> str:
    values = {name: "" if (value := request.get(name)) is None else write(value) for name in PLACEHOLDERS}
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def _read_variable(found: re.Match[str]) -> str:
    value = os.environ.get(found[1])
    if value is None:
        raise InvalidParameterError(f"{FLAG}: a header needs the environment variable {found[1]}, which is not set")
    return value
