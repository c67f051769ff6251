"""An audit in parts: a manifest in S3 split into shards, each audited by itself, all merged into one report.

A shard holds whole chunks: entries go to it by a hash of their chunk id, so that all entries of one chunk meet.
Every step writes the same objects when it is run again, so that a retry, or the same audit twice, is harmless.

    audits/ID/plan.json             what is audited, in how many shards
    audits/ID/shards.json           the shards, for the Distributed Map
    audits/ID/shards/N.jsonl.gz     their entries
    audits/ID/results/N.json        what was found in each, audits/ID/findings/N.jsonl in detail
    audits/ID/errors/N.json         why the last attempt at a shard failed
    audits/ID/report.json           the report, audits/ID/findings.jsonl all findings
"""

import gzip
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import error as zlib_error

from chunkproof.audit.findings import Finding, unverifiable
from chunkproof.audit.manifest import numbered, read_entry
from chunkproof.audit.prepare import SHOWN_PROBLEMS, id_key, keyed, prepare
from chunkproof.audit.report import AuditReport, Findings, report_of
from chunkproof.audit.run import Audit, Plan
from chunkproof.audit.state import Job, Progress
from chunkproof.clients.job_folder import MOST_SHARDS, JobFolder
from chunkproof.clients.s3 import Bucket, parse_address
from chunkproof.errors import ChunkproofError, InvalidParameterError
from chunkproof.models import Model
from chunkproof.retrieval.services import Services

SHARD_ENTRIES = 5_000
# Entries wait in memory until a shard has this many bytes for its file.
WAITING = 64 * 1024
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class ShardPlan(Model):
    """What is audited, in how many shards."""

    audit_id: str
    bucket: str
    shards_key: str
    manifest: str
    collection: str
    sha256: str
    entries: int
    shards: int
    started_at: datetime


class ShardResult(Model):
    """What came of one shard; findings have an object of their own."""

    shard: int
    entries: int
    chunks: int
    seconds: float
    changed: int


class ShardAudit:
    """The steps of one audit."""

    def __init__(self, bucket: Bucket, audit_id: str) -> None:
        self._folder = JobFolder(bucket, f"audits/{audit_id}")
        self._id = audit_id

    def split(self, manifest: str, collection: str, shard_entries: int = SHARD_ENTRIES) -> ShardPlan:
        """Check the manifest and write its shards; `InvalidParameterError` lists the lines that are none."""
        source, key = parse_address(manifest)
        with TemporaryDirectory() as name, source.open(key) as body:
            folder, digest = Path(name), sha256()
            whole = folder / "manifest"
            entries = 0
            with whole.open("wb") as file:
                for line in _checked(_unpacked(body), manifest):
                    digest.update(line)
                    file.write(line)
                    entries += 1
            shards = max(1, -(-entries // shard_entries))
            if shards > MOST_SHARDS:
                raise InvalidParameterError(
                    f"{manifest} has {entries:,} entries, more than {MOST_SHARDS * shard_entries:,}: "
                    "audit it in parts"
                )
            counts = list(self._write_shards(whole, folder, shards))
        items = [{"audit_id": self._id, "shard": number, "entries": count} for number, count in counts]
        plan = ShardPlan(
            audit_id=self._id,
            bucket=self._folder.bucket.name,
            shards_key=self._folder.write_shards(items),
            manifest=manifest,
            collection=collection,
            sha256=digest.hexdigest(),
            entries=entries,
            shards=len(items),
            started_at=datetime.now(UTC),
        )
        self._folder.write("plan.json", plan.to_json())
        return plan

    def audit(self, shard: int, services: Services) -> ShardResult:
        """Audit one shard by ids. What goes wrong is written down before it is raised."""
        plan = self.plan()
        try:
            with TemporaryDirectory() as name:
                folder = Path(name)
                prepared = prepare(self.lines(shard), f"shard {shard}", folder)
                audit = Audit(folder, services, plan.collection, Plan(by_ids=True))
                report = audit.go_on(prepared, audit.begin(prepared), plan.manifest)
                self._upload(f"findings/{shard:05d}.jsonl", folder / "findings.jsonl")
        except ChunkproofError as error:
            self._folder.write_failure(shard, error)
            raise
        result = ShardResult(
            shard=shard,
            entries=report.manifest.entries,
            chunks=report.manifest.chunks,
            seconds=report.run.seconds,
            changed=report.run.changed,
        )
        self._folder.write(f"results/{shard:05d}.json", result.to_json())
        return result

    def merge(self, host: str) -> AuditReport:
        """One report on all shards. A shard without a result is not lost: its chunks are unverifiable."""
        plan = self.plan()
        with TemporaryDirectory() as name:
            folder = Path(name)
            merging = _Merging(self, folder)
            findings = Findings(folder / "findings.jsonl", merging.lines(), folder)
            job = Job(
                collection=plan.collection,
                host=host,
                manifest_sha256=plan.sha256,
                entries=merging.entries,
                chunks=merging.chunks,
                by_ids=True,
            )
            seconds = (datetime.now(UTC) - plan.started_at).total_seconds()
            progress = Progress(
                job=job,
                seen=merging.chunks,
                seconds=seconds,
                reading_seconds=seconds,
                changed=merging.changed,
            )
            report = report_of(progress, findings, name=plan.manifest, model=None, started_at=plan.started_at)
            if report.manifest.entries != plan.entries:
                raise InvalidParameterError(
                    f"The shards have {report.manifest.entries} entries, the manifest {plan.entries}: audit it again"
                )
            self._upload("findings.jsonl", findings.path)
        self._folder.write("report.json", report.canonical_json())
        return report

    def plan(self) -> ShardPlan:
        """What `split` made of the manifest."""
        return ShardPlan.model_validate_json(self._folder.read("plan.json"))

    def report_address(self) -> str:
        """Where the report is."""
        return self._folder.address("report.json")

    def result(self, shard: int) -> ShardResult | None:
        """What came of a shard, if anything did."""
        content = self._folder.found(f"results/{shard:05d}.json")
        return None if content is None else ShardResult.model_validate_json(content)

    def findings(self, shard: int) -> Iterator[Finding]:
        """What is wrong with the chunks of a shard that was audited."""
        content = self._folder.read(f"findings/{shard:05d}.jsonl")
        return map(Finding.model_validate_json, content.splitlines())

    def failure(self, shard: int) -> str:
        """Why a shard has no result."""
        return self._folder.failure(shard)

    def shards(self) -> list[int]:
        """The numbers of the shards that have entries."""
        return self._folder.shards()

    def lines(self, shard: int) -> list[bytes]:
        """The entries of a shard."""
        return gzip.decompress(self._folder.read(f"shards/{shard:05d}.jsonl.gz")).splitlines(True)

    def _write_shards(self, whole: Path, folder: Path, shards: int) -> Iterator[tuple[int, int]]:
        counts: dict[int, int] = defaultdict(int)
        waiting: dict[int, bytearray] = defaultdict(bytearray)
        with whole.open("rb") as lines:
            for line in lines:
                shard = _shard_of(read_entry(line).chunk_id, shards)
                counts[shard] += 1
                waiting[shard] += line
                if len(waiting[shard]) > WAITING:
                    _append(folder, shard, waiting.pop(shard))
        for shard, rest in waiting.items():
            _append(folder, shard, rest)
        for shard in sorted(counts):
            packed = gzip.compress((folder / str(shard)).read_bytes(), compresslevel=5, mtime=0)
            self._folder.write(f"shards/{shard:05d}.jsonl.gz", packed)
            yield shard, counts[shard]

    def _upload(self, name: str, file: Path) -> None:
        self._folder.bucket.upload(self._folder.key(name), file)


class _Merging:
    """The findings of all shards, counted as they pass."""

    def __init__(self, steps: ShardAudit, folder: Path) -> None:
        self._steps = steps
        self._folder = folder
        self.entries = self.chunks = self.changed = 0

    def lines(self) -> Iterator[bytes]:
        """Each finding, as a log has it."""
        for shard in self._steps.shards():
            for finding in self._of(shard):
                yield keyed(id_key(finding.chunk_id), finding.model_dump(mode="json"))

    def _of(self, shard: int) -> Iterable[Finding]:
        result = self._steps.result(shard)
        if result is not None:
            self.entries += result.entries
            self.chunks += result.chunks
            self.changed += result.changed
            return self._steps.findings(shard)
        prepared = prepare(self._steps.lines(shard), f"shard {shard}", self._folder)
        self.entries += prepared.entries
        self.chunks += prepared.chunks
        why = f"Shard {shard} could not be audited: {self._steps.failure(shard)}"
        return [unverifiable(expected.entry, why) for _, expected in prepared.read()]


def _shard_of(chunk_id: str, shards: int) -> int:
    return int.from_bytes(sha256(chunk_id.encode()).digest()[:8], "big") % shards


def _append(folder: Path, shard: int, content: bytes | bytearray) -> None:
    with (folder / str(shard)).open("ab") as file:
        file.write(content)


def _unpacked(body: object) -> Iterable[bytes]:
    file = BufferedReader(body)  # type: ignore[type-var]
    magic = file.peek(4)[:4]
    if magic == ZSTD:
        raise InvalidParameterError("A manifest that Lambda is to read can be plain or gzip, not zstd")
    return gzip.GzipFile(fileobj=file) if magic.startswith(GZIP) else file


def _checked(lines: Iterable[bytes], name: str) -> Iterator[bytes]:
    problems: list[str] = []
    any_line = False
    for number, line in numbered(_whole(lines, name)):
        if not line.strip():
            continue
        any_line = True
        try:
            read_entry(line)
        except InvalidParameterError as error:
            problems += [f"{name}:{number}: {message}" for message in error.messages]
            if len(problems) >= SHOWN_PROBLEMS:
                break
            continue
        if not problems:
            yield line.rstrip(b"\r\n") + b"\n"
    if problems:
        raise InvalidParameterError(*problems[:SHOWN_PROBLEMS])
    if not any_line:
        raise InvalidParameterError(f"{name}: no chunks in it")


def _whole(lines: Iterable[bytes], name: str) -> Iterator[bytes]:
    try:
        yield from lines
    except (EOFError, gzip.BadGzipFile, zlib_error) as error:
        raise InvalidParameterError(f"{name}: it cannot be unpacked: {error}") from None
