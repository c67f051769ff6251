"""What integrity, receipts, seals and their verification cost (`make bench-seals`).

python -m bench.seals --chunks 100000 --size 1024

It exits with 1 if a receipt of ten results among up to 100,000 chunks has more than 8,000 bytes.
"""

import json
import logging
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import median
from time import monotonic, process_time
from uuid import UUID

import click

from chunkproof.base.request import Deadline
from chunkproof.collection.reader import Reader
from chunkproof.collection.services import Collection
from chunkproof.contract import RetrievalResponse, SearchQuery
from chunkproof.proof.integrity import digest
from chunkproof.seals.merkle import HASH_BYTES, SealFiles, uncovered
from chunkproof.seals.notes import encode
from chunkproof.seals.receipts import Evidence, Repetition, verify_receipt
from chunkproof.seals.sealing import seal_collection
from chunkproof.search.single import read_chunks
from chunkproof.service import container
from chunkproof.stores.store_port import DenseLeg, Page, Point, PointId, StoreQuery

from support.api import invoke, post
from support.chunks import ask, fill, make_services
from support.seals import find_seal, new_signer, seal
from support.stores import MemoryStore
from support.words import Words

SECONDS_600 = 600_000
# The most bytes of a receipt of ten results, by the number of chunks.
GOAL_BYTES, GOAL_CHUNKS, RESULTS = 8_000, 100_000, 10


def synthetic_id(number: int, kind: int = 0) -> str:
    """A UUID that is made of a number, of a point or of a chunk."""
    return str(UUID(int=number << 96 | 0x4D5E8F6A8B7C << 40 | kind))


def synthetic_point(number: int) -> Point:
    """A chunk that is made of its number."""
    text = f"{number} The robot makes a backup each night and checks it. "
    vector = tuple(((number * at) % 997) / 997 for at in range(1, 9))
    payload = {"text": text * 4, "url": "https://a", "chunk_id": synthetic_id(number, 1), "owner": "acme"}
    return Point(synthetic_id(number), payload, vector=vector)


class SyntheticReader(Reader):
    """Reads points that are made as they are read, so that a seal of any size needs no store."""

    chunks = 0

    def pages(self, start: PointId | None = None, with_vector: str | None = None, *, seen: int = 0) -> Iterator[Page]:
        first = int(start or 0)
        for at in range(first, self.chunks, 500):
            following = at + 500 if at + 500 < self.chunks else None
            yield Page([synthetic_point(number) for number in range(at, min(at + 500, self.chunks))], following)

    def read_points(self, ids: Sequence[PointId], with_vector: str | None = None) -> dict[PointId, Point]:
        return {point: synthetic_point(UUID(str(point)).int >> 96) for point in ids}


def seal_synthetic(chunks: int) -> None:
    """Print time and memory of a seal of this many chunks, and of the next seal, which adds a thousand."""
    store = MemoryStore()
    fill(store, "docs", size=8)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reader, signer = SyntheticReader(make_services(store, "docs"), "docs"), new_signer(folder)
        for added in (chunks, 1_000):
            reader.chunks += added
            began, before = monotonic(), process_time()
            report = seal_collection(reader, SealFiles(str(folder / "seals")), [signer], folder / "work")
            minutes, spent = (monotonic() - began) / 60, process_time() - before
            memory = getrusage(RUSAGE_SELF).ru_maxrss / 1024
            took = f"{minutes:8.1f} minutes, {spent:.0f} s of processor (goal 10 minutes a million)"
            print(f"seal, {report.added:>9,} added         {took}")
        print(f"most memory                    {memory:8,.0f} MB   (goal 500)")
    store.close()


class EightWords(Words):
    """Embeds a question like a synthetic point."""

    dimension = 8


def far_apart(chunks: int) -> list[int]:
    """Ten leaves whose proof needs as many hashes as any ten."""
    return [(2 * at + 1) * chunks // (2 * RESULTS) for at in range(RESULTS)]


def largest_receipt(chunks: int, *, in_full: bool = False) -> int:
    """The bytes of a receipt of ten results that are far apart in a seal of this many chunks; only they are stored.

    All ids are UUIDs; in full, it has a tenant and the service's signature.
    """
    store = MemoryStore()
    fill(store, "docs", *map(synthetic_point, far_apart(chunks)), size=8)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        signer, names = new_signer(folder), {"SEALS": str(folder / "seals")}
        if in_full:
            names |= {"RECEIPT_KEY": str(folder / "0.key"), "TENANT_FIELD": "owner", "TENANT_CLAIM": "owner"}
        services = make_services(store, "docs", EightWords(), **names)
        reader = SyntheticReader(services, "docs")
        reader.chunks = chunks
        seal_collection(reader, SealFiles(str(folder / "seals")), [signer], folder / "work")
        asked = services.for_tenant("acme") if in_full else services
        answer = ask(asked, query_text="How often does the robot make a backup?", top_k=RESULTS, receipt=True)
        claims = verify_receipt(Evidence.parse(json.loads(answer.to_json())), [signer.public])
    store.close()
    assert sum(claim.verdict == "proved" for claim in claims) == (7 if in_full else 5), claims
    return receipt_bytes(answer)


def receipt_bytes(answer: RetrievalResponse) -> int:
    """The bytes of the receipt in a response."""
    return len(json.dumps(json.loads(answer.to_json())["receipt"], separators=(",", ":"), ensure_ascii=False).encode())


def print_sizes() -> bool:
    """Print how large a receipt may be, by the size of its collection; return whether the goal is met."""
    more = 10 * GOAL_CHUNKS
    blobs = [len(encode(bytes(HASH_BYTES * len(uncovered(0, n, far_apart(n)))))) for n in (GOAL_CHUNKS, more)]
    is_met = True
    for in_full, name in ((False, "the same, far apart, UUIDs"), (True, "with tenant and signature")):
        for chunks in (5_000, GOAL_CHUNKS):
            size = largest_receipt(chunks, in_full=in_full)
            is_met &= size <= GOAL_BYTES
            verdict = f"{'met' if size <= GOAL_BYTES else 'missed'}"
            print(f"{name:<30} {size:8,d} B    {chunks:,} chunks (goal {GOAL_BYTES:,} B): {verdict}")
        # Besides the hashes, a digit more in each leaf and in the checkpoint.
        size += blobs[1] - blobs[0] + RESULTS + 1
        print(f"{name:<30} {size:8,d} B    {more:,} chunks, computed")
    return is_met


def milliseconds(call: Callable[[], object], repeat: int = 30) -> float:
    """The median processor time of a call."""
    taken = []
    for _ in range(repeat):
        before = process_time()
        call()
        taken.append((process_time() - before) * 1000)
    return median(taken)


def integrity_calls(points: Sequence[Point], collection: Collection, query: SearchQuery) -> int:
    """How often a search calls what compares hashes, of chunks without any."""
    bare = [replace(p, payload={name: p.payload[name] for name in p.payload if name != "content_hash"}) for p in points]
    names, called = {"integrity_of", "check_sources", "recognise_hashes"}, list[str]()
    collection.facts.hashes = None
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    read_chunks(bare, collection, query)
    sys.setprofile(None)
    return sum(name in names for name in called)


def fill_randomly(store: MemoryStore, chunks: int, size: int, rng: random.Random) -> None:
    """Fill a new collection with chunks of 2 kB."""
    filler = "The robot makes a backup each night and checks it. " * 40
    fill(store, "docs", size=size)
    for start in range(0, chunks, 500):
        texts = [f"{number} {filler}" for number in range(start, min(chunks, start + 500))]
        points = [
            Point(
                start + at,
                {"text": text, "url": "https://a", "document_title": "A", "content_hash": digest(text)},
                vector=tuple(rng.gauss(0, 1) for _ in range(size)),
            )
            for at, text in enumerate(texts)
        ]
        store.upsert("docs", points, "", Deadline(SECONDS_600))


def hide_log_lines() -> None:
    """Write the log to memory: the output has only figures, and a request costs what it does."""
    for handler in logging.getLogger("chunkproof").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(StringIO())


@click.command()
@click.option("--chunks", default=5_000, show_default=True)
@click.option("--synthetic", default=0, help="Only seal this many chunks, which are made as they are read.")
@click.option("--size", default=1_024, show_default=True, help="Values of a vector.")
def main(chunks: int, size: int, synthetic: int) -> None:
    """Print each cost beside its goal."""
    if synthetic:
        return seal_synthetic(synthetic)
    hide_log_lines()
    rng = random.Random(31)
    store = MemoryStore()
    fill_randomly(store, chunks, size, rng)
    query = [rng.gauss(0, 1) for _ in range(size)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        services = make_services(store, "docs", SEALS=str(folder / "seals"))
        event = post("/search", {"query_vector": query, "top_k": 10})
        with container.override(services), redirect_stdout(StringIO()):  # the metrics
            plain = milliseconds(lambda: invoke(event))
        opened = services.collection("docs", Deadline(SECONDS_600))
        leg = DenseLeg(opened.vector, query)
        found = store.search([StoreQuery("docs", 10, leg)], Deadline(SECONDS_600))[0]
        parsed, hashes = SearchQuery.parse({"query_vector": query}), opened.hashes
        with_hashes = milliseconds(lambda: read_chunks(found, opened, parsed), 300)
        opened.facts.hashes = type(hashes)()
        without = milliseconds(lambda: read_chunks(found, opened, parsed), 300)
        calls = integrity_calls(found, opened, parsed)
        opened.facts.hashes = hashes
        cost = with_hashes - without
        of_all = f"{cost / plain:.1%} of a warm request of {plain:.1f} ms"
        print(f"integrity of ten 2 kB chunks   {cost:8.3f} ms   {of_all} (goal 3 %)")
        print(f"integrity, no hash recorded    {calls:8,d} calls (goal 0)")
        signer, before = new_signer(folder), process_time()
        seal(services, folder / "seals", signer)
        seconds = process_time() - before
        million = f"{seconds / chunks * 1e6 / 60:.1f} minutes a million (goal 10)"
        print(f"seal                           {seconds:8.1f} s    {million}")
        full = milliseconds(lambda: ask(services, query_vector=query, top_k=10, receipt=True))
        again = milliseconds(lambda: ask(services, query_vector=query, top_k=10))
        print(f"receipt, tiles in memory       {full - again:8.3f} ms   (goal 2 ms)")
        written = receipt_bytes(ask(services, query_vector=query, top_k=RESULTS, receipt=True))
        is_small = written <= GOAL_BYTES or chunks > GOAL_CHUNKS
        verdict = f"(goal {GOAL_BYTES:,} B up to {GOAL_CHUNKS:,} chunks): {'met' if is_small else 'missed'}"
        print(f"receipt of ten results         {written:8,d} B    {chunks:,} chunks {verdict}")
        is_small &= print_sizes()
        answer = json.loads(ask(services, query_vector=query, top_k=10, receipt="full").to_json())
        offline = milliseconds(lambda: verify_receipt(Evidence.parse(answer), [signer.public]))
        print(f"verify without searching again {offline:8.3f} ms   (goal 10 ms)")
        evidence = Evidence.parse(answer)
        verify_receipt(evidence, [signer.public])
        sealed, before = find_seal(folder / "seals", "docs"), process_time()
        claims, _ = Repetition(evidence, Reader(services, "docs"), (), sealed).run()
        seconds = process_time() - before
        print(
            f"verify by searching again      {seconds:8.1f} s    {chunks:,} x {size:,} (goal 60 s): {claims[-1].detail}"
        )
    store.close()
    sys.exit(not is_small)


if __name__ == "__main__":
    main()
