"""Collections in which one chunk id is on several points, wherever those are, audited against their own snapshot."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from chunkproof.audit.findings import Kind
from chunkproof.audit.ledger import AuditPlan
from chunkproof.collection.reader import Reader
from chunkproof.stores.store_port import Point
from chunkproof_cli.manifest_sources import EntryShape, entries_of_collection, write_manifest

from support.audits import VECTOR, fill, found_in, run_audit, services_on
from support.stores import MemoryStore

CHUNK_IDS = st.sampled_from(["a", "b", "7", "8", "c\td", "é «»"])
TEXTS = st.sampled_from(["one text", "another\ttext", ""])
POINT_IDS = st.one_of(st.integers(5, 15), st.uuids().map(str))


@pytest.mark.parametrize("plan", [AuditPlan(), AuditPlan(by_ids=True)], ids=["scan", "by ids"])
@pytest.mark.parametrize("hashed", [False, True], ids=["texts", "hashes"])
@given(contents=st.dictionaries(POINT_IDS, st.tuples(CHUNK_IDS, TEXTS), min_size=1, max_size=9))
@examples(max_examples=25, deadline=None)
def test_the_own_snapshot_of_any_collection_audits_clean_whatever_ids_its_points_share(
    plan: AuditPlan, hashed: bool, contents: dict[int | str, tuple[str, str]]
) -> None:
    store = MemoryStore()
    points = [
        Point(point_id, {"chunk_id": chunk_id, "text": text}, vector=VECTOR)
        for point_id, (chunk_id, text) in contents.items()
    ]
    fill(store, "c", points)
    with TemporaryDirectory() as name:
        folder, manifest = Path(name), Path(name) / "manifest.jsonl"
        services = services_on(store)
        write_manifest(
            entries_of_collection(Reader(services, "c"), EntryShape(["url"], hashed), lambda _count: None, []), manifest
        )
        lines = manifest.read_bytes().splitlines(keepends=True)
        report = run_audit(lines, folder / "state", services, "c", plan)
        assert found_in(folder / "state") == {}
    assert report.kinds[Kind.MATCH] == len(contents)
    assert (report.manifest.entries, report.manifest.chunks) == (len(contents), len(contents))
    store.close()
