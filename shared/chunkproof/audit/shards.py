"""An audit in parts: split a manifest in S3 into shards, audit each one, merge the results into one report.

All entries of a chunk are in one shard, which a hash of the chunk id selects. Every step writes the same objects when
it runs again, so retries are safe.

A published collection is on the disk of the function that audits it. So one shard has the whole manifest and reads the
whole collection, orphans included, unless the manifest is partial. All steps are about the version that was in force
when the audit began; results of another version do not count.

    audits/ID/plan.json             what is audited, in how many shards
    audits/ID/shards.json           the shards, for the Distributed Map
    audits/ID/shards/N.jsonl.gz     their entries
    audits/ID/results/N.json        what was found in each, audits/ID/findings/N.jsonl in detail
    audits/ID/scan.json             the report of the shard that read the whole collection
    audits/ID/errors/N.json         why the last attempt at a shard failed
    audits/ID/report.json           the report, audits/ID/findings.jsonl all findings
"""

import gzip
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from hashlib import sha256
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import Field

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
SCAN = "scan.json"
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
    version: str | None = Field(None, description="Of a published collection")
    is_scan: bool = Field(default=False, description="Whether one shard reads the whole collection")

    @property
    def versions(self) -> dict[str, str]:
        """The version by collection, as services take it."""
        return {} if self.version is None else {self.collection: self.version}


class ShardResult(Model):
    """The counts of one shard; its findings have an object of their own."""

    shard: int
    version: str | None = None
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

    def split(
        self,
        manifest: str,
        collection: str,
        shard_entries: int = SHARD_ENTRIES,
        *,
        version: str | None = None,
        is_partial: bool = False,
    ) -> ShardPlan:
        """Check the manifest and write its shards; raise `InvalidParameterError` with all wrong lines.

        With the `version` of a published collection, one shard reads all of it, unless the manifest is partial.
        """
        is_scan = version is not None and not is_partial
        source, key = parse_address(manifest)
        # As its own context manager, the body would be a response that closes itself at its end.
        with TemporaryDirectory() as name, closing(source.open(key)) as body:
            folder, digest = Path(name), sha256()
            whole = folder / "manifest"
            entries = 0
            with whole.open("wb") as file:
                for _entry, line in check_lines(read_lines(_decompress(body), manifest), manifest):
                    digest.update(line)
                    file.write(line)
                    entries += 1
            shards = 1 if is_scan else max(1, -(-entries // shard_entries))
            if shards > MAX_SHARDS:
                raise InvalidParameterError(
                    f"{manifest} has {entries:,} entries, more than {MAX_SHARDS * shard_entries:,}: audit it in parts"
                )
            if is_scan:
                self._write_whole(whole, folder)
                counts = [(0, entries)]
            else:
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
            version=version,
            is_scan=is_scan,
        )
        self._folder.write("plan.json", plan.to_json())
        return plan

    def audit(self, shard: int, services: Services) -> ShardResult:
        """Audit one shard, by ids or by a complete scan; record a failure before raising it."""
        plan = self.read_plan()
        try:
            with TemporaryDirectory() as name:
                folder = Path(name)
                prepared = prepare(self.read_lines(shard, folder), f"shard {shard}", folder)
                pinned = services.at(plan.versions)
                audit = Audit(folder, pinned, plan.collection, Plan(by_ids=not plan.is_scan))
                report = audit.run(prepared, audit.start(prepared), plan.manifest)
                found = "findings.jsonl" if plan.is_scan else f"findings/{shard:05d}.jsonl"
                self._upload(found, folder / FINDINGS_FILE)
        except ChunkproofError as error:
            self._folder.write_failure(shard, error)
            raise
        result = ShardResult(
            shard=shard,
            version=plan.version,
            entries=report.manifest.entries,
            chunks=report.manifest.chunks,
            seconds=report.run.seconds,
            changed=report.run.changed,
            presence_only=report.manifest.presence_only,
        )
        if plan.is_scan:
            self._folder.write(SCAN, report.to_json())
        else:
            self._folder.write(f"results/{shard:05d}.json", result.to_json())
        return result

    def merge(self, host: str) -> AuditReport:
        """Merge all shards into one report; the chunks of a shard without a result are unverifiable."""
        plan = self.read_plan()
        report = self._read_scan(plan) or self._merge_shards(plan, host)
        self._folder.write("report.json", report.canonical_json())
        return report

    def _read_scan(self, plan: ShardPlan) -> AuditReport | None:
        """Return the report of the shard that read the whole collection; None if there is none of this version."""
        content = self._folder.read_if_exists(SCAN) if plan.is_scan else None
        report = AuditReport.model_validate_json(content) if content is not None else None
        if report is None or (report.version, report.manifest.sha256) != (plan.version, plan.sha256):
            return None
        run = {"started_at": plan.started_at, "seconds": _seconds_since(plan.started_at)}
        return report.model_copy(update={"run": report.run.model_copy(update=run)})

    def _merge_shards(self, plan: ShardPlan, host: str) -> AuditReport:
        with TemporaryDirectory() as name:
            folder = Path(name)
            merged = _MergedShards(self, folder, plan.version)
            findings = Findings(folder / FINDINGS_FILE, merged.lines(), folder)
            spec = AuditSpec(
                collection=plan.collection,
                host=host,
                manifest_sha256=plan.sha256,
                entries=merged.entries,
                chunks=merged.chunks,
                by_ids=True,
                presence_only=merged.presence_only,
                version=plan.version,
            )
            seconds = _seconds_since(plan.started_at)
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

    def read_lines(self, shard: int, folder: Path) -> Iterator[bytes]:
        """Yield the lines of a shard, which is kept in the folder meanwhile."""
        packed = folder / f"{shard}.gz"
        self._folder.bucket.download(self._folder.key(_shard_name(shard)), packed)
        with gzip.open(packed) as lines:
            yield from lines
        packed.unlink()

    def _write_whole(self, whole: Path, folder: Path) -> None:
        """Write one shard of any size, which would not fit into memory."""
        packed = folder / "0.gz"
        with (
            whole.open("rb") as lines,
            packed.open("wb") as file,
            gzip.GzipFile("", "wb", compresslevel=5, fileobj=file, mtime=0) as writer,
        ):
            shutil.copyfileobj(lines, writer)
        self._upload(_shard_name(0), packed)

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
            self._folder.write(_shard_name(shard), packed)
            return shard, counts[shard]

        return map_in_parallel(upload, sorted(counts))

    def _upload(self, name: str, file: Path) -> None:
        self._folder.bucket.upload(self._folder.key(name), file)


class _MergedShards:
    """The findings of all shards, with the counts of those read so far."""

    def __init__(self, audit: ShardAudit, folder: Path, version: str | None) -> None:
        self._audit = audit
        self._folder = folder
        self._version = version
        self.entries = self.chunks = self.changed = self.presence_only = 0

    def lines(self) -> Iterator[bytes]:
        """Yield each finding as a log line."""
        for found in map_in_parallel(self._audit.read_result, self._audit.read_shards()):
            for finding in self._read(*found):
                yield finding.to_log_line()

    def _read(self, shard: int, result: ShardResult | None, findings: bytes) -> Iterable[Finding]:
        if result is not None and result.version == self._version:
            self.entries += result.entries
            self.chunks += result.chunks
            self.changed += result.changed
            self.presence_only += result.presence_only
            return map(Finding.model_validate_json, findings.splitlines())
        prepared = prepare(self._audit.read_lines(shard, self._folder), f"shard {shard}", self._folder)
        self.entries += prepared.entries
        self.chunks += prepared.chunks
        why = f"Shard {shard} could not be audited: {self._audit.read_failure(shard)}"
        return (unverifiable_finding(expected.entry, why) for _, expected in prepared.read())


def _shard_name(shard: int) -> str:
    return f"shards/{shard:05d}.jsonl.gz"


def _seconds_since(started_at: datetime) -> float:
    return (datetime.now(UTC) - started_at).total_seconds()


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
