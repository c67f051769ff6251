"""Additions to a search that a request can ask for: reranking, highlights, neighbours, an explanation."""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract.model import (
    AS_STORED,
    BrokenRules,
    Count,
    Faulty,
    Items,
    Milliseconds,
    Model,
    ParseContext,
    Request,
    between,
    is_none,
)

MAX_CANDIDATES = 1_000
MAX_K = 10_000
MAX_EF = 10_000
# Qdrant's own. With 60, twenty chunks in the middle of both rankings are before one that is first by its words alone.
DEFAULT_K = 2


class Mode(StrEnum):
    """What a search compares: meanings (vectors), words (BM25), or both."""

    DENSE = "dense"
    TEXT = "text"
    HYBRID = "hybrid"


def parse_mode(value: Any) -> Any:
    """Read a mode; `BrokenRules` lists them."""
    if value is None or isinstance(value, Mode | Faulty):
        return value
    if not isinstance(value, str) or value not in list(Mode):
        raise BrokenRules(f"mode must be one of {', '.join(Mode)}")
    return Mode(value)


def parse_nested(name: str, kind: type[Request]) -> Callable[[Any, ValidationInfo], Any]:
    """Return a validator for an object inside of a request: its messages name the field with its place."""

    def parse(value: Any, info: ValidationInfo) -> Any:
        if value is None or isinstance(value, kind | Faulty):
            return value
        try:
            return kind.parse(value, ParseContext.of(info).limits, subject=name)
        except InvalidParameterError as error:
            messages = (m if m.startswith(f"{name} ") else f"{name}.{m}" for m in error.messages)
            raise BrokenRules(*messages) from None

    return parse


class Weights(Request):
    """How much each leg counts; only the ratio matters much."""

    dense: float = Field(1.0, ge=0.0, le=1_000.0, description="Weight of the search by meaning")
    text: float = Field(1.0, ge=0.0, le=1_000.0, description="Weight of the search by words")

    @classmethod
    def broken_rules(cls, fields: Mapping[str, object]) -> list[str]:
        """At least one leg counts."""
        return ["dense and text cannot both be 0"] if fields.get("dense") == fields.get("text") == 0 else []


class FusionOptions(Request):
    """How the results of both legs become one ranking."""

    method: Literal["rrf", "dbsf"] = Field("rrf", description="Reciprocal rank fusion, or distribution-based scores")
    weights: Annotated[Weights | None, BeforeValidator(parse_nested("weights", Weights))] = Field(
        None, description="Of rrf: how much each leg counts; by default the same"
    )
    k: int | None = Field(None, ge=1, le=MAX_K, description=f"Of rrf: the rank constant, {DEFAULT_K} by default")
    candidates: int | None = Field(
        None, ge=1, le=MAX_CANDIDATES, description="How many results of each leg are fused, at least top_k"
    )

    @classmethod
    def broken_rules(cls, fields: Mapping[str, object]) -> list[str]:
        """DBSF has no parameters."""
        given = [name for name in ("weights", "k") if fields.get(name) is not None]
        return [f"{name} belongs to rrf, and dbsf has none" for name in given] if fields.get("method") == "dbsf" else []


class IndexParams(Request):
    """How the index of the dense vectors is searched."""

    hnsw_ef: int | None = Field(
        None, ge=1, le=MAX_EF, description="Candidates that the index keeps while it searches: more is exacter, slower"
    )
    exact: bool = Field(False, description="Compare with every point instead of using the index")
    rescore: bool | None = Field(
        None, description="Whether a quantized collection scores its candidates again with the original vectors"
    )
    oversampling: float | None = Field(
        None, ge=1.0, le=100.0, description="How many times as many candidates are rescored as results are returned"
    )


class ResultScores(Model):
    """The scores of a result by kind; null where that leg did not find it."""

    dense: float | None = Field(description="Cosine similarity, which similarity_score and similarity_threshold mean")
    text: float | None = Field(description="BM25, which has no upper bound; null where the deployment has tenants")
    fused: float | None = Field(None, description="By which a hybrid search ranks; comparable within one response only")
    rerank: float | None = Field(
        None, exclude_if=is_none, description="Relevance, by which reranked results are ordered"
    )


class FusionInForce(Model):
    """How the legs were fused."""

    method: Literal["rrf", "dbsf"]
    k: int | None = None
    weights: dict[str, float] | None = None
    candidates: int


class TextSearch(Model):
    """What the search by words was made with."""

    by: Literal["sparse_vector", "text_index"]
    name: str


MODEL_PATTERN = r"^[A-Za-z0-9._:/-]{1,100}$"
MODEL_NAME = "1 to 100 letters, digits, dots, dashes, underscores, colons and slashes"
MAX_NEIGHBOURS = 5
# Neighbours of more results would be more than a response can carry.
MAX_WITH_NEIGHBOURS = 100


class RerankOptions(Request):
    """Which model reranks how many candidates."""

    model: str | None = Field(
        None, description="The reranking model; the deployment's own by default", pattern=MODEL_PATTERN
    )
    candidates: int | None = Field(
        None,
        description="How many results of the search are reranked, at least top_k; by default the deployment's number",
    )
    required: bool = Field(False, description="Whether the request fails when its results cannot be reranked")

    @field_validator("model", mode="before")
    @classmethod
    def _model_is_a_name(cls, model: Any) -> Any:
        if isinstance(model, str) and not re.fullmatch(MODEL_PATTERN, model):
            raise BrokenRules(f"model must be {MODEL_NAME}")
        return model

    @field_validator("candidates")
    @classmethod
    def _candidates_are_within_limits(cls, candidates: int | None, info: ValidationInfo) -> int | None:
        most = ParseContext.of(info).limits.max_candidates
        if candidates is not None and not 1 <= candidates <= most:
            raise BrokenRules(f"candidates must be between 1 and {most}")
        return candidates


def parse_rerank(value: Any, info: ValidationInfo) -> Any:
    """Read `rerank`: an object, true for one without fields, or false; `BrokenRules` names each field that is wrong."""
    if isinstance(value, bool | Faulty):
        return RerankOptions() if value is True else None if isinstance(value, Faulty) else value
    if value is not None and not isinstance(value, Mapping | RerankOptions):
        raise BrokenRules("rerank must be an object, true or false")
    return parse_nested("rerank", RerankOptions)(value, info)


Rerank = Annotated[RerankOptions | bool | None, BeforeValidator(parse_rerank)]


NeighbourCount = Annotated[
    int, between(0, MAX_NEIGHBOURS), WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_NEIGHBOURS})
]
_NOT_RERANKED = {
    "group_by": "a reranker orders single results, and would take groups apart",
    "diversity": "a reranker would undo the choice of results that differ",
    "cursor": "a reranker orders the candidates of one page, so that pages would overlap",
}


def addition_conflicts(fields: Mapping[str, object], default_top_k: int) -> Iterator[str]:
    """Yield why additions cannot be had with the other fields of a request."""
    rerank = fields.get("rerank")
    if fields.get("query_vector") is not None:
        if rerank is not None and rerank is not False:
            yield "rerank needs query_text: a reranker reads the words of a query"
        if fields.get("highlight") is True:
            yield "highlight needs query_text: a vector has no words to find"
    if rerank is not None and rerank is not False:
        for name, why in _NOT_RERANKED.items():
            if fields.get(name) is not None:
                yield f"rerank and {name} cannot be combined: {why}"
    candidates = rerank.get("candidates") if isinstance(rerank, Mapping) else getattr(rerank, "candidates", None)
    top_k, neighbours = fields.get("top_k", default_top_k), fields.get("neighbours")
    if type(neighbours) is int and neighbours > 0 and type(top_k) is int and top_k > MAX_WITH_NEIGHBOURS:
        yield f"neighbours can be had for at most {MAX_WITH_NEIGHBOURS} results: lower top_k ({top_k})"
    if type(candidates) is int and type(top_k) is int and 1 <= candidates < top_k:
        yield f"rerank.candidates must be at least top_k ({top_k}), not {candidates}"


class RerankExecution(Model):
    """Whether the results were reranked, and if not, why."""

    model: str
    candidates: Count = Field(description="How many results of the search were given to the reranker")
    status: Literal["applied", "skipped"]
    reason: str | None = Field(None, description="Error code: why the results are in the order of the search")
    message: str | None = Field(None, description="The same in a sentence")
    time_ms: Milliseconds = 0.0
    maybe_cut: Count = Field(
        0, description="Candidates that may be longer than the model reads, so that their end did not count"
    )


class Sentence(Model):
    """The sentence of a text that is nearest to the query: `text[start:end]`, counted in code points."""

    text: str
    start: Count
    end: Count
    by: Literal["embedding", "terms"] = Field(description="How it was found")
    score: float = Field(description="Cosine with the query (embedding), or how many of its terms it has (terms)")


class TermMatch(Model):
    """A word of the query in a text: `text[start:end]`, counted in code points."""

    term: str
    start: Count
    end: Count


class Highlight(Model):
    """What in a text answers the query."""

    sentence: Sentence | None
    terms: Items[TermMatch]
    terms_found: Count = Field(description="How many words matched; the first ones are in terms")
    partial: bool = Field(description="Whether the text is longer than what was looked at")


class Neighbour(Model):
    """A chunk next to a result in its document."""

    model_config = AS_STORED

    chunk_id: str
    point_id: int | str
    position: int | float
    text: str = Field(description="The stored text, byte for byte")


class Neighbours(Model):
    """The chunks before and after a result in its document, in the document's order."""

    before: Items[Neighbour] = ()
    after: Items[Neighbour] = ()


class LegScore(Model):
    """Where one kind of search has a result; without a rank, it did not find it among its candidates."""

    rank: int | None = Field(None, ge=1)
    score: float | None = None


class FusionScore(Model):
    """The fused score, and how much of it comes from each ranking."""

    score: float
    dense: float | None = None
    text: float | None = None


class RerankScore(Model):
    """What the reranker changed."""

    score: float
    rank_before: int = Field(ge=1, description="Rank in the search, before reranking")


class Confidence(Model):
    """Where a score lies among the scores of random chunks of the collection for the same query."""

    percentile: float = Field(
        ge=0.0, le=100.0, description="Share of the random chunks with a lower score; ties count half"
    )
    sample_size: Count


class ResultExplanation(Model):
    """Why a result has its rank."""

    dense: LegScore | None = None
    text: LegScore | None = None
    fusion: FusionScore | None = None
    rerank: RerankScore | None = None
    confidence: Confidence | None = None


class FilterEffect(Model):
    """How many points the filter leaves."""

    points: Count = Field(description="Points that could be searched without the filter")
    matching: Count = Field(description="Points that meet the filter")


class RandomScores(Model):
    """The scores of random chunks of the collection for this query."""

    sample_size: Count
    median: float
    p95: float
    highest: float


class QueryExplanation(Model):
    """How the query was searched."""

    search: Literal["index", "exact"] | None = Field(
        None, description="Whether an index chose the points to compare, or all points were compared"
    )
    points: Count | None = Field(None, description="Points of the collection that the caller may see")
    indexed_vectors: Count | None = None
    filter: FilterEffect | None = None
    times_ms: dict[str, Milliseconds]
    random_scores: RandomScores | None = None
    notes: Items[str] = Field((), description="What could not be found out, and why")
