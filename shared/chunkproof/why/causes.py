"""Causes of a missing chunk, and the report of `why`: each change tried, and the smallest that brings it back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, JsonValue

from chunkproof import __version__
from chunkproof.contract import Model
from chunkproof.contract.model import AS_STORED, display_name

FORMAT_VERSION = "1.0"


class Cause(StrEnum):
    """Why an expectation is not met."""

    NOT_IN_COLLECTION = "not in collection"
    DELETED = "deleted"
    SPLIT_DIFFERENTLY = "split differently"
    ID_CHANGED = "id changed"
    TEXT_CHANGED = "text changed"
    UNREADABLE = "unreadable"
    STALE_VECTOR = "stale vector"
    OTHER_MODEL = "other model"
    EMBEDDED_IN_PART = "embedded in part"
    FIELD_RENAMED = "field renamed"
    VALUE_CHANGED = "value changed"
    FILTERED_OUT = "filtered out"
    MISSED_BY_INDEX = "missed by index"
    MISSED_BY_RETRIEVER = "missed by retriever"
    DUPLICATES = "duplicates"
    OTHER_LEG = "other leg"
    RERANKED = "reranked"
    LEFT_OUT = "left out"
    BELOW_THRESHOLD = "below threshold"
    BEYOND_TOP_K = "beyond top_k"
    UNEXPLAINED = "unexplained"
    KEYWORD_MISSING = "keyword missing"
    UNWANTED_RESULT = "unwanted result"
    TOO_SLOW = "too slow"
    NOT_LOOKED_INTO = "not looked into"


class Row(Model):
    """A counterfactual: the search repeated with some changes, and where the expected chunk is then."""

    change: str = Field(description="What was changed; `as it is` for the search itself")
    cause: Cause | None = Field(None, description="The cause that this change undoes")
    rank: int | None = Field(None, description="Rank of the expected chunk; null when it is not among the results")
    score: float | None = Field(None, description="Its score, where it has one")
    found: bool = Field(description="Whether it is within top_k")
    detail: str | None = Field(None, description="Why it is not among the results, or what the change rests on")


class WhyVerdict(Model):
    """What was found out; `causes` is empty when the chunk is found."""

    found: bool
    causes: tuple[Cause, ...] = ()
    changes: tuple[str, ...] = Field((), description="The smallest set of changes that brings the chunk into top_k")
    rank: int | None = Field(None, description="Its rank then")
    score: float | None = Field(None, description="Its score then")
    line: str = Field(description="The verdict in one sentence")
    cost: str | None = Field(None, description="What the change costs")
    command: str | None = Field(
        None, description="The command that makes the change, or that writes down what has to be written for it"
    )
    then: str | None = Field(None, description="The command that sends what was written down to the store")


class WhyReport(Model):
    """Why an expected chunk is not among the results of a search."""

    model_config = AS_STORED

    format: Literal["chunkproof-why-report"] = "chunkproof-why-report"
    format_version: str = FORMAT_VERSION
    chunkproof_version: str = __version__
    query_text: str
    expected: str
    collection: str
    top_k: int
    similarity_threshold: float
    filters: dict[str, JsonValue] = Field(default_factory=dict)
    chunks: tuple[str, ...] = Field((), description="Ids of the chunks that the expectation means")
    snapshot: str | None = Field(None, description="The snapshot compared with, and its date")
    rows: tuple[Row, ...]
    verdict: WhyVerdict
    notes: tuple[str, ...] = ()
    tried: int = Field(description="How many changes and combinations were tried")


@dataclass(frozen=True)
class Fix:
    """What would have to be written to make the change; `why` itself writes nothing.

    `operations` are those of Qdrant's `POST /collections/{name}/points/batch`, and `chunks` are lines of chunks.jsonl,
    as `chunkproof load` reads them. `refused` says why nothing is written: the chunk could not be made whole.
    """

    operations: Sequence[Mapping[str, Any]]
    chunks: Sequence[Mapping[str, Any]]
    refused: str | None = None


@dataclass(frozen=True)
class WhyAnswer:
    """The report, and the writes that would make the change; None where it changes only the search."""

    report: WhyReport
    fix: Fix | None = None


def describe_cause(cause: Cause, name: str, collection: str, evidence: str | None) -> str:
    """Say what is wrong, as a clause about the chunk."""
    shown = display_name(name, 80)
    sentences = {
        Cause.NOT_IN_COLLECTION: f"{shown} is not in {collection}",
        Cause.DELETED: f"{shown} was deleted: the snapshot has it, {collection} does not",
        Cause.SPLIT_DIFFERENTLY: f"{shown} was split differently: {evidence}",
        Cause.ID_CHANGED: f"{shown} has another id now",
        Cause.TEXT_CHANGED: f"the text of {shown} was changed",
        Cause.UNREADABLE: f"{shown} is stored without a readable text, so that searches leave it out",
        Cause.STALE_VECTOR: f"the vector of {shown} is not the embedding of its text",
        Cause.OTHER_MODEL: f"the vector of {shown} is another model's",
        Cause.EMBEDDED_IN_PART: f"the vector of {shown} is that of a part of its text",
        Cause.FIELD_RENAMED: f"a field of {shown} was renamed: {evidence}",
        Cause.VALUE_CHANGED: f"a field of {shown} that the filter names has another value",
        Cause.FILTERED_OUT: f"{shown} is stored, but the filter on {evidence or 'some fields'} excludes it",
        Cause.MISSED_BY_INDEX: f"{shown} was missed by the index",
        Cause.DUPLICATES: f"near-duplicates take the places before {shown}",
        Cause.OTHER_LEG: f"what the search compares does not find {shown}",
        Cause.RERANKED: f"the reranking puts {shown} behind others",
        Cause.LEFT_OUT: f"{shown} is left out for results that are more different",
        Cause.BELOW_THRESHOLD: f"{shown} scores less than the threshold",
        Cause.BEYOND_TOP_K: f"{shown} is outranked: other chunks are nearer to the question",
    }
    sentence = sentences[cause]
    in_sentence = cause in (Cause.SPLIT_DIFFERENTLY, Cause.FIELD_RENAMED, Cause.FILTERED_OUT)
    return sentence if in_sentence or not evidence else f"{sentence} ({evidence})"


def describe_unknown(expected: str, collection: str) -> str:
    """Say that nothing has the expected id."""
    return f"{expected} is not in {collection}: no chunk, document or URL has this id"
