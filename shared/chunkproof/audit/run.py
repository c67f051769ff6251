"""An audit from its start, or from where it was interrupted, to its report."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Literal

from chunkproof.audit.by_id import audit_by_id
from chunkproof.audit.content import match_by_content
from chunkproof.audit.match import match_open_ids
from chunkproof.audit.near_duplicates import find_near_duplicates
from chunkproof.audit.prepare import SORTED_FILE, SortedManifest, draw_sample, move_chunks
from chunkproof.audit.reader import Reader
from chunkproof.audit.report import AuditReport, Findings, build_report
from chunkproof.audit.scan import finish_scan, scan
from chunkproof.audit.session import Run
from chunkproof.audit.state import AuditSpec, Logs, Progress, create_state, load_state
from chunkproof.audit.vectors import check_vectors
from chunkproof.deadline import Deadline
from chunkproof.errors import InvalidParameterError
from chunkproof.retrieval.services import Services, choose_vector

DESCRIBE_MS = 10_000
FINDINGS_FILE = "findings.jsonl"


@dataclass(frozen=True, slots=True)
class Plan:
    """How to audit: by ids or by a complete scan, the sample size, the number of vectors to check (0: all).

    Chunks whose ids are not stored are matched by their text, unless `match_by` is `id`. `near_duplicates` is the
    similarity from which two stored texts are reported.
    """

    by_ids: bool = False
    sample: int | None = None
    vectors: int | None = None
    match_by: Literal["text", "id"] = "text"
    near_duplicates: float | None = None

    @property
    def is_by_ids(self) -> bool:
        """Whether only the chunks of the manifest, or of the sample, are read."""
        return self.by_ids or self.sample is not None


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit of one collection; `folder` is for its state and nothing else."""

    folder: Path
    services: Services
    collection: str
    plan: Plan = Plan()
    on_progress: Callable[[Progress], None] = lambda _progress: None
    pauses: Sequence[float] | None = None

    def check(self) -> None:
        """Raise what would stop the audit, before it starts."""
        description = self.services.store.describe(self.collection, Deadline(DESCRIBE_MS))
        if self.plan.vectors is not None:
            self.services.require_embedder(self.collection)
            choose_vector(description.vectors, self.services.settings.vector_name, self.collection)

    def start(self, manifest: SortedManifest) -> Progress:
        """Save the state of an audit that has done nothing yet."""
        spec = self._spec(manifest.sha256, manifest.entries, manifest.chunks, manifest.presence_only)
        progress = Progress(spec=spec, manifest_bytes=manifest.path.stat().st_size)
        create_state(self.folder, progress)
        return progress

    def resume(self, manifest_sha256: str) -> tuple[SortedManifest, Progress]:
        """Load the state of an interrupted audit of the same manifest."""
        progress = load_state(self.folder)
        if progress is None:
            raise InvalidParameterError(f"{self.folder} holds no interrupted audit to resume")
        spec = progress.spec
        now = self._spec(manifest_sha256, spec.entries, spec.chunks, spec.presence_only)
        differing = [name for name in AuditSpec.model_fields if getattr(now, name) != getattr(spec, name)]
        if differing:
            raise InvalidParameterError(
                f"The interrupted audit was of another {differing[0].replace('_', ' ')}: "
                "resume it with the same options, or start again with --restart"
            )
        path = self.folder / SORTED_FILE
        if not path.is_file() or path.stat().st_size != progress.manifest_bytes:
            raise InvalidParameterError(
                f"{path} has changed since the audit was interrupted: start again with --restart"
            )
        progress = progress.model_copy(update={"resumed": progress.resumed + 1, "process": token_hex(8)})
        create_state(self.folder, progress)
        manifest = SortedManifest(path, spec.entries, spec.chunks, spec.manifest_sha256, spec.presence_only)
        return manifest, progress

    def run(self, manifest: SortedManifest, progress: Progress, name: str) -> AuditReport:
        """Run what is left, write all findings to `findings.jsonl` in the folder, and return the report.

        After a failure the audit can be resumed.
        """
        started_at = datetime.now(UTC)
        if self.plan.sample is not None:
            manifest = draw_sample(manifest, self.plan.sample, "sample")
        reader = Reader(self.services, self.collection, self.pauses)
        with closing(Logs(self.folder, progress.log_lengths)) as logs:
            run = Run(self.folder, manifest, reader, logs, progress, self.on_progress)
            if run.progress.phase == "read":
                (audit_by_id if self.plan.is_by_ids else scan)(run)
            if run.progress.phase == "finish_scan":
                finish_scan(run)
            if run.progress.phase == "match":
                match_open_ids(run)
            if run.progress.phase == "content":
                match_by_content(run)
            if run.progress.phase == "near_duplicates":
                if self.plan.near_duplicates is not None:
                    find_near_duplicates(run, self.plan.near_duplicates)
                run.save(phase="vectors")
            if run.progress.phase == "vectors":
                if self.plan.vectors is not None:
                    size = self.plan.vectors or manifest.chunks
                    moved = move_chunks(manifest, logs.read("pairs"))
                    check_vectors(run, draw_sample(moved, size, "vectors"))
                run.save(phase="report")
            findings = Findings(self.folder / FINDINGS_FILE, logs.read("findings"), self.folder)
        embedder = self.services.embedder_of(self.collection)
        model = embedder.model if embedder else None
        return build_report(run.progress, findings, name=name, model=model, started_at=started_at)

    def _spec(self, manifest_sha256: str, entries: int, chunks: int, presence_only: int) -> AuditSpec:
        embedder = self.services.embedder_of(self.collection) if self.plan.vectors is not None else None
        return AuditSpec(
            collection=self.collection,
            host=self.services.store.host,
            manifest_sha256=manifest_sha256,
            entries=entries,
            chunks=chunks,
            by_ids=self.plan.is_by_ids,
            sample=self.plan.sample,
            vectors=self.plan.vectors,
            model=embedder.model if embedder else None,
            match_by=self.plan.match_by,
            near_duplicates=self.plan.near_duplicates,
            presence_only=presence_only,
            version=self.services.versions.get(self.collection),
        )
