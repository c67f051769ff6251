"""How requests to a retriever are made and its responses are read: a small mapping, in a file or as inline JSON."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from chunkproof.errors import InvalidParameterError
from chunkproof.suite.files.document import read_text
from chunkproof.suite.files.json_document import read_json_document
from chunkproof.suite.files.yaml_document import read_yaml
from chunkproof_cli.retrievers.errors import RetrieverError
from chunkproof_cli.retrievers.jsonpath import JsonPath
from chunkproof_cli.retrievers.results import Found, make_found, read_results

FLAG = "--retriever-map"
# A name in a mapping, and the field of a result that its path leads to.
FIELDS = {"id": "chunk_id", "text": "text", "score": "score", "url": "url", "document_id": "document_id"}
FIELDS |= {"title": "document_title"}
PLACEHOLDERS = ("query_text", "top_k", "collection", "filters")
METHODS = ("GET", "POST", "PUT")
_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Mapper:
    """A request template, and paths to the results; whatever is not set is chosen by what usual retrievers do."""

    request: Any = None
    method: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    results: JsonPath | None = None
    fields: Mapping[str, JsonPath] = field(default_factory=dict)
    timeout_s: float = 30.0

    def check_filters(self, request: Mapping[str, Any], *, taken: bool) -> None:
        """Raise `RetrieverError` when a case has filters that neither the retriever nor the template takes.

        Without its filters, a search is another one: its results would say nothing about the case.
        """
        if request.get("filters") and not taken and "{filters}" not in json.dumps(self.request):
            raise RetrieverError(
                f"The case has filters, which the retriever does not take; put {{filters}} into request of {FLAG}"
            )

    def fill(self, request: Mapping[str, Any]) -> Any:
        """Return the request template with the values of a case."""
        return fill_template(self.request, request)

    def fill_headers(self) -> dict[str, str]:
        """Return the headers, with the environment variables that they name as `${NAME}`."""
        return {name: _VARIABLE.sub(_read_variable, value) for name, value in self.headers.items()}

    def read(self, answer: Any) -> list[Found]:
        """Read the results of a response."""
        if self.results is not None:
            items = self.results.find(answer)
            if len(items) == 1 and isinstance(items[0], list | tuple) and not self.results.is_list:
                items = list(items[0])
            if not self.fields:
                return read_results(items)
            rows = [{name: path.first(item) for name, path in self.fields.items()} for item in items]
        elif self.fields:
            rows = self._read_columns(answer)
        else:
            return read_results(answer)
        return [_make_row(row, number) for number, row in enumerate(rows, start=1)]

    def _read_columns(self, answer: Any) -> list[dict[str, Any]]:
        """Read lists side by side, such as all ids and all texts; they must be of one length."""
        columns = {name: _as_list(path.find(answer)) for name, path in self.fields.items()}
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
    if given.lstrip().startswith("{"):
        document = read_json_document(given, FLAG)
    else:
        file = Path(given)
        text = read_text(file)
        document = read_json_document(text, file.name) if file.suffix == ".json" else read_yaml(text, file.name)
    if not isinstance(document.value, dict):
        raise InvalidParameterError(f"{FLAG} is an object with {', '.join(_KNOWN)}")
    return _parse(document.value)


_KNOWN = ("request", "method", "headers", "timeout_s", "results", *FIELDS)


def _parse(value: dict[str, Any]) -> Mapper:
    problems = [f"{FLAG}: {name} is not a known field; known are {', '.join(_KNOWN)}" for name in value.keys() - _KNOWN]
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
    found = {name: _parse_path(name, path) for name, path in paths.items()}
    return Mapper(
        request=value.get("request"),
        method=str(method).upper() if method else None,
        headers=headers,
        timeout_s=float(timeout_s),
        results=found.pop("results", None),
        fields=found,
    )


def _parse_path(name: str, path: str) -> JsonPath:
    try:
        return JsonPath(path)
    except InvalidParameterError as error:
        raise InvalidParameterError(f"{FLAG}: {name}: {error}") from None


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
    return _PLACEHOLDER.sub(lambda found: _as_text(request.get(found[1])), template)


def fill_url(url: str, request: Mapping[str, Any]) -> str:
    """Replace the placeholders of a URL, percent-encoded."""
    return _PLACEHOLDER.sub(lambda found: quote(_as_text(request.get(found[1])), safe=""), url)


def _as_text(value: Any) -> str:
    return "" if value is None else str(value)


def _read_variable(found: re.Match[str]) -> str:
    value = os.environ.get(found[1])
    if value is None:
        raise InvalidParameterError(f"{FLAG}: a header needs the environment variable {found[1]}, which is not set")
    return value


def _make_row(row: Mapping[str, Any], number: int) -> Found:
    return make_found({FIELDS[name]: value for name, value in row.items() if value is not None}, number)


def _as_list(values: list[Any]) -> list[Any]:
    """Return the values of a column; a path to one list means its elements."""
    return list(values[0]) if len(values) == 1 and isinstance(values[0], list | tuple) else values
