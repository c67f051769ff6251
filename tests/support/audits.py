"""Collections with planted faults; an audit must find exactly those."""

import random
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from chunkproof.audit.audit_report import AuditReport
from chunkproof.audit.audit_run import Audit
from chunkproof.audit.findings import Kind
from chunkproof.audit.ledger import AuditPlan, prepare
from chunkproof.audit.manifest_file import Entry
from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.collection.lookup import point_id_for
from chunkproof.collection.services import Services
from chunkproof.proof.integrity import digest
from chunkproof.stores.store_port import Point, WritableStore

WORDS = ("vector", "robot", "payload", "index", "sensor", "wheel", "query", "naïve", "Größe", "<b>&amp;")
VECTOR = (0.6, 0.8, 0.0, 0.0)
DAMAGES = {
    "truncated": lambda text: text[: len(text) // 2],
    "extended": lambda text: text + " and more",
    "whitespace": lambda text: text.replace(" ", ""),
    "case": str.upper,
    "unicode_normalization": lambda text: unicodedata.normalize("NFC", text),
    "invisible_characters": lambda text: "\ufeff" + text,
    "mojibake": lambda text: text.encode().decode("latin-1"),
    "html_entities": lambda text: text.replace("&amp;", "&"),
    "empty": lambda _text: "",
    "different": lambda text: text.replace("cafe", "tea"),
}


@dataclass
class Planted:
    """What is stored, what should be stored, and the faults."""

    points: list[Point] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    faults: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    damages: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    matches: int = 0

    def manifest(self) -> list[bytes]:
        return [entry.to_line() for entry in self.entries]


def text_of(rng: random.Random, number: int, words_of_each: int) -> str:
    words = " ".join(rng.choices(WORDS, k=words_of_each))
    return f"cafe\u0301 Größe &amp; chunk {number}: {words}"


def planted(count: int, faults_of_each: int = 3, seed: int = 7, *, hashed: bool = False, words: int = 20) -> Planted:
    """Make chunks with all sorts of ids, and faults of every kind among them."""
    rng, made = random.Random(seed), Planted()
    ids = [_chunk_id(rng, number) for number in range(count)]
    order = list(range(count))
    rng.shuffle(order)
    kinds = [
        Kind.MISSING,
        Kind.ORPHAN,
        Kind.DUPLICATE,
        "manifest_duplicate",
        Kind.METADATA_MISMATCH,
        Kind.UNVERIFIABLE,
        "elsewhere",
        "repeated",
        *DAMAGES,
    ]
    fate: dict[int, str] = {
        number: kind
        for kind, numbers in zip(
            kinds,
            (order[i : i + faults_of_each] for i in range(0, count, faults_of_each or count)),
            strict=False,
        )
        for number in numbers
    }
    for number, chunk_id in enumerate(ids):
        _plant(made, rng, number, chunk_id, fate.get(number), text_of(rng, number, words), hashed=hashed)
    rng.shuffle(made.entries)
    return made


def _chunk_id(rng: random.Random, number: int) -> str:
    match number % 4:
        case 0:
            return str(number)
        case 1:
            return str(UUID(int=rng.getrandbits(128)))
    return f"doc {number}/ü\t«{number % 7}»"


def _plant(
    made: Planted,
    rng: random.Random,
    number: int,
    chunk_id: str,
    fate: str | None,
    text: str,
    *,
    hashed: bool,
) -> None:
    url = f"https://docs.example.com/{number % 13}"
    payload: dict[str, Any] = {"chunk_id": chunk_id, "text": text, "url": url, "position": number}
    entry = Entry(
        chunk_id,
        original_text=None if hashed else text,
        original_sha256=digest(text) if hashed else None,
        metadata={"url": url, "position": number} if number % 2 else None,
    )
    point_id = point_id_for(chunk_id)
    other = str(UUID(int=rng.getrandbits(128)))
    match fate:
        case Kind.MISSING:
            made.entries.append(entry)
        case Kind.ORPHAN:
            made.points.append(Point(point_id, payload, vector=VECTOR))
        case Kind.DUPLICATE:
            made.entries.append(entry)
            made.points += [Point(point_id, payload, vector=VECTOR), Point(other, payload, vector=VECTOR)]
        case "manifest_duplicate":
            made.entries += [entry, Entry(chunk_id, original_text=text + "!")]
            made.points.append(Point(point_id, payload, vector=VECTOR))
            fate = Kind.DUPLICATE
        case Kind.METADATA_MISMATCH:
            made.entries.append(Entry(chunk_id, entry.original_text, entry.original_sha256, {"position": True}))
            made.points.append(Point(point_id, {**payload, "position": 1}, vector=VECTOR))
        case Kind.UNVERIFIABLE:
            made.entries.append(entry)
            made.points.append(Point(point_id, {**payload, "text": number}, vector=VECTOR))
        case "elsewhere":
            made.entries.append(entry)
            made.points.append(Point(other, payload, vector=VECTOR))
            fate = None
        case "repeated":
            made.entries += [entry, entry]
            made.points.append(Point(point_id, payload, vector=VECTOR))
            fate = None
        case None:
            made.entries.append(entry)
            made.points.append(Point(point_id, payload, vector=VECTOR))
        case damage:
            made.entries.append(entry)
            made.points.append(Point(point_id, {**payload, "text": DAMAGES[damage](text)}, vector=VECTOR))
            made.damages[damage].add(chunk_id)
            fate = Kind.MISMATCH
    if fate is None:
        made.matches += 1
    else:
        made.faults[fate].add(chunk_id)


def fill(store: WritableStore, collection: str, points: list[Point], batch: int = 1_000) -> None:
    store.create(collection, len(VECTOR), Deadline(60_000))
    for first in range(0, len(points), batch):
        store.upsert(collection, points[first : first + batch], "", Deadline(60_000))


def services_on(store: Any, embedder: Any = None) -> Services:
    return Services(Settings.from_env({}), store, embedder)


def run_audit(
    lines: list[bytes] | Iterator[bytes],
    folder: Path,
    services: Services,
    collection: str,
    plan: AuditPlan | None = None,
) -> AuditReport:
    folder.mkdir(exist_ok=True)
    audit = Audit(folder, services, collection, plan or AuditPlan(), pauses=(0.0,))
    return audit.run(audit.start(prepare(lines, "manifest.jsonl", folder)))


def resume(
    folder: Path, services: Services, collection: str, sha256: str, plan: AuditPlan | None = None
) -> AuditReport:
    audit = Audit(folder, services, collection, plan or AuditPlan(), pauses=(0.0,))
    return audit.run(audit.resume(sha256))


def found_in(folder: Path) -> dict[str, set[str]]:
    """Read the file of all findings, and return the chunk ids by kind."""
    from chunkproof.audit.findings import Finding

    found: dict[str, set[str]] = defaultdict(set)
    with (folder / "findings.jsonl").open("rb") as file:
        for line in file:
            finding = Finding.model_validate_json(line)
            assert finding.chunk_id not in found[finding.kind], "found twice"
            found[finding.kind].add(finding.chunk_id)
    return dict(found)
