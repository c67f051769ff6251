"""A search request."""

import json
from collections.abc import Iterator, Mapping
from copy import copy
from datetime import UTC, datetime
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal
from uuid import uuid4

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract.conditions import Condition, check_all_filters, format_filters, is_payload_path, parse_filters
from chunkproof.contract.model import (
    MAX_FIELDS,
    MAX_NAME,
    BrokenRules,
    Faulty,
    Limits,
    Name,
    ParseContext,
    Problems,
    Request,
    between,
    display_name,
    parse_time,
)
from chunkproof.contract.query_options import (
    FusionOptions,
    IndexParams,
    Mode,
    NeighbourCount,
    Rerank,
    addition_conflicts,
    parse_mode,
    parse_nested,
)

MAX_QUERIES = 32
# Fields that cannot be combined with others, or only with some.
_COMBINED = frozenset(
    ("queries", "mode", "params", "fusion", "diversity", "group_by", "group_size", "cursor", "rerank", "highlight")
) | {"neighbours"}
_ADDITIONS = {"rerank", "highlight", "neighbours"}
# These belong to the request, not to each of its queries.
_OF_THE_REQUEST = {"queries", "query_id", "created_at"}
# Some clients send these empty where they have none.
_MAY_BE_EMPTY = {"query_id", "created_at", "timestamp"}


def check_queries(value: Any) -> Any:
    """Check the number of queries; each query is checked later, when it is searched."""
    if value is None or isinstance(value, Faulty):
        return value
    if not isinstance(value, list | tuple):
        raise BrokenRules("queries must be a list")
    if not 1 <= len(value) <= MAX_QUERIES:
        raise BrokenRules(f"queries must have 1 to {MAX_QUERIES} items, not {len(value):,}")
    return tuple(value)


def query_documents(request: Any, limits: Limits) -> list[Any]:
    """Return each query as a document of its own, with the fields that the request has for all of them.

    `BrokenRules` if they want more results together than one query may have, or filter by too much. `request` is a
    `SearchQuery`.
    """
    shared = json.loads(request.model_dump_json(include=request.model_fields_set - _OF_THE_REQUEST))
    if "filters" in shared:  # parsed once for all
        shared["filters"] = request.filters
    documents = [_complete(one, shared, request.aliases) for one in request.queries]
    total = sum(_count_wanted(one, request.defaults(limits)["top_k"]) for one in documents)
    if total > limits.max_top_k:
        raise BrokenRules(f"the queries want {total:,} results together; {limits.max_top_k:,} are the most")
    check_all_filters(one.get("filters") for one in documents if isinstance(one, dict))
    return documents


def _count_wanted(one: Any, default: int) -> int:
    """Return how many results, or candidates for reranking, a query asks for; invalid values count as 0."""
    fields = one if isinstance(one, dict) else {}
    rerank = fields.get("rerank")
    numbers = (fields.get("top_k", default), rerank.get("candidates") if isinstance(rerank, dict) else 0)
    return max(number if type(number) is int else 0 for number in numbers)


def _complete(one: Any, shared: dict[str, Any], aliases: Mapping[str, str]) -> Any:
    if isinstance(one, str):
        return {**shared, "query_text": one}
    if not isinstance(one, dict):
        return one
    given = {aliases.get(name, name) for name in one}
    whole = copy(one)  # of the same kind: one kind of dict remembers the names that were given twice
    whole.update({name: value for name, value in shared.items() if name not in given})
    return whole


DEFAULT_TOP_K = 5
FLOAT32_MAX = 3.4028235e38
MAX_DIMENSION = 65_536  # Qdrant's own limit
MAX_GROUP_SIZE = 100
# Results of a search by words that are selected for diversity: their vectors are compared in this process.
MAX_DIVERSE = 100
MAX_CURSOR = 40_000


def _time(value: Any) -> Any:
    """Read a time; without an offset it is in UTC."""
    if isinstance(value, str) and (value := parse_time(value)) is None:
        raise BrokenRules("created_at must be an ISO 8601 date and time")
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def _no_overflow(value: Any) -> Any:
    """An integer too large for a float is still a number: out of range rather than of the wrong type."""
    return 2.0 if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1 else value


def _vector(value: Any) -> Any:
    """Check a vector's size and its items, which pydantic would describe one by one."""
    if not isinstance(value, list | tuple):
        return value
    if len(value) > MAX_DIMENSION:
        raise BrokenRules(f"query_vector must have at most {MAX_DIMENSION} numbers, not {len(value)}")
    if set(map(type, value)) == {float}:
        return value
    problems = Problems()
    for index, item in enumerate(value):
        if type(item) not in (float, int) and not isinstance(item, Faulty):
            problems.add(("query_vector", index), "must be a number")
    problems.raise_any()
    # An integer too large for a float is still a number: out of range rather than of the wrong type.
    return [min(max(item, -2 * FLOAT32_MAX), 2 * FLOAT32_MAX) if type(item) is int else item for item in value]


def _receipt(value: Any) -> Any:
    if type(value) is not bool and value != "full" and not isinstance(value, Faulty):
        raise BrokenRules('receipt must be true, false or "full"')
    return value


Filters = Annotated[
    tuple[Condition, ...],
    BeforeValidator(parse_filters),
    PlainSerializer(format_filters, when_used="json"),
    WithJsonSchema({"type": "object", "additionalProperties": True}),
]


def _document_rules(schema: dict[str, Any]) -> None:
    """Add the rules that pydantic does not know to the schema: hard limits, aliases, a text or a vector."""
    properties, hard = schema["properties"], Limits()
    properties["query_text"] |= {"minLength": 1, "maxLength": hard.max_query_chars}
    properties["query_vector"] |= {"minItems": 1}
    properties["top_k"] |= {"minimum": 1, "maximum": hard.max_top_k}
    properties["similarity_threshold"] |= {"minimum": 0.0, "maximum": 1.0}
    properties["filters"]["default"] = {}
    properties["group_by"] |= {"minLength": 1, "maxLength": MAX_NAME}
    properties["group_size"] |= {"minimum": 1, "maximum": MAX_GROUP_SIZE}
    properties["diversity"] |= {"minimum": 0.0, "maximum": 1.0}
    properties["cursor"] |= {"minLength": 1, "maxLength": MAX_CURSOR}
    for one in properties.values():  # null is the same as nothing
        if "anyOf" in one:
            kinds = [kind for kind in one.pop("anyOf") if kind != {"type": "null"}]
            one.update(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
    for name in ("collection", "query_id"):
        properties[name] |= {"minLength": 1, "maxLength": MAX_NAME}
    for alias, name in SearchQuery.aliases.items():
        properties[alias] = {**properties[name], "description": f"Alias of {name}", "deprecated": True}
    properties["query"] = {
        "type": "object",
        "properties": {name: properties[name] for name in ("text", "query_id", "timestamp")},
        "required": ["text"],
        "description": "Text and id of the query as an object, instead of the fields themselves",
        "deprecated": True,
    }
    schema["oneOf"] = [{"required": [name]} for name in ("query_text", "text", "query_vector", "queries", "query")]


class SearchQuery(Request):
    """A query: a text or a vector, the number of results, the least score, filters."""

    model_config = ConfigDict(json_schema_extra=_document_rules)

    aliases: ClassVar[Mapping[str, str]] = {
        "text": "query_text",
        "threshold": "similarity_threshold",
        "score_threshold": "similarity_threshold",
        "collection_name": "collection",
        "timestamp": "created_at",
    }

    query_text: str | None = Field(None, description="The question to embed; required unless query_vector is given")
    query_vector: Annotated[tuple[float, ...] | None, BeforeValidator(_vector)] = Field(
        None, strict=False, description="An embedding instead of a text, of the collection's dimension"
    )
    top_k: int = Field(DEFAULT_TOP_K, description="At most this many results")
    similarity_threshold: Annotated[float, BeforeValidator(_no_overflow), between(0.0, 1.0)] = Field(
        0.0, description="Least score of a result, inclusive"
    )
    collection: Name | None = Field(None, description="Which collection; the deployment's own by default")
    filters: Filters = Field((), description="Conditions on payload fields, all of which must hold")
    include_metadata: bool = Field(True, description="False leaves only chunk_id and url in metadata")
    with_payload: bool = Field(False, description="Add each result's raw payload")
    with_vectors: bool = Field(False, description="Add each result's vector")
    mode: Annotated[Mode | None, BeforeValidator(parse_mode)] = Field(
        None, description="What is compared: meanings (dense, the default), words (text), or both (hybrid)"
    )
    fusion: Annotated[FusionOptions | None, BeforeValidator(parse_nested("fusion", FusionOptions))] = Field(
        None, description="Of mode hybrid: how both rankings become one"
    )
    params: Annotated[IndexParams | None, BeforeValidator(parse_nested("params", IndexParams))] = Field(
        None, description="How the index is searched; by default as the collection is configured"
    )
    group_by: str | None = Field(
        None, description="A field, such as document_id; each of its values has at most group_size results"
    )
    group_size: Annotated[int | None, between(1, MAX_GROUP_SIZE)] = Field(
        None, description="Most results for each value of group_by, 1 by default"
    )
    diversity: Annotated[float | None, BeforeValidator(_no_overflow), between(0.0, 1.0)] = Field(
        None, description="Prefer results that differ from each other, from 0 (not at all) to 1 (above all else): MMR"
    )
    cursor: str | None = Field(
        None, description='"start" for the first of several pages, then the next_cursor of the page before'
    )
    rerank: Rerank = Field(
        None, description="Order the results by a model that reads query and text together; true takes the defaults"
    )
    highlight: bool = Field(False, description="Add the sentence of each result nearest to the query, and its words")
    require_integrity: bool = Field(False, description="Leave out chunks whose text does not match its hash")
    receipt: Annotated[bool | Literal["full"], BeforeValidator(_receipt)] = Field(
        False, description="Add the proof that the results were sealed; full adds the query's text and vector to it"
    )
    neighbours: NeighbourCount = Field(
        0, description="Add this many chunks before and after each result in its document"
    )
    explain: bool = Field(False, description="Add how each result got its rank, and what scores random chunks have")
    queries: Annotated[tuple[Any, ...] | None, BeforeValidator(check_queries)] = Field(
        None,
        strict=False,
        description="Several queries instead of one, each a text or an object with the fields of this one; "
        "fields beside it apply to all of them",
        json_schema_extra={
            "items": {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": True}]},
            "minItems": 1,
            "maxItems": MAX_QUERIES,
        },
    )
    query_id: Name = Field(default_factory=lambda: str(uuid4()), description="Returned in the response and logged")
    created_at: Annotated[datetime, BeforeValidator(_time)] = Field(default_factory=lambda: datetime.now(UTC))

    list_field = "queries"
    # An invalid query among several does not fail the others.
    read_later: ClassVar[frozenset[str]] = frozenset({"queries"})

    @classmethod
    def defaults(cls, limits: Limits) -> Mapping[str, object]:
        """Return the default `top_k`, or the limit if that is lower."""
        return {"top_k": min(DEFAULT_TOP_K, limits.max_top_k)}

    @classmethod
    def _canonical(cls, document: dict[str, Any], problems: list[str]) -> dict[str, Any]:
        """Leave out null, and an id or a time that is empty; `query` may be an object with the text and its id."""
        fields = _drop_empty(document)
        if isinstance(nested := fields.get("query"), dict):
            del fields["query"]
            if len(nested) > MAX_FIELDS:
                raise InvalidParameterError(f"query has {len(nested):,} fields; {MAX_FIELDS} are the most")
            both = [display_name(name) for name in nested if name in fields]
            problems += [f"query.{name} and {name} are the same field: give one of them" for name in both]
            fields = _drop_empty(nested) | fields
        return super()._canonical(fields, problems)

    @classmethod
    def broken_rules(cls, fields: Mapping[str, object]) -> list[str]:
        """Require a text, a vector or several queries, and only one of them."""
        text, vector = fields.get("query_text"), fields.get("query_vector")
        if text is not None and vector is None and _COMBINED.isdisjoint(fields):
            return []
        if fields.get("queries") is not None:
            given = [name for name in ("query_text", "query_vector", "cursor") if fields.get(name) is not None]
            return [
                *(f"{name} belongs into one of the queries, not beside them" for name in given),
                *_conflicts(fields),
            ]
        if text is not None and vector is not None:
            return ["Give query_text or query_vector, not both", *_conflicts(fields)]
        return [*(["query_text is required"] if text is None and vector is None else []), *_conflicts(fields)]

    @field_validator("query_text")
    @classmethod
    def _text_has_a_fair_length(cls, text: str | None, info: ValidationInfo) -> str | None:
        limits = ParseContext.of(info).limits
        if text is not None and not text.strip():
            raise BrokenRules("query_text cannot be empty")
        if text is not None and not limits.min_query_chars <= len(text) <= limits.max_query_chars:
            raise BrokenRules(
                f"query_text must be between {limits.min_query_chars} and {limits.max_query_chars} characters"
            )
        return text

    @field_validator("query_vector")
    @classmethod
    def _vector_has_a_direction(cls, vector: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if vector is None:
            return None
        if not all(map(isfinite, vector)) or max(map(abs, vector), default=0.0) > FLOAT32_MAX:
            raise BrokenRules("query_vector must hold finite 32-bit numbers")
        if not any(vector):
            raise BrokenRules("query_vector cannot be empty or all zeros")
        return vector

    @field_validator("top_k")
    @classmethod
    def _top_k_is_within_limits(cls, top_k: int, info: ValidationInfo) -> int:
        most = ParseContext.of(info).limits.max_top_k
        if not 1 <= top_k <= most:
            raise BrokenRules(f"top_k must be between 1 and {most}")
        return top_k

    @field_validator("group_by")
    @classmethod
    def _group_is_a_field(cls, name: str | None) -> str | None:
        if name is not None and not (is_payload_path(name) and len(name) <= MAX_NAME):
            raise BrokenRules("group_by must name a payload field")
        return name

    @field_validator("cursor")
    @classmethod
    def _cursor_is_not_too_long(cls, cursor: str | None) -> str | None:
        if cursor is not None and not 1 <= len(cursor) <= MAX_CURSOR:
            raise BrokenRules('cursor must be "start" or the next_cursor of a response')
        return cursor


def _drop_empty(document: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in document.items()
        if value is not None and (value != "" or name not in _MAY_BE_EMPTY)
    }


def _conflicts(fields: Mapping[str, object]) -> Iterator[str]:
    """Yield why fields cannot be given together."""
    mode = fields.get("mode") or Mode.DENSE
    given = {name for name, value in fields.items() if value is not None}
    if mode in (Mode.TEXT, Mode.HYBRID) and "query_vector" in given:
        yield f"mode {mode} searches by words and needs query_text, not query_vector"
    if mode == Mode.TEXT and fields.get("similarity_threshold") not in (None, 0, 0.0):
        yield "similarity_threshold applies to the cosine similarity, which mode text does not compute"
    if mode == Mode.TEXT and "params" in given:
        yield "params are of the index of vectors, which mode text does not search"
    if mode != Mode.HYBRID and "fusion" in given:
        yield "fusion needs mode hybrid: only there are two rankings"
    top_k = fields.get("top_k")
    if mode != Mode.DENSE and "diversity" in given and type(top_k) is int and top_k > MAX_DIVERSE:
        yield f"diversity in mode {mode} can be had for at most {MAX_DIVERSE} results: lower top_k ({top_k})"
    if "group_size" in given and "group_by" not in given:
        yield "group_size needs group_by"
    for name, why in (("group_by", "grouped"), ("diversity", "diverse")):
        if name in given and "cursor" in given:
            yield f"cursor and {name} cannot be combined: the {why} results are one page"
    if {"group_by", "diversity"} <= given:
        yield "group_by and diversity cannot be combined"
    if not fields.keys().isdisjoint(_ADDITIONS):
        yield from addition_conflicts(fields, DEFAULT_TOP_K)


RetrievalQuery = SearchQuery
