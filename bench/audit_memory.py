"""Measure the memory of one audit; `audit.py` runs this in a process of its own."""

import json
import re
import sys
import tempfile
from pathlib import Path

from chunkproof.audit.audit_run import Audit
from chunkproof.audit.ledger import prepare
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import ServerStore


def megabytes() -> float:
    """Return the peak memory of this process. `ru_maxrss` would include the parent process."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]


def main(url: str, collection: str, manifest: str) -> None:
    store = ServerStore(url, DeadlineTransport())
    with tempfile.TemporaryDirectory() as folder:
        audit = Audit(Path(folder), Services(Settings.from_env({}), store, None), collection)
        audit.check()
        at_start = megabytes()
        with Path(manifest).open("rb") as lines:
            ledger = prepare(lines, "manifest", Path(folder))
        sorted_ = megabytes()
        report = audit.run(audit.start(ledger))
    used = {
        "start": at_start,
        "sorted": sorted_ - at_start,
        "used": megabytes() - at_start,
        "kinds": report.kinds,
        "seconds": report.run.seconds,
    }
    print(json.dumps(used))


if __name__ == "__main__":
    main(*sys.argv[1:])
