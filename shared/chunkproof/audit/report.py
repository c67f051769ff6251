"""The report: canonical JSON, from which every other format is made."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import nlargest
from itertools import groupby
from pathlib import Path
from typing import Literal

from pydantic import Field

from chunkproof.audit.findings import OF_CHUNKS, OF_VECTORS, Finding, Kind
from chunkproof.audit.prepare import id_key, keyed
from chunkproof.audit.sampling import CONFIDENCE, upper_bound
from chunkproof.audit.sort import Sorter, neighbours_joined
from chunkproof.audit.state import Job, Progress
from chunkproof.errors import InternalError
from chunkproof.models import Model

SHOWN_FINDINGS = 1_000
SHOWN_SOURCES = 50
NO_SOURCE = "(no source)"


class ManifestFacts(Model):
    """What was to be audited: entries are lines, chunks are different ids."""

    name: str
    sha256: str
    entries: int
    chunks: int
    repeated: int = Field(description="Entries beyond the first one of their chunk")


class SourceCount(Model):
    """How many findings a document has, by kind."""

    source: str
    findings: int
    kinds: dict[str, int]


class SampleFacts(Model):
    """What a sample says of all chunks of the manifest."""

    drawn: int
    faults: int
    confidence: float
    upper_bound: float = Field(description="At most this share of all chunks is faulty, with that confidence")


class VectorFacts(Model):
    """What embedding the stored texts again showed."""

    model: str
    checked: int
    kinds: dict[str, int]


class RunFacts(Model):
    """How it went; nothing here is about the collection."""

    started_at: datetime
    seconds: float
    chunks_per_second: float = Field(description="Read and compared; embedding is not in it")
    resumed: int = Field(description="How often it was interrupted and went on")
    changed: int = Field(description="Chunks that changed while they were read, and were read again")


class AuditReport(Model):
    """Every chunk of the manifest in exactly one class: the counts add up to the manifest."""

    report: Literal["audit"] = "audit"
    collection: str
    host: str
    manifest: ManifestFacts
    complete_scan: bool = Field(description="Only then is it known what is stored and not in the manifest")
    audited: int = Field(description="Chunks that were to be judged: all of the manifest, or the sample")
    coverage: float = Field(description="Share of them that could be judged")
    points: int | None = Field(description="Points that the scan read")
    kinds: dict[str, int] = Field(description="Chunks of the manifest by class, and orphans")
    mismatch_kinds: dict[str, int]
    sources: tuple[SourceCount, ...] = Field(description="The documents with most findings")
    sources_total: int
    sample: SampleFacts | None = None
    vectors: VectorFacts | None = None
    findings_total: int
    findings: tuple[Finding, ...] = Field(description=f"The first {SHOWN_FINDINGS}; .jsonl has all")
    run: RunFacts

    def canonical_json(self) -> str:
        """The report as it is kept."""
        return self.model_dump_json(indent=2) + "\n"

    def count(self, kinds: Iterable[str]) -> int:
        """How many findings are of these kinds."""
        counts = {**self.kinds, **(self.vectors.kinds if self.vectors else {})}
        return sum(counts.get(kind, 0) for kind in kinds)


class Findings:
    """All findings in order, one per chunk and subject, in a file; and what they amount to."""

    def __init__(self, path: Path, lines: Iterable[bytes], folder: Path) -> None:
        self.path = path
        self.kinds: Counter[Kind] = Counter()
        self.mismatch_kinds: Counter[str] = Counter()
        self.total = 0
        self.first: list[Finding] = []
        self._sources = Sorter(folder)
        with path.open("wb") as file:
            for finding in _one_each(lines, folder):
                self._count(finding)
                file.write(finding.to_json().encode() + b"\n")
        self.sources, self.sources_total = self._ranked()

    def _count(self, finding: Finding) -> None:
        self.total += 1
        self.kinds[finding.kind] += 1
        if finding.kind is Kind.MISMATCH and finding.mismatch:
            self.mismatch_kinds[finding.mismatch.kind.value] += 1
        if len(self.first) < SHOWN_FINDINGS:
            self.first.append(finding)
        self._sources.add(
            keyed(id_key(finding.source or NO_SOURCE), [finding.source or NO_SOURCE, finding.kind])
        )

    def _ranked(self) -> tuple[tuple[SourceCount, ...], int]:
        total = 0

        def counted() -> Iterator[SourceCount]:
            nonlocal total
            for _, lines in groupby(self._sources, key=lambda line: line.partition(b"\t")[0]):
                kinds: Counter[str] = Counter()
                for line in lines:
                    source, kind = json.loads(line.partition(b"\t")[2])
                    kinds[kind] += 1
                total += 1
                known = {kind.value: kinds[kind] for kind in Kind if kind in kinds}
                yield SourceCount(source=source, findings=kinds.total(), kinds=known)

        top = nlargest(SHOWN_SOURCES, counted(), key=lambda one: one.findings)
        return tuple(top), total


def report_of(
    progress: Progress, findings: Findings, *, name: str, model: str | None, started_at: datetime
) -> AuditReport:
    """The report on an audit that has come to its end."""
    job, kinds = progress.job, findings.kinds
    audited = job.chunks if job.sample is None else min(job.sample, job.chunks)
    faulty = sum(kinds[kind] for kind in OF_CHUNKS)
    if progress.seen != audited or faulty > audited:
        raise InternalError(
            f"{audited} chunks were to be audited, {progress.seen} were: the audit is not whole"
        )
    counts = {kind: kinds[kind] for kind in OF_CHUNKS} | {Kind.MATCH: audited - faulty}
    if not job.by_ids:
        counts[Kind.ORPHAN] = kinds[Kind.ORPHAN]
    return AuditReport(
        collection=job.collection,
        host=job.host,
        manifest=ManifestFacts(
            name=name,
            sha256=job.manifest_sha256,
            entries=job.entries,
            chunks=job.chunks,
            repeated=job.entries - job.chunks,
        ),
        complete_scan=not job.by_ids,
        audited=audited,
        coverage=1.0 - kinds[Kind.UNVERIFIABLE] / audited,
        points=None if job.by_ids else progress.points,
        kinds={kind.value: count for kind, count in counts.items()},
        mismatch_kinds=dict(findings.mismatch_kinds.most_common()),
        sources=findings.sources,
        sources_total=findings.sources_total,
        sample=_sample(job, faulty, audited),
        vectors=_vectors(progress, kinds, model),
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


def _sample(job: Job, faults: int, drawn: int) -> SampleFacts | None:
    if job.sample is None:
        return None
    bound = upper_bound(faults, drawn)
    return SampleFacts(drawn=drawn, faults=faults, confidence=CONFIDENCE, upper_bound=bound)


def _vectors(progress: Progress, kinds: Counter[Kind], model: str | None) -> VectorFacts | None:
    if progress.job.vectors is None or model is None:
        return None
    counts = {kind: kinds[kind] for kind in OF_VECTORS} | {Kind.VECTOR_OK: progress.vectors_ok}
    return VectorFacts(
        model=model,
        checked=sum(counts.values()),
        kinds={kind.value: count for kind, count in counts.items()},
    )


def _one_each(lines: Iterable[bytes], folder: Path) -> Iterator[Finding]:
    """Findings by chunk id; a chunk of the manifest has one, however often something was said of it."""
    ordered = Sorter(folder)
    for line in lines:
        ordered.add(line)
    found = (Finding.model_validate_json(line.partition(b"\t")[2]) for line in ordered)
    yield from neighbours_joined(
        found, lambda finding: finding.chunk_id if finding.kind in OF_CHUNKS else None, _both
    )


def _both(left: Finding, right: Finding) -> Finding:
    """A chunk on several points is a duplicate, whatever else is wrong with one of them."""
    first, second = (left, right) if left.kind is Kind.DUPLICATE else (right, left)
    details = first.details if first.details == second.details else f"{first.details}; {second.details}"
    points = tuple(dict.fromkeys((*first.point_ids, *second.point_ids)))[:2]
    return first.model_copy(
        update={"details": details, "point_ids": points, "mismatch": first.mismatch or second.mismatch}
    )
