"""The report of a diff: what differs between two collections, what of it may differ, and the verdict."""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from chunkproof.audit.findings import Finding, Kind
from chunkproof.audit.ledger import MatchFacts
from chunkproof.contract import Model
from chunkproof.suite.criteria import MetricChange
from chunkproof.suite.outcome import RetrievedChunk
from chunkproof_cli.exits import COULD_NOT_JUDGE, FAILED
from chunkproof_cli.reports.blocks import plural

TEXT_KINDS = (Kind.MISMATCH, Kind.MISSING, Kind.ORPHAN, Kind.DUPLICATE, Kind.DUPLICATE_TEXT)
# The names of the kinds where B is compared with A instead of with a manifest.
NAMES = {
    Kind.MATCH: "same",
    Kind.MISMATCH: "text changed",
    Kind.MISSING: "only in A",
    Kind.ORPHAN: "only in B",
    Kind.DUPLICATE: "id repeated in B",
    Kind.DUPLICATE_TEXT: "text repeated in B",
    Kind.METADATA_MISMATCH: "metadata changed",
    Kind.UNVERIFIABLE: "unreadable",
}


class SpaceRelation(StrEnum):
    """How the vectors of the same texts compare."""

    SAME_VECTORS = "same vectors"
    SAME_SPACE = "same space"
    OTHER_SPACE = "other space"
    OTHER_SIZE = "other size"
    UNKNOWN = "unknown"


class Side(Model):
    """One of the two collections."""

    collection: str
    host: str
    points: int
    vector_size: int | None
    distance: str | None
    quantization: str | None
    model: str | None = Field(None, description="The model that its queries are embedded with")


class TextDiff(Model):
    """The chunks of B compared with those of A: by id, then by text, then by the nearest text."""

    kinds: dict[str, int]
    mismatch_kinds: dict[str, int]
    matching: MatchFacts | None
    unreadable: int = Field(description="Points of A without a readable text: B should have none there")
    findings_total: int
    findings: tuple[Finding, ...]


class VectorDiff(Model):
    """Vectors of the same texts in both collections."""

    space: SpaceRelation
    name: str = Field("", description="The vector that searches of A use; empty for the unnamed one")
    pairs: int = Field(0, description="Texts whose vectors were compared")
    identical: int = Field(0, description="Pairs with a cosine of at least 0.999")
    lowest: float | None = None
    median: float | None = None
    nearest: float | None = Field(None, description="Share of A's vectors whose nearest vector in B has the same text")
    details: str = ""


class NamedVectorDiff(Model):
    """Another vector of the same texts: a sparse one for searches by words, or any other."""

    name: str
    pairs: int = Field(description="Texts whose vectors were compared")
    identical: int = Field(description="Pairs with a cosine of at least 0.999")
    only_in_a: int = Field(description="Texts that have it only in A")
    only_in_b: int = Field(description="Texts that have it only in B")
    is_read: bool = Field(True, description="Whether both stores return it")

    @property
    def differs(self) -> bool:
        """Whether it is another vector, or missing, for some texts."""
        return self.identical < self.pairs or bool(self.only_in_a or self.only_in_b)

    @property
    def details(self) -> str:
        """What was compared."""
        parts = f"{self.identical:,} of {self.pairs:,} the same"
        for side, count in (("A", self.only_in_a), ("B", self.only_in_b)):
            parts += f", {count:,} only in {side}" if count else ""
        return f"{self.name or 'unnamed'}: {parts if self.is_read else 'not read'}"


class RankChange(Model):
    """The results of one query in both collections; results are the same where their texts are."""

    name: str
    query: str
    overlap: float = Field(description="Share of the results that both have")
    same_first: bool
    largest_move: int = Field(description="The most ranks that a common result moved")
    status_a: str
    status_b: str
    results_a: tuple[RetrievedChunk, ...] = Field((), description="What A returns, where only one of them passes")
    results_b: tuple[RetrievedChunk, ...] = ()


class QueryDiff(Model):
    """What both collections return for the queries of a suite."""

    suite: str
    queries: int
    top_k: int = Field(description="The largest top_k of the cases")
    overlap: float = Field(description="Mean share of the results that both have")
    overlap_low: float = Field(description="Lower end of the 95 % interval, by bootstrap over the queries")
    overlap_high: float
    same_first: int = Field(description="Queries with the same first result")
    same_order: int = Field(description="Queries with the same results in the same order")
    changes: tuple[MetricChange, ...] = Field(description="Metrics of the suite, A before and B after")
    confidence: float = Field(description="Of the intervals of the changes")
    newly_failing: tuple[str, ...]
    newly_passing: tuple[str, ...]
    not_judged: tuple[str, ...] = Field(description="Queries that could not be searched in one of the collections")
    reason: str | None = Field(None, description="Why the first of them could not be searched")
    rows: tuple[RankChange, ...] = Field(description="Those with the least overlap first")


class DiffReport(Model):
    """Two collections compared."""

    report: Literal["diff"] = "diff"
    a: Side
    b: Side
    changed: tuple[str, ...] = Field((), description="Sides to which points were added, or removed, meanwhile")
    texts: TextDiff
    vectors: VectorDiff
    others: tuple[NamedVectorDiff, ...] = ()
    queries: QueryDiff | None = None
    allowed: tuple[str, ...] = Field((), description="What may differ: texts, metadata, vectors")
    tolerate: int = 0
    min_overlap: float | None = None
    started_at: datetime
    seconds: float

    @property
    def text_differences(self) -> int:
        """Chunks whose text is not the same on both sides."""
        return sum(self.texts.kinds.get(kind, 0) for kind in TEXT_KINDS)

    @property
    def failures(self) -> tuple[str, ...]:
        """Everything that differs and may not."""
        return tuple(self._find_failures())

    def _find_failures(self) -> Iterator[str]:
        if self.text_differences and "texts" not in self.allowed:
            yield "texts differ"
        if self.texts.kinds.get(Kind.METADATA_MISMATCH) and "metadata" not in self.allowed:
            yield "metadata differs"
        if "vectors" not in self.allowed:
            if self.vectors.space in (SpaceRelation.OTHER_SPACE, SpaceRelation.OTHER_SIZE):
                yield "vectors are of another space"
            elif self.vectors.space is SpaceRelation.SAME_SPACE:
                yield "vectors differ"
            yield from (f"vectors differ in {other.details}" for other in self.others if other.differs)
        found = self.queries
        if found and len(found.newly_failing) > self.tolerate:
            yield f"{plural(len(found.newly_failing), 'query')} newly failing".replace("querys", "queries")
        if found and self.min_overlap is not None and found.overlap < self.min_overlap:
            yield f"overlap {found.overlap:.1%} is below {self.min_overlap:.0%}"

    @property
    def unjudged(self) -> tuple[str, ...]:
        """What could not be compared."""
        found = [*self.changed]
        if self.texts.kinds.get(Kind.UNVERIFIABLE):
            found.append("chunks without a readable text")
        if self.vectors.space is SpaceRelation.UNKNOWN and "vectors" not in self.allowed:
            found.append("vectors, as no text is in both")
        unread = [other.name for other in self.others if not other.is_read]
        if unread and "vectors" not in self.allowed:
            found.append(f"vectors {', '.join(unread)}, which a store does not return")
        if self.queries and self.queries.not_judged:
            found.append(f"{len(self.queries.not_judged)} of {self.queries.queries} queries")
        return tuple(found)

    @property
    def exit_code(self) -> int:
        """0 when nothing differs that may not, 1 when something does, 3 when that is unknown."""
        return FAILED if self.failures else COULD_NOT_JUDGE if self.unjudged else 0

    @property
    def verdict(self) -> str:
        """The line that explains the exit code."""
        kinds = self.texts.kinds
        others = (f"{count:,} {NAMES[Kind(kind)]}" for kind, count in kinds.items() if count and kind != Kind.MATCH)
        same = f"{kinds.get(Kind.MATCH, 0):,} of {plural(self.a.points, 'chunk')} the same"
        parts = [same, ", ".join(others), self._describe_vectors()]
        if found := self.queries:
            parts.append(
                f"results overlap {found.overlap:.1%} (95 %: {found.overlap_low:.1%} to {found.overlap_high:.1%}) over "
                f"{found.queries:,} queries, {len(found.newly_failing)} newly failing, "
                f"{len(found.newly_passing)} newly passing"
            )
        head = "Equal" if not self.allowed else "Equal but for what may differ"
        if self.failures:
            head = f"Different: {', '.join(self.failures)}"
        elif self.unjudged:
            head = f"Not judged: {', '.join(self.unjudged)}"
        return f"{head}. {'; '.join(filter(None, parts))}."

    def _describe_vectors(self) -> str:
        found = self.vectors
        has_other_size = found.space is SpaceRelation.OTHER_SIZE
        sizes = f" ({self.a.vector_size} and {self.b.vector_size} values)" if has_other_size else ""
        median = f" (median cosine {found.median:.4f})" if found.median is not None else ""
        others = "".join(f"; {other.details}" for other in self.others)
        name = f" ({found.name})" if found.name else ""
        return f"vectors{name}: {found.space.value}{sizes}{median}{others}"
