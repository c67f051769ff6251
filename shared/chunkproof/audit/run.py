"""An audit from its beginning, or from where it was interrupted, to its report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from chunkproof.audit.by_id import pick
from chunkproof.audit.match import settle
from chunkproof.audit.prepare import Prepared, sampled
from chunkproof.audit.reader import Reader
from chunkproof.audit.report import AuditReport, Findings, report_of
from chunkproof.audit.scan import rest, scan
from chunkproof.audit.session import Run
from chunkproof.audit.state import Job, Logs, Progress, save, saved
from chunkproof.audit.vectors import check_vectors
from chunkproof.deadline import Deadline
from chunkproof.errors import InvalidParameterError, NotConfiguredError
from chunkproof.retrieval.services import Services, choose_vector

DESCRIBE_MS = 10_000


@dataclass(frozen=True, slots=True)
class Plan:
    """How to audit: by ids or by a complete scan, a sample of so many, the vectors of so many (0: of all)."""

    by_ids: bool = False
    sample: int | None = None
    vectors: int | None = None

    @property
    def is_by_ids(self) -> bool:
        """Whether only the chunks of the manifest, or of the sample, are read."""
        return self.by_ids or self.sample is not None


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit works with: a folder of its own for its state, and the services."""

    folder: Path
    services: Services
    collection: str
    plan: Plan = Plan()
    watch: Callable[[Progress], None] = lambda _progress: None
    pauses: Sequence[float] | None = None

    def check(self) -> None:
        """Find out what cannot work before anything is done."""
        found = self.services.store.describe(self.collection, Deadline(DESCRIBE_MS))
        if self.plan.vectors is not None:
            if self.services.embedder is None:
                raise NotConfiguredError("No embedder is configured: set COHERE_API_KEY")
            choose_vector(found.vectors, self.services.settings.vector_name, self.collection)

    def begin(self, prepared: Prepared) -> Progress:
        """The first state."""
        job = self._job(prepared.sha256, prepared.entries, prepared.chunks)
        progress = Progress(job=job, manifest_bytes=prepared.path.stat().st_size)
        save(self.folder, progress)
        return progress

    def resume(self, manifest_sha256: str) -> tuple[Prepared, Progress]:
        """Where an interrupted audit of this very manifest stands."""
        progress = saved(self.folder)
        if progress is None:
            raise InvalidParameterError(f"{self.folder} holds no interrupted audit to resume")
        job = progress.job
        now = self._job(manifest_sha256, job.entries, job.chunks)
        differing = [name for name in Job.model_fields if getattr(now, name) != getattr(job, name)]
        if differing:
            raise InvalidParameterError(
                f"The interrupted audit was of another {differing[0].replace('_', ' ')}: "
                "resume it as it was begun, or start anew with --restart"
            )
        prepared = Prepared(self.folder / "manifest.sorted", job.entries, job.chunks, job.manifest_sha256)
        if not prepared.path.is_file() or prepared.path.stat().st_size != progress.manifest_bytes:
            raise InvalidParameterError(
                f"{prepared.path} has changed since the audit was interrupted: start again with --restart"
            )
        progress = progress.model_copy(update={"resumed": progress.resumed + 1})
        save(self.folder, progress)
        return prepared, progress

    def go_on(self, prepared: Prepared, progress: Progress, name: str) -> AuditReport:
        """Run what is left; the findings are in `findings.jsonl` of the folder. A failure leaves it resumable."""
        started_at = datetime.now(UTC)
        of_run = prepared
        if self.plan.sample is not None:
            of_run = sampled(prepared, self.plan.sample, "sample")
        reader = Reader(self.services, self.collection, self.pauses)
        with Logs.opened(self.folder, progress.lengths) as logs:
            run = Run(self.folder, of_run, reader, logs, progress, self.watch)
            if run.progress.phase == "read":
                (pick if self.plan.is_by_ids else scan)(run)
            if run.progress.phase == "rest":
                rest(run)
            if run.progress.phase == "settle":
                settle(run)
            if run.progress.phase == "vectors":
                if self.plan.vectors is not None:
                    size = self.plan.vectors or of_run.chunks
                    check_vectors(run, sampled(of_run, size, "vectors"))
                run.save(phase="report")
            findings = Findings(self.folder / "findings.jsonl", logs.read("findings"), self.folder)
        model = self.services.embedder.model if self.services.embedder else None
        return report_of(run.progress, findings, name=name, model=model, started_at=started_at)

    def _job(self, manifest_sha256: str, entries: int, chunks: int) -> Job:
        return Job(
            collection=self.collection,
            host=self.services.store.host,
            manifest_sha256=manifest_sha256,
            entries=entries,
            chunks=chunks,
            by_ids=self.plan.is_by_ids,
            sample=self.plan.sample,
            vectors=self.plan.vectors,
            model=self.services.embedder.model
            if self.services.embedder and self.plan.vectors is not None
            else None,
        )
