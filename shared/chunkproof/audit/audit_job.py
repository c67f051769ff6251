"""An audit as a sharded job: split a manifest in S3 into shards, audit each one, merge the results into one report.

All entries of a chunk are in one shard, which a hash of the chunk id selects. Beside the objects of any job,
`findings/N.jsonl` has the findings of a shard, and `findings.jsonl` all of them.

A published collection is on the disk of the function that audits it. So one shard has the whole manifest and reads the
whole collection, orphans included, unless the manifest is partial. The result of a shard is its report; those of
another version than the plan's do not count.
"""

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from io import BufferedReader
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, cast

from pydantic import Field

from chunkproof.audit.audit_report import AuditReport, Findings, build_report
from chunkproof.audit.audit_run import FINDINGS_FILE, Audit
from chunkproof.audit.findings import Finding, Kind
from chunkproof.audit.ledger import AuditPlan, AuditSpec, Ledger, ManifestFacts, Progress, prepare
from chunkproof.audit.manifest_file import ZSTD_MAGIC, decompress_lines
from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.files import read_lines
from chunkproof.collection.services import Services
from chunkproof.net.s3 import MAX_SHARDS, JobPlan, ShardedJob, map_in_parallel, parse_address

SHARD_ENTRIES = 5_000


class AuditJobPlan(JobPlan):
    """What is audited, in how many shards."""

    audit_id: str
    manifest: str
    collection: str
    sha256: str
    entries: int
    is_scan: bool = Field(default=False, description="Whether one shard reads the whole collection")

    @property
    def version(self) -> str | None:
        """The version of a published collection."""
        return self.versions.get(self.collection)


class ShardedAudit(ShardedJob[AuditJobPlan]):
    """The steps of one audit in the cloud."""

    FOLDER, ID, PLAN = "audits", "audit_id", AuditJobPlan

    def split(
        self,
        manifest: str,
        collection: str,
        shard_entries: int = SHARD_ENTRIES,
        *,
        version: str | None = None,
        is_partial: bool = False,
    ) -> AuditJobPlan:
        """Check the manifest and write its shards; raise `InvalidParameterError` with all wrong lines.

        With the `version` of a published collection, one shard reads all of it, unless the manifest is partial.
        """
        is_scan = version is not None and not is_partial
        source, key = parse_address(manifest)
        # As its own context manager, the body would be a response that closes itself at its end.
        with TemporaryDirectory() as name, closing(source.open(key)) as body, _decompress(body) as file:
            folder, digest = Path(name), sha256()
            with closing(prepare(read_lines(file, manifest), manifest, folder)) as ledger:
                for (line,) in ledger.rows("SELECT line FROM entry ORDER BY id"):
                    digest.update(line)
                entries = ledger.manifest.entries
                shards = 1 if is_scan else max(1, -(-entries // shard_entries))
                if shards > MAX_SHARDS:
                    raise InvalidParameterError(
                        f"{manifest} has {entries:,} entries, more than {MAX_SHARDS * shard_entries:,}: "
                        "audit it in parts"
                    )
                counts = dict(map_in_parallel(self._upload_shard, _write_shards(ledger, folder, shards)))
        return self._write_plan(
            [{"shard": shard, "entries": count} for shard, count in counts.items()],
            manifest=manifest,
            collection=collection,
            sha256=digest.hexdigest(),
            entries=entries,
            started_at=datetime.now(UTC),
            versions={collection: version} if version is not None else {},
            is_scan=is_scan,
        )

    def run(self, shard: int, services: Services) -> ManifestFacts:
        """Audit one shard, by ids or by a complete scan, and return what its manifest has."""
        plan = self.plan()
        with self._recording_failure(shard), TemporaryDirectory() as name:
            folder = Path(name)
            ledger = prepare(self.read_lines(shard, folder), plan.manifest, folder)
            audit = Audit(folder, services.at(plan.versions), plan.collection, AuditPlan(by_ids=not plan.is_scan))
            report = audit.run(audit.start(ledger))
            self._upload(_findings_name(shard), folder / FINDINGS_FILE)
        kept = report if plan.is_scan else report.model_copy(update={"findings": ()})
        self.write(f"results/{shard:05d}.json", kept.to_json())
        return report.manifest

    def merge(self, host: str) -> AuditReport:
        """Merge all shards into one report; the chunks of a shard without a result are unverifiable."""
        plan = self.plan()
        report = self._merge_shards(plan, host)
        self.write("report.json", report.canonical_json())
        return report

    def read_lines(self, shard: int, folder: Path) -> Iterator[bytes]:
        """Yield the lines of a shard, which is kept in the folder meanwhile."""
        packed = folder / f"{shard}.gz"
        self.bucket.download(self.key(_shard_name(shard)), packed)
        with gzip.open(packed) as lines:
            yield from lines
        packed.unlink()

    def _merge_shards(self, plan: AuditJobPlan, host: str) -> AuditReport:
        totals: Counter[str] = Counter(entries=0, chunks=0, changed=0, presence_only=0)
        results: list[AuditReport] = []
        with TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "merged").mkdir()
            with closing(Ledger.create(folder / "merged")) as ledger:
                for shard, result, findings in map_in_parallel(self._read_result, self.shards()):
                    if result is not None and result.version == plan.version:
                        totals.update(result.manifest.model_dump(include=set(totals)), changed=result.run.changed)
                        results.append(result)
                        merged: Iterable[Finding] = map(Finding.model_validate_json, findings.splitlines())
                    else:
                        merged = self._list_unverifiable(shard, folder, totals)
                    for finding in merged:
                        finding.add_to(ledger)
                all_findings = Findings(folder / FINDINGS_FILE, ledger)
            if totals["entries"] != plan.entries:
                raise InvalidParameterError(
                    f"The shards have {totals['entries']} entries, the manifest has {plan.entries}: "
                    "start the audit again"
                )
            self._upload("findings.jsonl", all_findings.path)
        seconds, changed = (datetime.now(UTC) - plan.started_at).total_seconds(), totals.pop("changed")
        times: dict[str, Any] = {"started_at": plan.started_at, "seconds": seconds}
        if plan.is_scan and results:
            return results[0].model_copy(update={"run": results[0].run.model_copy(update=times)})
        repeated = totals["entries"] - totals["chunks"]
        manifest = ManifestFacts(name=plan.manifest, sha256=plan.sha256, repeated=repeated, **totals)
        spec = AuditSpec(collection=plan.collection, host=host, manifest=manifest, by_ids=True, version=plan.version)
        progress = Progress(spec=spec, compared=manifest.chunks, changed=changed, **times)
        report = build_report(progress, all_findings)
        spans = [(r.run.started_at, r.run.started_at + timedelta(seconds=r.run.seconds)) for r in results]
        reading = max(end for _, end in spans) - min(start for start, _ in spans) if spans else timedelta(0)
        rate = round(sum(r.audited for r in results) / max(reading.total_seconds(), 1e-9), 1)
        return report.model_copy(update={"run": report.run.model_copy(update={"chunks_per_second": rate})})

    def _read_result(self, shard: int) -> tuple[int, AuditReport | None, bytes]:
        """Read the result of a shard, None when it has none, and its findings as they are stored."""
        content = self.read_if_exists(f"results/{shard:05d}.json")
        if content is None:
            return shard, None, b""
        return shard, AuditReport.model_validate_json(content), self.read(_findings_name(shard))

    def _list_unverifiable(self, shard: int, folder: Path, totals: Counter[str]) -> Iterator[Finding]:
        why = f"Shard {shard} could not be audited: {self.read_failure(shard)}"
        with closing(prepare(self.read_lines(shard, folder), f"shard {shard}", folder)) as ledger:
            totals.update(entries=ledger.manifest.entries, chunks=ledger.manifest.chunks)
            for expected in ledger.read():
                yield Finding.of_entry(expected.entry, Kind.UNVERIFIABLE, why)

    def _upload_shard(self, written: tuple[int, int, Path]) -> tuple[int, int]:
        shard, count, file = written
        self._upload(_shard_name(shard), file)
        file.unlink()
        return shard, count

    def _upload(self, name: str, file: Path) -> None:
        self.bucket.upload(self.key(name), file)


def _shard_name(shard: int) -> str:
    return f"shards/{shard:05d}.jsonl.gz"


def _findings_name(shard: int) -> str:
    return f"findings/{shard:05d}.jsonl"


def _write_shards(ledger: Ledger, folder: Path, shards: int) -> Iterator[tuple[int, int, Path]]:
    """Write the lines of each shard, with the same bytes each time; yield its number, its entries and its file."""
    ledger.define("shard_of", lambda chunk_id: int.from_bytes(sha256(chunk_id.encode()).digest()[:8], "big") % shards)
    rows = ledger.rows("SELECT shard_of(chunk_id), line FROM entry ORDER BY 1, id")
    for shard, of_shard in groupby(rows, key=lambda row: row[0]):
        file, count = folder / f"{shard}.gz", 0
        with file.open("wb") as target, gzip.GzipFile("", "wb", compresslevel=5, fileobj=target, mtime=0) as writer:
            for _, line in of_shard:
                writer.write(line)
                count += 1
        yield shard, count, file


def _decompress(body: object) -> AbstractContextManager[Any]:
    file = BufferedReader(body)  # type: ignore[type-var]
    if file.peek(4)[:4] == ZSTD_MAGIC:
        raise InvalidParameterError("With --stack, a manifest can be plain or gzip, not zstd")
    return decompress_lines(cast(IO[bytes], file))
