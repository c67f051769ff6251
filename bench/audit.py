"""Measure an audit against the SDK on the same server, and check that its memory does not grow with the manifest.

`make bench PARTS=audit`: exit 1 when a planted fault is not found, something else is, or a figure is not reached.
"""

import argparse
import gc
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

from pydantic_core import from_json
from qdrant_client import QdrantClient

from chunkproof.audit.audit_run import Audit
from chunkproof.audit.ledger import AuditPlan, Ledger, prepare
from chunkproof.audit.manifest_file import Entry
from chunkproof.base.request import Deadline
from chunkproof.collection.reader import PAGE_SIZE
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import Page, Point, WritableStore

from support.audits import VECTOR, fill, found_in, planted, services_on
from support.qdrant_server import qdrant_server
from support.sdk import sdk

ONE_BY_ONE, BATCH, ROUNDS = 400, 250, 3
# How many times faster than one by one and than batches; memory with ten times the entries.
WANTED_ONE, WANTED_BATCHES, WANTED_MEMORY = 40.0, 1.5, 1.5
WRITE = 2_000
# Far away, time of an audit ÷ time of a scroll whose pages are received and not read, with a delay before each page.
WANTED_SCROLL, DELAY, DELAYED = 1.15, 0.15, 20_000
# Here, processor time of an audit ÷ that of receiving, parsing and hashing alone, which any audit in Python has to do.
# It is 2.1: comparing, SQLite, threads, and a tenth for the causes of 48 faults among 20,000 chunks.
WANTED_LEAST = 2.6
WORDS = 250  # about 1,800 characters a chunk


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=100_000, help="how many to time; 0: skip")
    parser.add_argument("--memory", type=int, default=100_000, help="entries of the smaller manifest; 0: skip")
    given = parser.parse_args()
    # 127.0.0.2: for localhost and 127.0.0.1 the SDK turns keep-alive off.
    with qdrant_server("127.0.0.2") as server:
        reached = list(_speed(server.url, given.chunks)) if given.chunks else []
        reached += _memory(server.url, given.memory) if given.memory else ()
    return 0 if all(reached) else 1


def _speed(url: str, count: int) -> Iterator[bool]:
    store, made = ServerStore(url, DeadlineTransport(compressed=False)), planted(count, words=WORDS)
    print(f"{count:,} chunks of about 1.8 kB, {sum(map(len, made.faults.values()))} planted faults of every kind")
    fill(store, "speed", made.points, WRITE)
    ids, lines = [point.id for point in made.points], made.manifest()
    gc.collect()
    gc.freeze()  # the planted objects are not part of a real audit
    rates: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def sort_and_audit() -> int:
            return _audit(store, prepare(lines, "manifest", folder), folder, AuditPlan())

        for _ in range(ROUNDS):  # in turns, and the best of each, because other work on the machine disturbs them
            prepared = prepare(lines, "manifest", folder)
            for what, work in (
                ("SDK, one by one", lambda: _sdk(url, ids[:ONE_BY_ONE], 1)),
                ("SDK, batches of 250", lambda: _sdk(url, ids, BATCH)),
                ("audit", lambda ledger=prepared: _audit(store, ledger, folder, AuditPlan())),
                ("audit, sorting included", sort_and_audit),
            ):
                rates[what] = max(rates[what], _rate(what, work))
        yield _report("exactly the planted faults are found", found_in(folder) == made.faults)
        prepared = prepare(lines, "manifest", folder)
        _rate("audit by ids", lambda: _audit(store, prepared, folder, AuditPlan(by_ids=True)))
        whole = rates["audit, sorting included"] / rates["SDK, batches of 250"]
        print(f"       ÷ batches of 250, with the manifest sorted as well: {whole:.2f}")
        without_orphans = {kind: ids for kind, ids in made.faults.items() if kind != "orphan"}
        yield _report("and by ids, but for orphans", found_in(folder) == without_orphans)
        yield from _compare_with_scroll(url, store, lines, folder, count)
    one, batches = (rates["audit"] / rates[what] for what in ("SDK, one by one", "SDK, batches of 250"))
    yield _report(f"÷ one by one: {one:.1f} (wanted {WANTED_ONE:.0f})", one >= WANTED_ONE)
    yield _report(f"÷ batches of 250: {batches:.2f} (wanted {WANTED_BATCHES})", batches >= WANTED_BATCHES)
    sdk(store).delete_collection("speed")
    store.close()


def _compare_with_scroll(
    url: str, store: WritableStore, lines: list[bytes], folder: Path, count: int
) -> Iterator[bool]:
    """Audit beside a bare scroll, in turns: here, and with a delay before each page, as over a network.

    Here, Python takes longer to parse a page and hash its texts than the server to send it. So the audit is judged by
    its processor time beside that of the least which any audit does; with the delay, by its time beside the scroll.
    """
    for delay in (0.0, DELAY) if count <= DELAYED else (0.0,):
        steps = {RECEIVED: READ[RECEIVED]} if delay else READ
        times: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for _ in range(ROUNDS):
            ledgers: list[Ledger] = []
            times[MANIFEST].append(_time(lambda ledgers=ledgers: ledgers.append(prepare(lines, "manifest", folder))))
            with patch.object(ServerStore, "scroll", _delayed(delay)):
                times[AUDIT].append(_time(partial(_audit, store, ledgers[0], folder, AuditPlan())))
            for step, read in steps.items():
                times[step].append(_time(partial(_bare_scroll, url, delay, read)))
        ratios = {
            step: median(taken / bare for (taken, _), (bare, _) in zip(measured, times[RECEIVED], strict=True))
            for step, measured in times.items()
        }
        if delay:
            claim = f"text audit ÷ bare scroll, {delay * 1000:.0f} ms before each page: {ratios[AUDIT]:.2f}"
            yield _report(f"{claim} (wanted {WANTED_SCROLL})", ratios[AUDIT] <= WANTED_SCROLL)
            continue
        print(f"       {'µs of a chunk, the client alone':34} wall  processor  ÷ bare scroll")
        for step in (*steps, AUDIT, MANIFEST):
            wall, cpu = (median(values) / count * 1e6 for values in zip(*times[step], strict=True))
            print(f"         {step:30} {wall:6.1f} {cpu:10.1f} {ratios[step]:14.2f}")
        least = median(own / floor for (_, own), (_, floor) in zip(times[AUDIT], times[HASHED], strict=True))
        claim = f"text audit ÷ a scroll that is parsed and hashed, by processor time: {least:.2f}"
        yield _report(f"{claim} (wanted {WANTED_LEAST})", least <= WANTED_LEAST)


def _time(work: Callable[[], object]) -> tuple[float, float]:
    begun, used = perf_counter(), process_time()
    work()
    return perf_counter() - begun, process_time() - used


def _hash_texts(body: bytes) -> None:
    for point in from_json(body)["result"]["points"]:
        text = point["payload"]["text"]
        sha256(str(text).encode()).digest()


RECEIVED, HASHED, AUDIT, MANIFEST = "bare scroll", "… and its texts hashed", "audit", "manifest read and sorted"
READ: dict[str, Callable[[bytes], object]] = {
    RECEIVED: lambda _body: None,
    "… and its JSON parsed": from_json,
    HASHED: _hash_texts,
}


def _delayed(delay: float) -> Callable[..., Page]:
    scroll = ServerStore.scroll

    def wait_and_scroll(*args: Any, **options: Any) -> Page:
        sleep(delay)
        return scroll(*args, **options)

    return wait_and_scroll


def _bare_scroll(url: str, delay: float, read: Callable[[bytes], object]) -> None:
    parts = urlsplit(url)
    server, start = HTTPConnection(parts.hostname or "", parts.port), None
    while True:
        sleep(delay)
        page = {"limit": PAGE_SIZE, "with_payload": True, **({} if start is None else {"offset": start})}
        server.request(
            "POST", "/collections/speed/points/scroll", json.dumps(page), {"content-type": "application/json"}
        )
        body = server.getresponse().read()
        read(body)
        found = re.search(rb'"next_page_offset":(null|\d+|"[^"]+")', body)
        assert found is not None
        if (start := json.loads(found[1])) is None:
            return server.close()


def _sdk(url: str, ids: list[int | str], size: int) -> int:
    sdk = QdrantClient(url=url, check_compatibility=False)
    for first in range(0, len(ids), size):
        sdk.retrieve("speed", ids[first : first + size])
    sdk.close()
    return len(ids)


def _audit(store: WritableStore, ledger: Ledger, folder: Path, plan: AuditPlan) -> int:
    """Read, compare, match and build the report."""
    audit = Audit(folder, services_on(store), "speed", plan)
    return audit.run(audit.start(ledger)).audited


def _memory(url: str, count: int) -> Iterator[bool]:
    store = ServerStore(url, DeadlineTransport())
    used: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in (count, 10 * count):
            collection, manifest = f"memory-{size}", Path(folder) / f"{size}.jsonl"
            fill(store, collection, [], WRITE)
            with manifest.open("wb") as file:
                for first in range(0, size, WRITE):
                    numbers = range(first, min(first + WRITE, size))
                    file.writelines(Entry(str(n), original_sha256=_hash(n)).to_line() for n in numbers)
                    points = [Point(n, {"text": f"text {n}"}, vector=VECTOR) for n in numbers]
                    store.upsert(collection, points, "", Deadline(60_000))
            worker = Path(__file__).with_name("audit_memory.py")
            done = subprocess.run(
                [sys.executable, worker, url, collection, manifest],
                capture_output=True,
                text=True,
                check=True,
            )
            figures = json.loads(done.stdout)
            used.append(figures["used"])
            print(
                f"{size:>9,} hash-only entries: {figures['used']:.1f} MB above {figures['start']:.0f} MB at start-up, "
                f"{size / figures['seconds']:,.0f} chunks/s"
            )
            yield _report("all of them match", figures["kinds"]["match"] == size)
            sdk(store).delete_collection(collection)
    ratio = used[1] / used[0]
    yield _report(f"memory × {ratio:.2f} with ten times the entries (wanted {WANTED_MEMORY})", ratio <= WANTED_MEMORY)
    store.close()


def _hash(number: int) -> str:
    return sha256(f"text {number}".encode()).hexdigest()


def _rate(name: str, work: Callable[[], int]) -> float:
    begun = perf_counter()
    count = work()
    rate = count / (perf_counter() - begun)
    print(f"{name:24} {rate:>10,.0f} chunks/s", flush=True)
    return rate


def _report(claim: str, holds: bool) -> bool:
    print(f"  {'yes' if holds else 'NO '}  {claim}", flush=True)
    return holds


if __name__ == "__main__":
    sys.exit(main())
