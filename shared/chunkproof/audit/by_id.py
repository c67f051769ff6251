"""A partial manifest: its chunks are read by their ids, in batches; what else is stored is not looked at."""

from itertools import islice

from chunkproof.audit.findings import Finding, duplicate, judge, missing, unverifiable
from chunkproof.audit.prepare import Expected, point_of
from chunkproof.audit.reader import BY_IDS
from chunkproof.audit.session import Run
from chunkproof.retrieval.lookup import Lookup


def pick(run: Run) -> None:
    """Judge every chunk of the manifest by its id."""
    coming = run.prepared.read(run.progress.offset)
    while batch := list(islice(coming, BY_IDS)):
        chunks = [expected for _, expected in batch]
        found = _find(chunks, run)
        suspects = [chunk for chunk in chunks if _judged(chunk, found, run)]
        now = _find(suspects, run) if suspects else found  # read again before anything is said
        findings = [finding for chunk in suspects if (finding := _judged(chunk, now, run))]
        for finding in findings:
            run.found(finding)
        run.save(
            offset=batch[-1][0],
            seen=run.progress.seen + len(batch),
            changed=run.progress.changed + len(suspects) - len(findings),
        )
    run.save(phase="vectors")


def _find(chunks: list[Expected], run: Run) -> Lookup:
    return run.reader.find({chunk.chunk_id: point_of(chunk.key) for chunk in chunks})


def _judged(expected: Expected, found: Lookup, run: Run) -> Finding | None:
    payloads = run.reader.services.payloads
    points = found.points.get(expected.chunk_id, [])
    if len(points) > 1:
        return duplicate(expected.entry, {point.id: point for point in points}, len(points), payloads)
    if points:
        return judge(expected, points[0], payloads)
    entry = expected.entry
    return unverifiable(entry, found.unsearched.message) if found.unsearched else missing(entry)
