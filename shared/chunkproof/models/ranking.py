"""How a search ranks: by meaning, by words or by both, and what decides between results."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, field_validator

from chunkproof.errors import InvalidParameterError
from chunkproof.models.base import BrokenRules, Model, Request, is_none
from chunkproof.models.json import Faulty

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
    weights: Weights | None = Field(None, description="Of rrf: how much each leg counts; by default the same")
    k: int | None = Field(None, ge=1, le=MAX_K, description=f"Of rrf: the rank constant, {DEFAULT_K} by default")
    candidates: int | None = Field(
        None, ge=1, le=MAX_CANDIDATES, description="How many results of each leg are fused, at least top_k"
    )

    @classmethod
    def broken_rules(cls, fields: Mapping[str, object]) -> list[str]:
        """DBSF has no parameters."""
        given = [name for name in ("weights", "k") if fields.get(name) is not None]
        return [f"{name} belongs to rrf, and dbsf has none" for name in given] if fields.get("method") == "dbsf" else []

    @field_validator("weights", mode="before")
    @classmethod
    def _weights_are_right(cls, weights: Any) -> Any:
        return parse_nested("weights", Weights)(weights)


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


def parse_nested(name: str, kind: type[Request]) -> Callable[[Any], Any]:
    """Return a validator for an object inside of a request: its messages name the field with its place."""

    def parse(value: Any) -> Any:
        if value is None or isinstance(value, kind | Faulty):
            return value
        try:
            return kind.parse(value, subject=name)
        except InvalidParameterError as error:
            messages = (m if m.startswith(f"{name} ") else f"{name}.{m}" for m in error.messages)
            raise BrokenRules(*messages) from None

    return parse


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
