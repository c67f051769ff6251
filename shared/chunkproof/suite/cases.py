"""A suite and its cases. Reading is strict and reports all problems at once, each with its place."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.words import is_unspaced
from chunkproof.contract.conditions import parse_filters
from chunkproof.contract.model import (
    MAX_COMPARED_NAMES,
    MAX_NAME,
    BrokenRules,
    Faulty,
    Limits,
    Model,
    NotBlank,
    Path,
    between,
    describe_error,
    display_name,
    find_faults,
    is_none,
    unknown_field,
)
from chunkproof.proof.integrity import shorten_runs

DEFAULT_TOP_K = 10
# Fields of a case with a result (`TestCaseResult`); they are ignored in a suite, so that a report's cases can be run.
RESULT_FIELDS = frozenset(
    [
        "status",
        "actual_results",
        "error_message",
        "error_code",
        "unmet",
        "metrics",
        "timing",
        "approximation",
        "diagnosis",
    ]
)
LimitMs = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to fix; a suite with a `fatal` problem cannot be run, others are warnings."""

    path: Path
    message: str
    fatal: bool = True


class BrokenSuiteError(InvalidParameterError):
    """The suite cannot be run; `problems` have paths, for callers that can map a path to a line number."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(*InvalidParameterError.listing([problem.message for problem in problems]).messages)
        self.problems = tuple(problems)


class CriteriaLimits(Model):
    """Limits by the id of the criterion, in milliseconds or percent."""

    # The defaults are the contract's (docs/contract.md#success-criteria).
    model_config = ConfigDict(serialize_by_alias=True)

    lookup: LimitMs = Field(100.0, alias="SC-001", description="Average of looking up a chunk by id, ms")
    search: LimitMs = Field(500.0, alias="SC-002", description="Average latency of warm searches, ms")
    in_top_5: Percent = Field(95.0, alias="SC-003", description="Cases with an expected document in the top 5, %")
    passed: Percent = Field(100.0, alias="SC-004", description="Cases that pass, %")
    typed_errors: Percent = Field(100.0, alias="SC-005", description="Errors with a typed code, %")
    same_verdict: Percent = Field(100.0, alias="SC-006", description="Cases with the same verdict in every run, %")
    stage_embedding: LimitMs = Field(2000.0, alias="stage-embedding", description="The longest embedding, ms")
    slow_embedding: LimitMs = Field(1000.0, alias="slow-embedding", description="Embeddings called slow, over ms")
    stage_search: LimitMs = Field(
        1000.0, alias="stage-search", description="95th percentile of the search in Qdrant, ms"
    )
    stage_format: LimitMs = Field(50.0, alias="stage-format", description="95th percentile of making the response, ms")
    stage_total: LimitMs | None = Field(
        None, alias="stage-total", description="95th percentile end to end, ms; CHUNKPROOF_LATENCY_TARGET_MS by default"
    )

    @classmethod
    def ids(cls) -> list[str]:
        """Return the names under which limits are set."""
        return [str(field.alias) for field in cls.model_fields.values()]

    @property
    def by_id(self) -> dict[str, Any]:
        """The limits by their ids."""
        return self.model_dump()

    def replace(self, limits: dict[str, float]) -> "CriteriaLimits":
        """Return these limits with some replaced, by their ids."""
        return CriteriaLimits.model_validate({**self.model_dump(exclude_unset=True), **limits})


LATENCY_IDS = [key for key in CriteriaLimits.ids() if key not in ("SC-003", "SC-004", "SC-005", "SC-006")]


def _as_id(value: Any) -> Any:
    """Accept an id that YAML or JSON reads as a number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Id = Annotated[str, BeforeValidator(_as_id), Field(min_length=1)]
Ids = Annotated[tuple[Id, ...], Field(strict=False)]
Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)]


class _Shared(Model):
    """Fields that a case and the suite's defaults have in common."""

    collection_name: str | None = Field(
        None, min_length=1, max_length=MAX_NAME, description="Collection to search; the suite's own by default"
    )
    relevance_threshold: float = Field(
        0.0,
        description="Lowest score allowed for the expected results (without any: for the first), 0.0 to 1.0",
        json_schema_extra={"minimum": 0.0, "maximum": 1.0},
    )
    top_k: Annotated[int, between(1, Limits().max_top_k)] = Field(
        DEFAULT_TOP_K,
        description="How many results to search for",
        json_schema_extra={"minimum": 1, "maximum": Limits().max_top_k},
    )
    expect: Literal["all", "any"] = Field("all", description="Whether all or any of the ids must be found")
    filters: dict[str, JsonValue] = Field(
        default_factory=dict, description="Conditions on payload fields, as in a search"
    )
    # Left out of a report without it, so that the suite is the same as before there was this field.
    expect_integrity: Literal["verified", "unchanged"] | None = Field(
        None,
        exclude_if=is_none,
        description="verified: the hash of every result must be recorded and fit its text; unchanged: no hash may "
        "contradict its text",
    )
    ignore_accents: bool = Field(False, description="Whether keywords match regardless of accents")
    max_latency_ms: float | None = Field(None, gt=0, description="Longest time that the search may take")
    tags: Texts = Field((), description="Labels to select cases by")

    @field_validator("relevance_threshold")
    @classmethod
    def _threshold_is_a_cosine(cls, threshold: float) -> float:
        if not 0.0 <= threshold <= 1.0:
            why = f": no result can reach {threshold}" if threshold > 1.0 else ""
            raise BrokenRules(f"relevance_threshold must be between 0.0 and 1.0{why}")
        return threshold

    @field_validator("filters")
    @classmethod
    def _filters_are_valid(cls, filters: dict[str, JsonValue]) -> dict[str, JsonValue]:
        parse_filters(filters)
        return filters


class CaseDefaults(_Shared):
    """Values for every case that does not set its own."""


class TestCase(_Shared):
    """One query, and what its results must be (docs/contract.md)."""

    __test__: ClassVar[bool] = False  # not a test for pytest to collect

    name: NotBlank = Field(description="Unique within the suite")
    query_text: NotBlank = Field(description="The question to search for")
    expected_doc_ids: Ids = Field((), description="Chunk ids, document ids or URLs that must be among the results")
    judgments: dict[str, int] = Field(
        default_factory=dict, description="Graded relevance by id: 1 and more is relevant, 0 is judged not to be"
    )
    expected_keywords: Texts = Field(
        (), description="Whole words or phrases, each of which must be in the text of some result"
    )
    expect_no_results: bool = Field(False, description="Passes when no result scores relevance_threshold or more")

    @field_validator("expected_doc_ids")
    @classmethod
    def _ids_are_unique(cls, ids: tuple[str, ...]) -> tuple[str, ...]:
        twice = [key for key, count in Counter(ids).items() if count > 1]
        if twice:
            again = [ids.index(key, ids.index(key) + 1) for key in twice]
            raise BrokenRules(*(f"expected_doc_ids names {display_name(key)} twice" for key in twice), at=again)
        return ids

    @field_validator("expected_keywords")
    @classmethod
    def _keywords_have_words(cls, keywords: tuple[str, ...]) -> tuple[str, ...]:
        if empty := {
            n: display_name(keyword) for n, keyword in enumerate(keywords) if not any(map(_is_letter, keyword))
        }:
            messages = (f"expected_keywords: {keyword} has no word in it" for keyword in empty.values())
            raise BrokenRules(*messages, at=list(empty))
        return keywords

    @model_validator(mode="after")
    def _expectations_are_possible(self) -> "TestCase":
        if problems := list(self._contradictions()):
            raise BrokenRules(*problems)
        return self

    def _contradictions(self) -> Iterator[str]:
        expected = self.expected_doc_ids
        others = self.expected_keywords, self.relevance_threshold, self.max_latency_ms, self.expect_integrity
        if self.expect_no_results:
            if expected or self.expected_keywords:
                yield "expect_no_results contradicts expected ids and keywords: give one or the other"
        elif not expected and not any(others):
            yield (
                "the case expects nothing: give expected_doc_ids, expected_keywords, relevance_threshold, "
                "max_latency_ms, expect_integrity or expect_no_results"
            )
        for key in expected:
            if self.judgments.get(key, 1) < 1:
                yield f"{display_name(key)} is both expected and judged not relevant"

    def request(self) -> dict[str, JsonValue]:
        """Return the body of this case's `POST /search`."""
        fields: dict[str, JsonValue] = {"query_text": self.query_text, "top_k": self.top_k}
        if self.collection_name is not None:
            fields["collection"] = self.collection_name
        if self.filters:
            fields["filters"] = self.filters
        if self.expect_no_results:
            fields["similarity_threshold"] = self.relevance_threshold
        return fields

    @property
    def grades(self) -> dict[str, int]:
        """Grade of every judged id; an expected id without a judgment has grade 1."""
        return {**dict.fromkeys(self.expected_doc_ids, 1), **self.judgments}


def _describe_for_editors(schema: dict[str, Any]) -> None:
    schema["title"] = "Chunkproof suite"
    schema["properties"]["$schema"] = {"type": "string", "description": "Where editors find this schema"}


class Suite(Model):
    """Cases that are run together."""

    model_config = ConfigDict(json_schema_extra=_describe_for_editors)

    name: str = Field(min_length=1)
    description: str | None = None
    collection: str | None = Field(
        None, min_length=1, max_length=MAX_NAME, description="Collection of cases that name none"
    )
    defaults: CaseDefaults = Field(default_factory=CaseDefaults)
    limits: CriteriaLimits = Field(
        default_factory=CriteriaLimits, description="Limits of the success criteria, by their ids"
    )
    cases: tuple[TestCase, ...] = Field(strict=False, json_schema_extra={"minItems": 1})


def assign_collection(cases: Sequence[TestCase], collection: str | None) -> list[TestCase]:
    """Return the cases; those that name no collection get this one."""
    return [case if case.collection_name else case.model_copy(update={"collection_name": collection}) for case in cases]


def read_suite(document: object) -> Suite:
    """Read the suite in this document; `BrokenSuiteError` has all of its problems."""
    if not isinstance(document, dict):
        raise BrokenSuiteError([Problem((), "A suite is an object with name and cases")])
    found = [Problem(fault.path, fault.message) for fault in find_faults(document)]
    found += _find_repeated_names(document.get("cases"))
    if document.get("cases") == []:
        found.append(Problem(("cases",), "cases is empty: there is nothing to run"))
    try:
        suite = Suite.model_validate(_apply_defaults(document, faulty=[problem.path for problem in found]))
    except ValidationError as error:
        known = {problem.path for problem in found}
        found += [p for p in _list_problems(error) if not any(p.path[:n] in known for n in range(len(p.path) + 1))]
    if any(problem.fatal for problem in found):
        raise BrokenSuiteError(found)
    return suite


def _apply_defaults(document: dict[str, Any], faulty: Sequence[Path]) -> dict[str, Any]:
    """Copy the suite's defaults into every case, unless they are invalid themselves."""
    given = _rename_field(document, "collection_name", "collection")
    given.pop("$schema", None)
    cases, defaults = given.get("cases"), given.get("defaults") or {}
    if isinstance(defaults, dict):
        defaults = given["defaults"] = _rename_field(defaults, "collection", "collection_name")
    if not isinstance(cases, list):
        return given
    try:
        CaseDefaults.model_validate(defaults)
    except ValidationError:
        defaults = {}
    if any(path[:1] == ("defaults",) for path in faulty):
        defaults = {}
    given["cases"] = [
        _expect_judged_ids({**defaults, **_rename_field(case, "collection", "collection_name")})
        if isinstance(case, dict)
        else case
        for case in cases
    ]
    return given


def _expect_judged_ids(case: dict[str, Any]) -> dict[str, Any]:
    """Expect the ids judged relevant where `expected_doc_ids` is missing; leave out results."""
    case = {name: value for name, value in case.items() if name not in RESULT_FIELDS}
    judgments = case.get("judgments")
    if case.get("expected_doc_ids") or not isinstance(judgments, dict):
        return case
    relevant = [key for key, grade in judgments.items() if isinstance(grade, int) and grade > 0]
    return {**case, "expected_doc_ids": relevant}


def _rename_field(fields: dict[str, Any], other: str, canonical: str) -> dict[str, Any]:
    """Accept both names of one field, `collection` and `collection_name`."""
    if other not in fields or canonical in fields:
        return dict(fields)
    return {canonical if name == other else name: value for name, value in fields.items()}


def _find_repeated_names(cases: object) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, case in enumerate(cases if isinstance(cases, list) else ()):
        name = case.get("name") if isinstance(case, dict) else None
        if isinstance(name, str) and first.setdefault(name, index) != index:
            yield Problem(("cases", index, "name"), f"name {display_name(name)} is used by an earlier case")


def _list_problems(error: ValidationError) -> Iterator[Problem]:
    for number, detail in enumerate(error.errors()):
        path = tuple(detail["loc"])
        within = path[2:] if path[:1] == ("cases",) and len(path) > 2 else path
        raised = detail.get("ctx", {}).get("error")
        if isinstance(detail.get("input"), Faulty):
            continue  # reported as a fault already
        if isinstance(raised, BrokenRules):
            paths = [(*path, item) for item in raised.at] or [path] * len(raised.messages)
            yield from map(Problem, paths, raised.messages)
        elif detail["type"] == "extra_forbidden":
            known = _known_fields(path) if number < MAX_COMPARED_NAMES else []
            yield Problem(path, unknown_field(str(path[-1]), known))
        else:
            yield Problem(path, describe_error({**detail, "loc": within}))


def _known_fields(path: Path) -> list[str]:
    if path[0] == "limits" and len(path) > 1:
        return CriteriaLimits.ids()
    nested: dict[Any, type[Model]] = {"cases": TestCase, **({"defaults": CaseDefaults} if len(path) > 1 else {})}
    return list(nested.get(path[0], Suite).model_fields)


# Combining classes of marks that belong to a letter in Indic scripts: vowel signs, nukta, virama.
_NO_ACCENTS = (0, 7, 9)


def contains(text: str, keyword: str, *, ignore_accents: bool = False) -> bool:
    """Return whether the text has the keyword's words one after the other, as whole words.

    Canonically equivalent spellings are equal. In scripts without spaces between words, any match counts.
    """
    folded, words = _fold(text, ignore_accents), _fold(keyword, ignore_accents).split()
    pattern = r"\s+".join(map(re.escape, words))
    for found in re.finditer(f"(?=({pattern}))", folded) if words else ():
        begin, end = found.span(1)
        before, first, last, after = (folded[at : at + 1] for at in (max(begin - 1, 0), begin, end - 1, end))
        if not (begin and _are_joined(before, first)) and not _are_joined(last, after):
            return True
    return False


def _fold(text: str, ignore_accents: bool) -> str:
    safe = shorten_runs(text)  # a stored text may be nothing but marks
    apart = unicodedata.normalize("NFD", unicodedata.normalize("NFD", safe).casefold())
    if ignore_accents:
        apart = "".join(c for c in apart if unicodedata.combining(c) in _NO_ACCENTS)
    return unicodedata.normalize("NFC", apart)


def _are_joined(left: str, right: str) -> bool:
    """Whether the two characters belong to one word."""
    if not left or not right or not _is_letter(left) or not _is_letter(right):
        return False
    return not (is_unspaced(left) or is_unspaced(right))


def _is_letter(character: str) -> bool:
    # Marks too: str.isalnum() is false for the vowel signs of Devanagari.
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")
