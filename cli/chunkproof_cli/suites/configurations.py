"""Search configurations to compare: each is a name and the fields of `POST /search` that it sets."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue, ValidationError

from chunkproof.errors import InvalidParameterError
from chunkproof.models import SearchQuery
from chunkproof.models.base import Model, describe_error, unknown_field
from chunkproof.suite.cases import TestCase
from chunkproof.suite.files.document import BrokenFileError, Document
from chunkproof.suite.files.read import DOCUMENTS, read_document
from chunkproof.suite.problems import Problem
from chunkproof_cli.suites.prices import Prices

MOST = 20
# These belong to a case, or mean nothing in a comparison.
OF_A_CASE = frozenset(
    {"query_text", "text", "query_vector", "queries", "query_id", "created_at", "timestamp", "cursor"}
)


class Configuration(Model):
    """How to search: fields of `POST /search`, which replace those of every case."""

    name: str = Field(min_length=1, max_length=80)
    search: dict[str, JsonValue] = Field(default_factory=dict)
    cost_per_thousand: float | None = Field(None, ge=0, description="USD, where you know better than the price list")

    def apply(self, case: TestCase) -> TestCase:
        """Return the case as this configuration searches it."""
        changes: dict[str, Any] = {}
        if "top_k" in self.search:
            changes["top_k"] = self.search["top_k"]
        if collection := self.search.get("collection", self.search.get("collection_name")):
            changes["collection_name"] = collection
        return case.model_copy(update=changes) if changes else case

    def request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a search with the fields of this configuration; filters are added to the case's own."""
        filters = {**(request.get("filters") or {}), **_mapping(self.search.get("filters"))}
        return {**request, **self.search, **({"filters": filters} if filters else {})}


class ConfigurationFile(Model):
    """A file of configurations, and prices that differ from the built-in list."""

    configurations: tuple[Configuration, ...] = Field(strict=False)
    prices: Prices = Field(default_factory=Prices)


def read_configurations(file: Path) -> ConfigurationFile:
    """Read the file; `InvalidParameterError` has every problem with its line."""
    if file.suffix not in DOCUMENTS:
        raise InvalidParameterError(f"{file}: configurations are in a .yaml or .json file")
    document = read_document(file)
    if not isinstance(document.value, dict) or not isinstance(document.value.get("configurations"), list):
        raise InvalidParameterError(f"{file}: it must have a list `configurations`, each with a name and `search`")
    try:
        found = ConfigurationFile.model_validate(document.value)
    except ValidationError as error:
        raise _broken(file, document, _describe(error)) from None
    if problems := list(_find_problems(found)):
        raise _broken(file, document, problems)
    return found


def _broken(file: Path, document: Document, problems: list[Problem]) -> BrokenFileError:
    return BrokenFileError([document.locate(problem, file.name) for problem in problems])


def _describe(error: ValidationError) -> list[Problem]:
    problems = []
    for detail in error.errors():
        path = tuple(detail["loc"])
        message = describe_error(detail)
        if detail["type"] == "extra_forbidden":
            known = Configuration if path[0] == "configurations" else ConfigurationFile
            message = unknown_field(str(path[-1]), list(known.model_fields))
        problems.append(Problem(path, message))
    return problems


def _find_problems(found: ConfigurationFile) -> Iterator[Problem]:
    names: dict[str, int] = {}
    if not 2 <= len(found.configurations) <= MOST:
        yield Problem(("configurations",), f"a comparison takes 2 to {MOST} configurations")
    for index, one in enumerate(found.configurations):
        place = ("configurations", index)
        if names.setdefault(one.name, index) != index:
            yield Problem((*place, "name"), f"name {one.name} is used by an earlier configuration")
        for field in sorted(OF_A_CASE & one.search.keys()):
            yield Problem((*place, "search", field), f"search.{field} cannot be set: it belongs to a case")
        own = {field: value for field, value in one.search.items() if field not in OF_A_CASE}
        try:
            SearchQuery.parse({"query_text": "configuration", **own})
        except InvalidParameterError as error:
            yield from (Problem((*place, "search"), f"{one.name}: {message}") for message in error.messages)


def _mapping(value: JsonValue | None) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
