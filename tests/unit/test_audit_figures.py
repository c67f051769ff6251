"""What all formats of an audit's report say alike."""

from datetime import UTC, datetime

import pytest

from chunkproof.audit.audit_report import AuditReport, RunFacts, VectorFacts
from chunkproof.audit.findings import CHUNK_KINDS, VECTOR_KINDS, Kind
from chunkproof.audit.ledger import ManifestFacts
from chunkproof_cli.reports.audit_blocks import list_facts, say_verdict


def report(chunks: int, findings: int = 0, vectors: dict[Kind, int] | None = None, **kinds: int) -> AuditReport:
    wrong = sum(kinds.get(kind.value, 0) for kind in CHUNK_KINDS)
    counts = {kind.value: kinds.get(kind.value, 0) for kind in CHUNK_KINDS} | {"match": chunks - wrong}
    of_vectors = {kind.value: (vectors or {}).get(kind, 0) for kind in VECTOR_KINDS}
    return AuditReport(
        collection="c",
        host="h",
        manifest=ManifestFacts(name="m", sha256="0", entries=chunks, chunks=chunks, repeated=0),
        complete_scan=True,
        audited=chunks,
        coverage=1 - kinds.get("unverifiable", 0) / chunks,
        points=chunks,
        kinds={**counts, "orphan": kinds.get("orphan", 0)},
        mismatch_kinds={},
        sources=(),
        sources_total=0,
        vectors=VectorFacts(model="m", checked=sum(of_vectors.values()), kinds=of_vectors) if vectors else None,
        findings_total=findings,
        findings=(),
        run=RunFacts(started_at=datetime(2026, 1, 1, tzinfo=UTC), seconds=1, chunks_per_second=1, resumed=0, changed=0),
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (report(9), "All 9 chunks are stored as they should be, byte for byte."),
        (
            report(9, 2, missing=1, orphan=1),
            "8 of 9 chunks are stored as they should be; 1 chunk is missing; 1 stored point is not in the manifest.",
        ),
        (
            report(9, 2, {Kind.VECTOR_OK: 7, Kind.STALE_VECTOR: 1, Kind.UNVERIFIABLE_VECTOR: 1}),
            "9 of 9 chunks are stored as they should be; 2 vectors are not confirmed to match the stored text "
            "(1 stale_vector, 1 unverifiable_vector).",
        ),
    ],
)
def test_the_headline_names_all_that_is_wrong(found: AuditReport, said: str) -> None:
    assert say_verdict(found) == said


def test_what_is_not_all_is_never_rounded_to_all() -> None:
    assert dict(list_facts(report(3_000_000, 1, unverifiable=1)))["coverage"].startswith("99.9999% ")
    assert dict(list_facts(report(3_000_000)))["coverage"].startswith("100.0000% ")
