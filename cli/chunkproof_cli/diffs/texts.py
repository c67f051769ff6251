"""Compare the texts and metadata of two collections: B is audited against a manifest of A."""

from collections.abc import Callable, Sequence
from pathlib import Path

from chunkproof.audit.manifest_files import open_manifest
from chunkproof.audit.prepare import prepare
from chunkproof.audit.reader import Reader
from chunkproof.audit.run import Audit
from chunkproof.audit.state import Progress
from chunkproof.errors import InvalidParameterError
from chunkproof_cli.diffs.report import TextDiff
from chunkproof_cli.sources.snapshots import snapshot, write_manifest

MAX_FINDINGS = 200
MANIFEST = "a.jsonl"


def compare_texts(
    readers: tuple[Reader, Reader],
    fields: Sequence[str],
    folder: Path,
    on_read: Callable[[int], None],
    on_compared: Callable[[Progress], None],
) -> TextDiff:
    """Compare every chunk of B with those of A; the folder is for temporary files."""
    a, b = readers
    manifest, unreadable = folder / MANIFEST, list[str]()
    if not write_manifest(snapshot(a, list(fields), False, on_read, unreadable), manifest):
        raise InvalidParameterError(f"Collection {a.collection} has no readable chunk to compare with")
    state = folder / "audit"
    state.mkdir()
    with open_manifest(manifest) as lines:
        prepared = prepare(lines, a.collection, state)
    audit = Audit(state, b.services, b.collection, on_progress=on_compared)
    report = audit.run(prepared, audit.start(prepared), a.collection)
    return TextDiff(
        kinds=report.kinds,
        mismatch_kinds=report.mismatch_kinds,
        matching=report.matching,
        unreadable=len(unreadable),
        findings_total=report.findings_total,
        findings=report.findings[:MAX_FINDINGS],
    )
