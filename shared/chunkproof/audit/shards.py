"""An audit in parts: split a manifest in S3 into shards, audit each one, merge the results into one report.

All entries of a chunk are in one shard, which a hash of the chunk id selects. Every step writes the same objects when
it runs again, so retries are safe.

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

from chunkproof.audit.findings import Finding, unverifiable_finding
from chunkproof.audit.manifest import GZIP_MAGIC, ZSTD_MAGIC, check_lines, parse_checked_line, read_lines
from chunkproof.audit.prepare import prepare
from chunkproof.audit.report import AuditReport, Findings, build_report
from chunkproof.audit.run import FINDINGS_FILE, Audit, Plan
from chunkproof.audit.state import AuditSpec, Progress
from chunkproof.clients.job_folder import MAX_SHARDS, JobFolder, map_in_parallel
from chunkproof.clients.s3 import Bucket, parse_address
from chunkproof.errors import ChunkproofError, InvalidParameterError
from chunkproof.models import Model
from chunkproof.retrieval.services import Services

SHARD_ENTRIES = 5_000
# Entries are buffered in memory until a shard has this many bytes for its file.
BUFFER_BYTES = 64 * 1024


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
    """The counts of one shard; its findings have an object of their own."""

    shard: int
    entries: int
    chunks: int
    seconds: float
    changed: int
    presence_only: int = 0


class ShardAudit:
    """The steps of one audit in the cloud."""

    def __init__(self, bucket: Bucket, audit_id: str) -> None:
        self._folder = JobFolder(bucket, f"audits/{audit_id}")
        self._id = audit_id

    def split(self, manifest: str, collection: str, shard_entries: int = SHARD_ENTRIES) -> ShardPlan:
        """Check the manifest and write its shards; raise `InvalidParameterError` with all wrong lines."""
        source, key = parse_address(manifest)
        with TemporaryDirectory() as name, source.open(key) as body:
            folder, digest = Path(name), sha256()
            whole = folder / "manifest"
            entries = 0
            with whole.open("wb") as file:
                for _entry, line in check_lines(read_lines(_decompress(body), manifest), manifest):
                    digest.update(line)
                    file.write(line)
                    entries += 1
            shards = max(1, -(-entries // shard_entries))
            if shards > MAX_SHARDS:
                raise InvalidParameterError(
                    f"{manifest} has {entries:,} entries, more than {MAX_SHARDS * shard_entries:,}: audit it in parts"
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
        """Audit one shard by ids; record a failure before raising it."""
        plan = self.read_plan()
        try:
            with TemporaryDirectory() as name:
                folder = Path(name)
                prepared = prepare(self.read_lines(shard), f"shard {shard}", folder)
                audit = Audit(folder, services, plan.collection, Plan(by_ids=True))
                report = audit.run(prepared, audit.start(prepared), plan.manifest)
                self._upload(f"findings/{shard:05d}.jsonl", folder / FINDINGS_FILE)
        except ChunkproofError as error:
            self._folder.write_failure(shard, error)
            raise
        result = ShardResult(
            shard=shard,
            entries=report.manifest.entries,
            chunks=report.manifest.chunks,
            seconds=report.run.seconds,
            changed=report.run.changed,
            presence_only=report.manifest.presence_only,
        )
        self._folder.write(f"results/{shard:05d}.json", result.to_json())
        return result

    def merge(self, host: str) -> AuditReport:
        """Merge all shards into one report; the chunks of a shard without a result are unverifiable."""
        plan = self.read_plan()
        with TemporaryDirectory() as name:
            folder = Path(name)
            merged = _MergedShards(self, folder)
            findings = Findings(folder / FINDINGS_FILE, merged.lines(), folder)
            spec = AuditSpec(
                collection=plan.collection,
                host=host,
                manifest_sha256=plan.sha256,
                entries=merged.entries,
                chunks=merged.chunks,
                by_ids=True,
                presence_only=merged.presence_only,
            )
            seconds = (datetime.now(UTC) - plan.started_at).total_seconds()
            progress = Progress(
                spec=spec,
                compared=merged.chunks,
                seconds=seconds,
                reading_seconds=seconds,
                changed=merged.changed,
            )
            report = build_report(progress, findings, name=plan.manifest, model=None, started_at=plan.started_at)
            if report.manifest.entries != plan.entries:
                raise InvalidParameterError(
                    f"The shards have {report.manifest.entries} entries, the manifest has {plan.entries}: "
                    "start the audit again"
                )
            self._upload("findings.jsonl", findings.path)
        self._folder.write("report.json", report.canonical_json())
        return report

    def read_plan(self) -> ShardPlan:
        """Read the plan that `split` wrote."""
        return ShardPlan.model_validate_json(self._folder.read("plan.json"))

    def report_address(self) -> str:
        """Return the address of the report."""
        return self._folder.address("report.json")

    def read_result(self, shard: int) -> tuple[int, ShardResult | None, bytes]:
        """Read the result of a shard, None when it has none, and its findings as they are stored."""
        content = self._folder.read_if_exists(f"results/{shard:05d}.json")
        if content is None:
            return shard, None, b""
        return shard, ShardResult.model_validate_json(content), self._folder.read(f"findings/{shard:05d}.jsonl")

    def read_failure(self, shard: int) -> str:
        """Read why a shard has no result."""
        return self._folder.read_failure(shard)

    def read_shards(self) -> list[int]:
        """Read the numbers of the shards."""
        return self._folder.read_shards()

    def read_lines(self, shard: int) -> list[bytes]:
        """Read the lines of a shard."""
        return gzip.decompress(self._folder.read(f"shards/{shard:05d}.jsonl.gz")).splitlines(True)

    def _write_shards(self, whole: Path, folder: Path, shards: int) -> Iterator[tuple[int, int]]:
        counts: dict[int, int] = defaultdict(int)
        buffers: dict[int, bytearray] = defaultdict(bytearray)
        with whole.open("rb") as lines:
            for line in lines:
                shard = _choose_shard(parse_checked_line(line).chunk_id, shards)
                counts[shard] += 1
                buffers[shard] += line
                if len(buffers[shard]) > BUFFER_BYTES:
                    _append(folder, shard, buffers.pop(shard))
        for shard, rest in buffers.items():
            _append(folder, shard, rest)

        def upload(shard: int) -> tuple[int, int]:
            packed = gzip.compress((folder / str(shard)).read_bytes(), compresslevel=5, mtime=0)
            self._folder.write(f"shards/{shard:05d}.jsonl.gz", packed)
            return shard, counts[shard]

        return map_in_parallel(upload, sorted(counts))

    def _upload(self, name: str, file: Path) -> None:
        self._folder.bucket.upload(self._folder.key(name), file)


class _MergedShards:
    """The findings of all shards, with the counts of those read so far."""

    def __init__(self, audit: ShardAudit, folder: Path) -> None:
        self._audit = audit
        self._folder = folder
        self.entries = self.chunks = self.changed = self.presence_only = 0

    def lines(self) -> Iterator[bytes]:
        """Yield each finding as a log line."""
        for found in map_in_parallel(self._audit.read_result, self._audit.read_shards()):
            for finding in self._read(*found):
                yield finding.to_log_line()

    def _read(self, shard: int, result: ShardResult | None, findings: bytes) -> Iterable[Finding]:
        if result is not None:
            self.entries += result.entries
            self.chunks += result.chunks
            self.changed += result.changed
            self.presence_only += result.presence_only
            return map(Finding.model_validate_json, findings.splitlines())
        prepared = prepare(self._audit.read_lines(shard), f"shard {shard}", self._folder)
        self.entries += prepared.entries
        self.chunks += prepared.chunks
        why = f"Shard {shard} could not be audited: {self._audit.read_failure(shard)}"
        return [unverifiable_finding(expected.entry, why) for _, expected in prepared.read()]


def _choose_shard(chunk_id: str, shards: int) -> int:
    return int.from_bytes(sha256(chunk_id.encode()).digest()[:8], "big") % shards


def _append(folder: Path, shard: int, content: bytes | bytearray) -> None:
    with (folder / str(shard)).open("ab") as file:
        file.write(content)


def _decompress(body: object) -> Iterable[bytes]:
    file = BufferedReader(body)  # type: ignore[type-var]
    magic = file.peek(4)[:4]
    if magic == ZSTD_MAGIC:
        raise InvalidParameterError("With --stack, a manifest can be plain or gzip, not zstd")
    return gzip.GzipFile(fileobj=file) if magic.startswith(GZIP_MAGIC) else file
