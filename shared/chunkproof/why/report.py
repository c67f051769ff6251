"""The report of `why`: each change that was tried, and the smallest one that brings the chunk back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, JsonValue

from chunkproof import __version__
from chunkproof.models import Model
from chunkproof.models.base import AS_STORED

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

    def canonical_json(self) -> str:
        """Return the report as it is written to a file, indented by two spaces."""
        return self.model_dump_json(indent=2) + "\n"


@dataclass(frozen=True)
class Fix:
    """What would have to be written to make the change; `why` itself writes nothing.

    `operations` are those of Qdrant's `POST /collections/{name}/points/batch`, and `chunks` are lines of chunks.jsonl,
    as `chunkproof load` reads them.
    """

    operations: Sequence[Mapping[str, Any]]
    chunks: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Explanation:
    """The report, and the writes that would make the change; None where it changes only the search."""

    report: WhyReport
    fix: Fix | None = None
