"""`make audit-demo`: audit the sample handbook, text and vectors, with one fault of each kind planted in it."""

import argparse
import sys
import tempfile
from pathlib import Path

from chunkproof.audit.ledger import AuditPlan
from chunkproof.embedders.local_model import local_model
from chunkproof_cli.commands.audit import run_audit
from chunkproof_cli.commands.manifest import make_entry
from chunkproof_cli.loading import ChunkRecord, Loader
from chunkproof_cli.local.corpus import sample_chunks
from chunkproof_cli.manifest_sources import EntryShape, write_manifest
from chunkproof_cli.output import print_line, print_table, print_title
from chunkproof_cli.reports.outputs import AUDIT

from support.audit_faults import Asymmetric, Planter
from support.audits import services_on
from support.stores import MemoryStore

COLLECTION = "handbook"


def demo(report: Path, most: int | None = None) -> bool:
    """Load, plant faults, audit and print; return whether exactly the planted faults were found."""
    embedder, store = Asymmetric(local_model()), MemoryStore()
    records = [ChunkRecord.parse(chunk) for chunk in sample_chunks()][:most]
    Loader(store, embedder, COLLECTION, None).load(records)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifest = folder / "handbook.manifest.jsonl"
        write_manifest((make_entry(record, EntryShape(["url"])) for record in records), manifest)
        planter = Planter(store, COLLECTION, embedder, records)
        planter.plant()
        print_title("Planted")
        planted = ((chunk_id, kind.value) for kind, chunk_id in planter.planted.items())
        print_table(("chunk", "fault"), planted)
        services = services_on(store, embedder)
        found = run_audit(manifest, folder / "state", AuditPlan(vectors=0), services=services, collection=COLLECTION)
        AUDIT.print(found)
        AUDIT.write(found, (report,))
    store.close()
    exact = {(finding.kind, finding.chunk_id) for finding in found.findings} == set(planter.planted.items())
    verdict = "Exactly the planted faults were found." if exact else "The findings differ from the planted faults."
    print_line(f"{verdict} The report is in {report}.")
    return exact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=Path("audit-demo.html"))
    sys.exit(0 if demo(parser.parse_args().report) else 1)


if __name__ == "__main__":
    main()
