"""Compare the chunks of a partial manifest, read by their ids in batches; other points are not read."""

from itertools import islice

from chunkproof.audit.findings import (
    Finding,
    duplicate_finding,
    judge,
    missing_finding,
    unverifiable_finding,
)
from chunkproof.audit.prepare import ExpectedChunk, encode_id
from chunkproof.audit.reader import BATCH_SIZE
from chunkproof.audit.session import Run
from chunkproof.clients.ports import Point
from chunkproof.retrieval.lookup import Lookup, parse_point_id


def audit_by_id(run: Run) -> None:
    """Judge every chunk of the manifest by its id."""
    chunks = run.manifest.read(run.progress.offset)
    while batch := list(islice(chunks, BATCH_SIZE)):
        expected = [chunk for _, chunk in batch]
        found = _find(expected, run)
        suspects = [chunk for chunk in expected if _judge(chunk, found, run)]
        # Chunks may change during the audit: a finding counts only if a second read confirms it.
        again = _find(suspects, run) if suspects else found
        findings = [finding for chunk in suspects if (finding := _judge(chunk, again, run))]
        for finding in findings:
            run.log_finding(finding)
        run.save(
            offset=batch[-1][0],
            compared=run.progress.compared + len(batch),
            changed=run.progress.changed + len(suspects) - len(findings),
        )
    run.save(phase="vectors")


def _find(chunks: list[ExpectedChunk], run: Run) -> Lookup:
    return run.reader.find({chunk.chunk_id: chunk.point_id for chunk in chunks})


def _judge(expected: ExpectedChunk, found: Lookup, run: Run) -> Finding | None:
    payloads = run.reader.services.payloads
    points = found.points.get(expected.chunk_id, [])
    if len(points) > 1 and (point_id := parse_point_id(expected.chunk_id)) is not None:
        points = [point for point in points if point.id == point_id or not _is_another(point, run)]
    if len(points) > 1:
        return duplicate_finding(expected.entry, {point.id: point for point in points}, len(points), payloads)
    if points:
        return judge(expected, points[0], payloads)
    entry = expected.entry
    return unverifiable_finding(entry, found.blocked_by.message) if found.blocked_by else missing_finding(entry)


def _is_another(point: Point, run: Run) -> bool:
    """Whether a point that was found by the id in its payload is another chunk, which has the id of its point.

    A document's id may be the id of its first point, or the manifest may have the chunk under its point id.
    """
    if run.reader.services.payloads.id_path(point.payload) in run.reader.payloads.shared_paths:
        return True
    return any(run.manifest.find({encode_id(str(point.id)).encode()}))
