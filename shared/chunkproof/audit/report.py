"""The report of an audit: canonical JSON, from which every other format is rendered."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import nlargest
from itertools import groupby
from pathlib import Path
from typing import Literal

from pydantic import Field

from chunkproof.audit.findings import CHUNK_KINDS, SCAN_KINDS, VECTOR_KINDS, Finding, Kind
from chunkproof.audit.prepare import encode_id, format_line
from chunkproof.audit.sampling import CONFIDENCE, upper_bound
from chunkproof.audit.sort import Sorter, merge_neighbours
from chunkproof.audit.source_coverage import SourceCoverage
from chunkproof.audit.state import AuditSpec, Progress
from chunkproof.errors import InternalError
from chunkproof.models import Model
from chunkproof.retrieval.repeated import RepeatedResults

MAX_FINDINGS = 1_000
MAX_SOURCES = 50
NO_SOURCE = "(no source)"


class ManifestFacts(Model):
    """The manifest: entries are its lines, chunks the different ids."""

    name: str
    sha256: str
    entries: int
    chunks: int
    repeated: int = Field(description="Entries beyond the first one of their chunk")
    presence_only: int = Field(
        0, description="Chunks whose text the manifest does not know: only their ids are compared"
    )


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


class VectorFacts(Model):
    """The result of embedding stored texts again."""

    model: str
    checked: int
    kinds: dict[str, int]
    same_from: float | None = Field(
        None, description="Cosine from which a vector is that of its text; lower where vectors are stored in few bits"
    )


class MatchFacts(Model):
    """How the chunks of the manifest were found, and how often texts are stored."""

    by_id: int
    by_text: int = Field(description="No point has their id; a point with the same text does")
    by_nearest_text: int = Field(description="Neither id nor text is stored; they are compared with the nearest text")
    repeated_texts: int = Field(description="Texts that several points have")
    extra_points: int = Field(description="Points beyond the first one of each text")


class RunFacts(Model):
    """How the audit ran."""

    started_at: datetime
    seconds: float
    chunks_per_second: float = Field(description="Chunks read and compared a second, without embedding")
    resumed: int = Field(description="How often it was interrupted and resumed")
    changed: int = Field(description="Chunks that changed while they were read, and were read again")


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

    def canonical_json(self) -> str:
        """Write the report in its canonical form."""
        return self.model_dump_json(indent=2) + "\n"

    @property
    def faults(self) -> int:
        """All findings but those that are only noted: texts that are nearly the same."""
        return self.findings_total - self.kinds.get(Kind.NEAR_DUPLICATE, 0)

    def count(self, kinds: Iterable[str]) -> int:
        """Count the findings of these kinds."""
        counts = {**self.kinds, **(self.vectors.kinds if self.vectors else {})}
        return sum(counts.get(kind, 0) for kind in kinds)


class Findings:
    """All findings, sorted by chunk id and written to a file, with their counts."""

    def __init__(self, path: Path, lines: Iterable[bytes], folder: Path) -> None:
        self.path = path
        self.kinds: Counter[Kind] = Counter()
        self.mismatch_kinds: Counter[str] = Counter()
        self.total = 0
        self.first: list[Finding] = []
        self._sources = Sorter(folder)
        with path.open("wb") as file:
            for finding in _merge_findings(lines, folder):
                self._count(finding)
                file.write(finding.to_json().encode() + b"\n")
        self.sources, self.sources_total = self._rank_sources()

    def _count(self, finding: Finding) -> None:
        self.total += 1
        self.kinds[finding.kind] += 1
        if finding.kind is Kind.MISMATCH and finding.mismatch:
            self.mismatch_kinds[finding.mismatch.kind.value] += 1
        if len(self.first) < MAX_FINDINGS:
            self.first.append(finding)
        self._sources.add(
            format_line(encode_id(finding.source or NO_SOURCE), [finding.source or NO_SOURCE, finding.kind])
        )

    def _rank_sources(self) -> tuple[tuple[SourceCount, ...], int]:
        total = 0

        def count_sources() -> Iterator[SourceCount]:
            nonlocal total
            for _, lines in groupby(self._sources, key=lambda line: line.partition(b"\t")[0]):
                kinds: Counter[str] = Counter()
                for line in lines:
                    source, kind = json.loads(line.partition(b"\t")[2])
                    kinds[kind] += 1
                total += 1
                known = {kind.value: kinds[kind] for kind in Kind if kind in kinds}
                yield SourceCount(source=source, findings=kinds.total(), kinds=known)

        top = nlargest(MAX_SOURCES, count_sources(), key=lambda each: each.findings)
        return tuple(top), total


def build_report(
    progress: Progress, findings: Findings, *, name: str, model: str | None, started_at: datetime
) -> AuditReport:
    """Build the report of an audit that is complete."""
    spec, kinds = progress.spec, findings.kinds
    audited = spec.chunks if spec.sample is None else min(spec.sample, spec.chunks)
    faulty = sum(kinds[kind] for kind in CHUNK_KINDS)
    if progress.compared != audited or faulty > audited:
        raise InternalError(f"The audit is incomplete: {progress.compared} of {audited} chunks were compared")
    counts = {kind: kinds[kind] for kind in CHUNK_KINDS} | {Kind.MATCH: audited - faulty}
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
        manifest=ManifestFacts(
            name=name,
            sha256=spec.manifest_sha256,
            entries=spec.entries,
            chunks=spec.chunks,
            repeated=spec.entries - spec.chunks,
            presence_only=spec.presence_only,
        ),
        complete_scan=not spec.by_ids,
        audited=audited,
        coverage=1.0 - kinds[Kind.UNVERIFIABLE] / audited,
        points=None if spec.by_ids else progress.points,
        kinds={kind.value: count for kind, count in counts.items()},
        mismatch_kinds=dict(findings.mismatch_kinds.most_common()),
        sources=findings.sources,
        sources_total=findings.sources_total,
        matching=_match_facts(progress),
        sample=_sample_facts(spec, faulty, audited),
        vectors=_vector_facts(progress, kinds, model),
        findings_total=findings.total,
        findings=tuple(findings.first),
        run=RunFacts(
            started_at=started_at,
            seconds=round(progress.seconds, 3),
            chunks_per_second=round(audited / max(progress.reading_seconds, 1e-9), 1),
            resumed=progress.resumed,
            changed=progress.changed,
        ),
    )


def _match_facts(progress: Progress) -> MatchFacts | None:
    spec = progress.spec
    if spec.by_ids or spec.match_by != "text":
        return None
    return MatchFacts(
        by_id=spec.chunks - progress.missing_ids,
        by_text=progress.by_text,
        by_nearest_text=progress.by_nearest_text,
        repeated_texts=progress.repeated_texts,
        extra_points=progress.extra_points,
    )


def _sample_facts(spec: AuditSpec, faults: int, drawn: int) -> SampleFacts | None:
    if spec.sample is None:
        return None
    bound = upper_bound(faults, drawn)
    return SampleFacts(drawn=drawn, faults=faults, confidence=CONFIDENCE, upper_bound=bound)


def _vector_facts(progress: Progress, kinds: Counter[Kind], model: str | None) -> VectorFacts | None:
    if progress.spec.vectors is None or model is None:
        return None
    counts = {kind: kinds[kind] for kind in VECTOR_KINDS} | {Kind.VECTOR_OK: progress.vectors_ok}
    return VectorFacts(
        model=model,
        checked=sum(counts.values()),
        kinds={kind.value: count for kind, count in counts.items()},
        same_from=progress.same_from,
    )


def _merge_findings(lines: Iterable[bytes], folder: Path) -> Iterator[Finding]:
    """Sort findings by chunk id, and merge those of one chunk about its text."""
    ordered = Sorter(folder)
    for line in lines:
        ordered.add(line)
    found = (Finding.model_validate_json(line.partition(b"\t")[2]) for line in ordered)
    yield from merge_neighbours(
        found, lambda finding: finding.chunk_id if finding.kind in CHUNK_KINDS else None, _merge_two
    )


def _merge_two(left: Finding, right: Finding) -> Finding:
    """Merge two findings of a chunk; on several points it is a duplicate, whatever else is wrong."""
    first, second = (left, right) if left.kind in (Kind.DUPLICATE, Kind.DUPLICATE_TEXT) else (right, left)
    details = first.details if first.details == second.details else f"{first.details}; {second.details}"
    points = tuple(dict.fromkeys((*first.point_ids, *second.point_ids)))[:2]
    return first.model_copy(
        update={"details": details, "point_ids": points, "mismatch": first.mismatch or second.mismatch}
    )
