"""The report of an audit: canonical JSON, from which every other format is rendered."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import reduce
from itertools import groupby
from math import exp, lgamma, log, log1p
from pathlib import Path
from typing import Literal

from pydantic import Field

from chunkproof.audit.findings import CHUNK_KINDS, SCAN_KINDS, VECTOR_KINDS, Finding, Kind
from chunkproof.audit.ledger import Ledger, ManifestFacts, MatchFacts, Progress, encode_id
from chunkproof.audit.source_coverage import SourceCoverage
from chunkproof.base.errors import InternalError
from chunkproof.contract import Model
from chunkproof.proof.near_text import RepeatedResults

MAX_FINDINGS = 1_000
MAX_SOURCES = 50
NO_SOURCE = "(no source)"
CONFIDENCE = 0.95
_STEPS = 60


class SourceCount(Model):
    """The findings of one document, counted by kind."""

    source: str
    findings: int
    kinds: dict[str, int]


class SampleFacts(Model):
    """What a sample says about all chunks of the manifest."""

    drawn: int
    faults: int
    confidence: float
    upper_bound: float = Field(description="At most this share of all chunks is faulty, with that confidence")

    @classmethod
    def from_counts(cls, faults: int, drawn: int) -> "SampleFacts":
        """Compute the bound."""
        return cls(drawn=drawn, faults=faults, confidence=CONFIDENCE, upper_bound=upper_bound(faults, drawn))


class VectorFacts(Model):
    """The result of embedding stored texts again."""

    model: str
    names: tuple[str, ...] = Field((), description="The vectors that were compared; the unnamed one is empty")
    not_compared: tuple[str, ...] = Field((), description="Vectors that this model and BM25 do not make")
    checked: int
    kinds: dict[str, int]
    earlier: int = Field(0, description="Of them, checked before the audit was interrupted for the last time")
    same_from: float | None = Field(
        None, description="Cosine from which a vector is that of its text; lower where vectors are stored in few bits"
    )


class RunFacts(Model):
    """How the audit ran."""

    started_at: datetime
    seconds: float
    chunks_per_second: float = Field(description="Chunks read and compared a second, in the seconds of that alone")
    read_at: datetime | None = Field(None, description="When the collection was begun to be read, for the last time")
    resumed: int = Field(description="How often it was interrupted and resumed")
    changed: int = Field(description="Chunks that changed, or were added or removed, while the collection was read")


class AuditReport(Model):
    """Every chunk of the manifest in exactly one class: the counts add up to the manifest."""

    report: Literal["audit"] = "audit"
    collection: str
    host: str
    version: str | None = Field(None, description="Of a published collection: the version that was audited")
    manifest: ManifestFacts
    complete_scan: bool = Field(description="Whether the whole collection was read; only then are orphans known")
    audited: int = Field(description="Chunks to judge: the whole manifest, or the sample")
    coverage: float = Field(description="Share of them that could be judged")
    points: int | None = Field(description="Points that the scan read")
    kinds: dict[str, int] = Field(description="Chunks of the manifest by class, and orphans")
    mismatch_kinds: dict[str, int]
    sources: tuple[SourceCount, ...] = Field(description="The documents with the most findings")
    sources_total: int
    matching: MatchFacts | None = Field(None, description="Only after a complete scan")
    source_coverage: SourceCoverage | None = Field(None, description="Of the source documents, where they were given")
    queries: RepeatedResults | None = Field(
        None, description="What duplicates take of the results of a suite's queries"
    )
    sample: SampleFacts | None = None
    vectors: VectorFacts | None = None
    findings_total: int
    findings: tuple[Finding, ...] = Field(description=f"The first {MAX_FINDINGS}; .jsonl has all")
    run: RunFacts

    @property
    def faults(self) -> int:
        """All findings but those that are only noted: texts that are nearly the same."""
        return self.findings_total - self.kinds.get(Kind.NEAR_DUPLICATE, 0)

    def count(self, kinds: Iterable[str]) -> int:
        """Count the findings of these kinds."""
        counts = {**self.kinds, **(self.vectors.kinds if self.vectors else {})}
        return sum(counts.get(kind, 0) for kind in kinds)


class Findings:
    """All findings of a ledger, sorted by chunk id and written to a file, with their counts."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self.path = path
        self.kinds: Counter[Kind] = Counter()
        self.mismatch_kinds: Counter[str] = Counter()
        self.total = 0
        self.first: list[Finding] = []
        ledger.execute("CREATE TABLE source_kind (source TEXT, kind TEXT)")
        with path.open("wb") as file:
            for finding in _merge_findings(ledger):
                self._count(finding)
                source = finding.source or NO_SOURCE
                ledger.execute("INSERT INTO source_kind VALUES (?, ?)", source, finding.kind)
                file.write(finding.to_json().encode() + b"\n")
        self.sources_total = ledger.count("SELECT count(DISTINCT source) FROM source_kind")
        self.sources = tuple(_rank_sources(ledger))
        ledger.execute("DROP TABLE source_kind")

    def _count(self, finding: Finding) -> None:
        self.total += 1
        self.kinds[finding.kind] += 1
        if finding.kind is Kind.MISMATCH and finding.mismatch:
            self.mismatch_kinds[finding.mismatch.kind.value] += 1
        if len(self.first) < MAX_FINDINGS:
            self.first.append(finding)


def _rank_sources(ledger: Ledger) -> Iterator[SourceCount]:
    """Yield the documents with the most findings."""
    ledger.define("encode_id", encode_id)
    top = "SELECT source FROM source_kind GROUP BY source ORDER BY count(*) DESC, encode_id(source) LIMIT ?"
    counts: dict[str, dict[str, int]] = {source: {} for (source,) in ledger.rows(top, MAX_SOURCES)}
    for source, kind, count in ledger.rows("SELECT source, kind, count(*) FROM source_kind GROUP BY source, kind"):
        if source in counts:
            counts[source][kind] = count
    for source, of_source in counts.items():
        kinds = {kind.value: of_source[kind] for kind in Kind if kind in of_source}
        yield SourceCount(source=source, findings=sum(kinds.values()), kinds=kinds)


def build_report(progress: Progress, findings: Findings) -> AuditReport:
    """Build the report of an audit that is complete."""
    spec, kinds, audited = progress.spec, findings.kinds, progress.spec.audited
    faulty = sum(kinds[kind] for kind in CHUNK_KINDS)
    if progress.compared != audited or faulty > audited:
        raise InternalError(f"The audit is incomplete: {progress.compared} of {audited} chunks were compared")
    counts: dict[Kind, int] = {kind: kinds[kind] for kind in CHUNK_KINDS}
    counts[Kind.MATCH] = audited - faulty
    if spec.by_ids:
        del counts[Kind.DUPLICATE_TEXT]
    else:
        counts |= {kind: kinds[kind] for kind in SCAN_KINDS}
    if spec.near_duplicates is not None:
        counts[Kind.NEAR_DUPLICATE] = kinds[Kind.NEAR_DUPLICATE]
    return AuditReport(
        collection=spec.collection,
        host=spec.host,
        version=spec.version,
        manifest=spec.manifest,
        complete_scan=not spec.by_ids,
        audited=audited,
        coverage=1.0 - kinds[Kind.UNVERIFIABLE] / audited,
        points=None if spec.by_ids else progress.points,
        kinds={kind.value: count for kind, count in counts.items()},
        mismatch_kinds=dict(findings.mismatch_kinds.most_common()),
        sources=findings.sources,
        sources_total=findings.sources_total,
        matching=progress.matching,
        sample=None if spec.sample is None else SampleFacts.from_counts(faulty, audited),
        vectors=_vector_facts(progress, kinds),
        findings_total=findings.total,
        findings=tuple(findings.first),
        run=RunFacts(
            started_at=progress.started_at,
            read_at=progress.read_at,
            seconds=round(progress.seconds, 3),
            chunks_per_second=round(audited / max(progress.reading_seconds, 1e-9), 1),
            resumed=progress.resumed,
            changed=progress.changed,
        ),
    )


def _vector_facts(progress: Progress, kinds: Counter[Kind]) -> VectorFacts | None:
    if progress.spec.model is None:
        return None
    counts = {kind: kinds[kind] for kind in VECTOR_KINDS} | {Kind.VECTOR_OK: progress.vectors_ok}
    return VectorFacts(
        model=progress.spec.model,
        names=progress.vector_names,
        not_compared=progress.vectors_not_compared,
        checked=sum(counts.values()),
        kinds={kind.value: count for kind, count in counts.items()},
        earlier=progress.vectors_earlier,
        same_from=progress.same_from,
    )


def _merge_findings(ledger: Ledger) -> Iterator[Finding]:
    """Sort findings by chunk id, and merge those of one chunk about its text."""
    rows = ledger.rows("SELECT content FROM finding ORDER BY sort_key, content")
    findings = (Finding.model_validate_json(content) for (content,) in rows)
    for chunk_id, of_chunk in groupby(findings, lambda each: each.chunk_id if each.kind in CHUNK_KINDS else None):
        if chunk_id is None:
            yield from of_chunk
        else:
            yield reduce(_merge_two, of_chunk)


def _merge_two(left: Finding, right: Finding) -> Finding:
    """Merge two findings of a chunk; on several points it is a duplicate, whatever else is wrong."""
    first, second = (left, right) if left.kind in (Kind.DUPLICATE, Kind.DUPLICATE_TEXT) else (right, left)
    details = first.details if first.details == second.details else f"{first.details}; {second.details}"
    points = tuple(dict.fromkeys((*first.point_ids, *second.point_ids)))[:2]
    update = {"details": details, "point_ids": points, "mismatch": first.mismatch or second.mismatch}
    return first.model_copy(update=update)


def upper_bound(faults: int, drawn: int, confidence: float = CONFIDENCE) -> float:
    """Return the largest share of faults that is compatible with the sample (Clopper and Pearson, one-sided).

    Exact for an infinite collection, and conservative for any other. Without a fault in n chunks it is
    1 - 0.05 ** (1/n), close to 3/n.
    """
    if faults >= drawn:
        return 1.0
    low, high = faults / drawn, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _probability_of_at_most(faults, drawn, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _probability_of_at_most(faults: int, drawn: int, share: float) -> float:
    """Return the probability of so few faults in the sample, if this share of all chunks is faulty."""
    if share >= 1.0:
        return 0.0

    def logarithm(k: int) -> float:
        choices = lgamma(drawn + 1) - lgamma(k + 1) - lgamma(drawn - k + 1)
        return choices + (k * log(share) if k else 0.0) + (drawn - k) * log1p(-share)

    return sum(exp(logarithm(k)) for k in range(faults + 1))
