"""An audit from its start, or from where it was interrupted, to its report; and its check of the stored vectors.

A cause of a wrong vector is named only where a check shows it: the text embedded as a question, the text cut short or
the text of the manifest gives the stored vector; the payload or the vector size shows another model; it is the vector
of another chunk; or the judge of vectors shows which model made it. Otherwise the vector is unexplained.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from secrets import token_hex
from statistics import median
from typing import Any

from chunkproof.audit.audit_report import AuditReport, Findings, build_report
from chunkproof.audit.findings import VECTOR_KINDS, Finding, Kind, require_texts
from chunkproof.audit.join import AuditRun, audit_by_id, match_open_ids, match_unknown_points, scan
from chunkproof.audit.ledger import AuditPlan, AuditSpec, ExpectedChunk, Ledger, ManifestFacts, Progress, load_progress
from chunkproof.audit.match_texts import find_near_duplicates, match_by_content
from chunkproof.base.errors import ChunkproofError, CorruptChunkError, InvalidParameterError
from chunkproof.base.request import Deadline, start
from chunkproof.collection.facts import choose_vector
from chunkproof.collection.lookup import Lookup
from chunkproof.collection.reader import Reader, in_batches
from chunkproof.collection.services import Services
from chunkproof.contract.model import display_name
from chunkproof.embedders.embedder_port import Embedder, InputType, query_model
from chunkproof.embedders.known_models import can_compare, is_same_family
from chunkproof.proof.vector_judge import AGREES, LEAST_WORDS, SAME, Origin, VectorOrigins, cosine
from chunkproof.stores.hybrid import make_bm25_vector
from chunkproof.stores.store_port import Point, PointId, Vector, WritableStore

DESCRIBE_MS = 10_000
FINDINGS_FILE = "findings.jsonl"
# Lower than `SAME`: a text cut inside a token is embedded a little differently from one cut between two tokens.
SAME_WHEN_CUT = 0.995
MAX_REFERENCES = 128
MIN_REFERENCES = 8
# The lengths that pipelines cut texts to, in characters.
CUTS = (8192, 8000, 4096, 4000, 2048, 2000, 1024, 1000, 512, 500, 256)
BATCH = 96
# Stored in few bits, and without the original vectors: cosines to them are 0.993 and more.
LOSSY_QUANTIZATION = "turbo"
MOST = 0.9
WHOLE = AuditPlan()
# Another tokenizer may make a few other words in every chunk.
OTHER_WORDS, LEAST_WEIGHTS = 0.02, 0.9


@dataclass(frozen=True, slots=True)
class _CheckedVector:
    """A stored chunk whose vector is checked; `fresh` is the embedding of its text, None if it cannot be embedded."""

    expected: ExpectedChunk
    point: Point
    text: str
    fresh: Vector | None

    @property
    def cosine(self) -> float | None:
        """Cosine of the stored vector and the fresh one; None when there are not two."""
        stored, fresh = self.point.vector, self.fresh
        return None if stored is None or fresh is None else cosine(stored, fresh)


def check_vectors(run: AuditRun, size: int) -> None:
    """Embed the stored texts of so many chunks again, and log every vector that does not fit its text."""
    drawn = run.ledger.draw(size, "vectors")
    # Always the first ones, so that a resumed audit has the same references as an uninterrupted one.
    check = _Check(run.reader, list(islice(run.ledger.read(where=drawn), MAX_REFERENCES)))
    for batch, points in check.read_ahead(in_batches(run.ledger.read(run.progress.vectors_position, drawn), BATCH)):
        results = check.judge_all(batch, points)
        named = {"vector_names": check.names, "vectors_not_compared": check.not_compared}
        for finding in results:
            if finding is not None:
                run.log_finding(finding)
        run.save(
            vectors_position=batch[-1].id,
            vectors_checked=run.progress.vectors_checked + len(batch),
            vectors_ok=run.progress.vectors_ok + results.count(None),
            same_from=check.same_from,
            **named,
        )


def read_all_vectors(reader: Reader, ids: Sequence[PointId]) -> dict[PointId, Mapping[str, Any]]:
    """Return all vectors of these points by name; nothing where the store does not return them."""
    if not isinstance(reader.store, WritableStore):
        return {}
    read = partial(reader.store.read_vectors, reader.name)
    return {key: value for some in in_batches(ids) for key, value in reader.ask(partial(read, some)).items()}


def cosine_of_any(left: Any, right: Any) -> float:
    """Return the cosine of two dense, sparse or multiple vectors; 0 for two of different kinds."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        sides = [dict(zip(side["indices"], side["values"], strict=True)) for side in (left, right)]
        keys = list(dict.fromkeys((*sides[0], *sides[1])))
        return cosine(*([side.get(key, 0.0) for key in keys] for side in sides)) if keys else 1.0
    if isinstance(left, Mapping) or isinstance(right, Mapping):
        return 0.0
    rows = ((row if isinstance(row, list) else [row] for row in side) for side in (left, right))
    return cosine(*([value for row in side for value in row] for side in rows))


class _Check:
    """The embedder, the vector config of the collection, and reference texts of it embedded again."""

    def __init__(self, reader: Reader, first: Sequence[ExpectedChunk]) -> None:
        self._reader, self._payloads = reader, reader.services.payloads
        self._embedder, self._config = reader.require_embedder(), reader.vector
        self._embedded_before: dict[tuple[str, str], Vector | None] = {}
        self._variants: dict[str, Embedder] = {}
        self._references = [one for one in self._embed(first, self._fetch(first)) if one.fresh is not None]
        # They are in the sample themselves: no text is embedded twice for it.
        self._embedded_before = {
            (self._embedder_of(subject.point).model, subject.text): subject.fresh for subject in self._references
        }
        is_lossy = self._config.is_lossy or reader.describe().quantization == LOSSY_QUANTIZATION
        self.same_from = AGREES if is_lossy else _find_precision([one.cosine or 0.0 for one in self._references])
        self._origins = VectorOrigins([(one.point.vector or (), one.fresh or ()) for one in self._references])
        self._prepare_others()

    def read_ahead(
        self, batches: Iterator[list[ExpectedChunk]]
    ) -> Generator[tuple[list[ExpectedChunk], Mapping[str, Point]]]:
        """Yield each batch with its points, which a thread reads while the texts of the batch before are embedded."""
        before: tuple[list[ExpectedChunk], Future[Mapping[str, Point]]] | None = None
        for batch in batches:
            ready, before = before, (batch, start(partial(self._fetch, batch)))
            if ready:
                yield ready[0], ready[1].result()
        if before:
            yield before[0], before[1].result()

    def judge_all(self, chunks: Sequence[ExpectedChunk], points: Mapping[str, Point]) -> list[Finding | None]:
        """Judge the vectors of each chunk that is stored; None where they fit its text."""
        subjects = self._embed(chunks, points)
        others = read_all_vectors(self._reader, [subject.point.id for subject in subjects]) if self.names[1:] else {}
        return [self._judge(one) or self._judge_others(one, others.get(one.point.id, {})) for one in subjects]

    def _prepare_others(self) -> None:
        """Find out which other vectors can be compared: that of searches by words, and those made by this model."""
        description = self._reader.describe()
        self._words, self._same_model, self._everywhere = "", list[str](), list[str]()
        self._stored_nowhere: list[str] = []
        others = [vector for vector in description.vectors if vector.name != self._config.name]
        names = [*(vector.name for vector in others), *description.sparse_vectors]
        stored = read_all_vectors(self._reader, [one.point.id for one in self._references]) if names else {}
        if stored:
            self._stored_nowhere = [name for name in names if not any(name in each for each in stored.values())]
            with suppress(ChunkproofError):
                self._words = self._reader.text_leg.sparse_vector or ""
            if self._words and find_spec("qdrant_edge") is None:  # which makes the vector of a text as a server does
                self._words = ""
            shares = [self._share_words(one, stored.get(one.point.id, {})) for one in self._references]
            self._usual_words = median([share for share in shares if share is not None] or [1.0])
            for vector in others:
                fits = [
                    cosine_of_any(stored[one.point.id][vector.name], one.fresh)
                    for one in self._references
                    if vector.name in stored.get(one.point.id, {})
                ]
                if fits and median(fits) >= AGREES:
                    self._same_model.append(vector.name)
                    self._everywhere += [vector.name] * (len(fits) >= MOST * len(self._references))
        compared = {self._config.name, self._words, *self._same_model, *self._stored_nowhere}
        self.names = (self._config.name, *(name for name in names if name in compared))
        self.not_compared = tuple(name for name in names if name not in compared)

    def _share_words(self, subject: _CheckedVector, vectors: Mapping[str, Any]) -> float | None:
        """Return how many words the stored vector for searches by words has in common with that of the text."""
        stored, text = vectors.get(self._words), self._payloads.find_text(subject.point)
        if not self._words or not isinstance(stored, Mapping) or text is None:
            return None
        vector = make_bm25_vector(text)
        made, own = set(vector["indices"]), set(stored["indices"])
        share, weights = len(made & own) / len(made | own) if made | own else 1.0, cosine_of_any(vector, stored)
        return share if share < 1.0 or weights >= LEAST_WEIGHTS else max(0.0, weights)

    def _judge_others(self, subject: _CheckedVector, vectors: Mapping[str, Any]) -> Finding | None:
        for name in dict.fromkeys((*self._stored_nowhere, self._words, *self._everywhere)):
            if name and vectors.get(name) is None:
                return self._finding(subject, Kind.UNVERIFIABLE_VECTOR, f"The point has no vector {name}", None)
        share, usual = self._share_words(subject, vectors), self._usual_words if self._words else 1.0
        if share is not None and share < max(LEAST_WORDS, usual - OTHER_WORDS):
            kind = Kind.WRONG_MODEL if usual < LEAST_WORDS else Kind.STALE_VECTOR
            details = f"{self._words} is not the BM25 vector of the stored text: {share:.0%} in common"
            return self._finding(subject, kind, details, None)
        for name in self._same_model:
            similarity = cosine_of_any(vectors[name], subject.fresh) if name in vectors and subject.fresh else 1.0
            if similarity < self.same_from:
                details = f"{name} is not the vector of the stored text, as it is of other chunks"
                return self._finding(subject, Kind.UNEXPLAINED_VECTOR, details, similarity)
        return None

    def _fetch(self, chunks: Sequence[ExpectedChunk]) -> Mapping[str, Point]:
        """Read the point of each chunk that is stored, with its vector."""
        point_ids = {chunk.chunk_id: chunk.point_id for chunk in chunks if not chunk.moved_to}
        lookup = self._reader.look_up(point_ids, with_vector=self._config.name) if point_ids else Lookup({})
        moved = self._reader.read_points([chunk.point_id for chunk in chunks if chunk.moved_to], self._config.name)
        at = {chunk.chunk_id: moved[chunk.point_id] for chunk in chunks if chunk.moved_to and chunk.point_id in moved}
        return {chunk_id: points[0] for chunk_id, points in lookup.points.items() if points} | at

    def _embed(self, chunks: Sequence[ExpectedChunk], points: Mapping[str, Point]) -> list[_CheckedVector]:
        read: list[tuple[ExpectedChunk, Point, str]] = []
        for chunk in chunks:
            with suppress(KeyError, CorruptChunkError):  # not stored, or its text has a finding of its own
                point = points[chunk.chunk_id]
                read.append((chunk, point, self._payloads.embedded_text(point)))
        vectors = dict(self._embedded_before)
        wanted = [(self._embedder_of(point), text) for _, point, text in read]
        for embedder in {embedder.model: embedder for embedder, _ in wanted}.values():
            own = dict.fromkeys(text for other, text in wanted if other.model == embedder.model)
            new = [text for text in own if (embedder.model, text) not in vectors]
            keys = [(embedder.model, text) for text in new]
            vectors |= zip(keys, self._reader.embed(new, embedder=embedder), strict=True)
        rows = zip(read, wanted, strict=True)
        return [_CheckedVector(*one, vectors[embedder.model, text]) for one, (embedder, text) in rows]

    def _embedder_of(self, point: Point) -> Embedder:
        """Return the embedder of a point: where its payload names another model of the same space, one with that."""
        named = self._payloads.value("embedding_model", point.payload)
        own, make = self._embedder, getattr(self._embedder, "with_model", None)
        if not isinstance(named, str) or make is None or not is_same_family(named, own.model):
            return own
        if named not in self._variants:
            self._variants[named] = make(named)
        return self._variants[named]

    def _judge(self, subject: _CheckedVector) -> Finding | None:
        stored, fresh = subject.point.vector, subject.fresh
        if stored is None:
            return self._finding(subject, Kind.UNVERIFIABLE_VECTOR, "The point has no such vector", None)
        if fresh is not None and len(fresh) != len(stored):
            sizes = f"{len(stored)} values are stored, {self._embedder.model} makes {len(fresh)}"
            return self._finding(subject, Kind.WRONG_MODEL, sizes, None)
        similarity = subject.cosine
        if similarity is not None and similarity >= self.same_from:
            return None
        kind, cause = self._find_cause(subject, stored)
        return self._finding(subject, kind, cause, similarity)

    def _find_cause(self, subject: _CheckedVector, stored: Vector) -> tuple[Kind, str]:
        checks = [self._check_original, self._check_named_model, self._check_cuts]
        if subject.fresh is not None:
            checks = [self._check_as_question, *checks, self._check_other_chunks, self._check_origin]
        for check in checks:
            if found := check(subject, stored):
                return found
        if subject.fresh is None:
            return Kind.UNVERIFIABLE_VECTOR, f"The text is longer than {self._embedder.model} accepts"
        return Kind.UNEXPLAINED_VECTOR, "It is not the vector of the stored text; no check shows why"

    def _check_as_question(self, subject: _CheckedVector, stored: Vector) -> tuple[Kind, str] | None:
        vector = self._reader.embed([subject.text], InputType.QUERY)[0]
        if vector is None or cosine(stored, vector) < self.same_from:
            return None
        model = query_model(self._embedder)
        by = "" if model == self._embedder.model else f" by {model}"
        return Kind.WRONG_INPUT_TYPE, f"Embedded as a question (search_query){by}, not as a passage"

    def _check_original(self, subject: _CheckedVector, stored: Vector) -> tuple[Kind, str] | None:
        original = subject.expected.entry.original_text
        if not original or original == subject.text:
            return None
        vector = self._reader.embed([original], embedder=self._embedder_of(subject.point))[0]
        if vector is None or cosine(stored, vector) < self.same_from:
            return None
        return Kind.STALE_VECTOR, "It is the vector of the manifest's text; the stored text was changed later"

    def _check_named_model(self, subject: _CheckedVector, _stored: Vector) -> tuple[Kind, str] | None:
        named = self._payloads.value("embedding_model", subject.point.payload)
        if not isinstance(named, str) or can_compare(self._embedder, named):
            return None
        queries = query_model(self._embedder)
        return Kind.WRONG_MODEL, f"The payload says {display_name(named)}, queries are embedded by {queries}"

    def _check_cuts(self, subject: _CheckedVector, stored: Vector) -> tuple[Kind, str] | None:
        text = subject.text
        cuts = [text[:length] for length in CUTS if length < len(text)]
        if subject.fresh is None:
            cuts = [self._cut_to_fit(text), *cuts]
        for part, vector in zip(cuts, self._reader.embed(cuts), strict=True):
            if vector is not None and cosine(stored, vector) >= min(SAME_WHEN_CUT, self.same_from):
                return Kind.TRUNCATED_INPUT, f"Embedded from the first {len(part)} of {len(text)} characters"
        return None

    def _check_other_chunks(self, subject: _CheckedVector, stored: Vector) -> tuple[Kind, str] | None:
        for other in self._references:
            name = other.expected.chunk_id
            if name != subject.expected.chunk_id and cosine(stored, other.fresh or ()) >= self.same_from:
                return Kind.STALE_VECTOR, f"It is the vector of another chunk's text: {display_name(name)}"
        return None

    def _check_origin(self, subject: _CheckedVector, stored: Vector) -> tuple[Kind, str] | None:
        """Ask the judge which model made the vector; if this one, whether its text is much like the stored one."""
        own, fresh = subject.cosine or 0.0, subject.fresh or ()
        origin, evidence = self._origins.find(stored, fresh)
        if origin is Origin.ANOTHER_MODEL:
            return Kind.WRONG_MODEL, f"It is another model's than {self._embedder.model}: {evidence}"
        if origin is Origin.UNKNOWN:
            return None
        if not self._origins.is_of_another_text(stored, fresh):
            return Kind.UNEXPLAINED_VECTOR, (
                f"It is this model's vector of a text like the stored one (cosine {own:.3f}): the text was changed "
                "since, or embedded in part or with a title or prefix"
            )
        return Kind.STALE_VECTOR, f"It is this model's vector of some other text ({evidence} with the nearest one)"

    def _cut_to_fit(self, text: str) -> str:
        low, high = 0, len(text)
        while high - low > max(1, high // 200):
            middle = (low + high) // 2
            if self._reader.embed([text[:middle]])[0] is None:
                high = middle
            else:
                low = middle
        return text[:low]

    def _finding(self, subject: _CheckedVector, kind: Kind, details: str, similarity: float | None) -> Finding:
        return Finding(
            chunk_id=subject.expected.chunk_id,
            kind=kind,
            details=details,
            point_ids=(subject.point.id,),
            source=self._payloads.source_of(subject.point.payload),
            cosine=None if similarity is None else round(similarity, 6),
        )


def _find_precision(cosines: Sequence[float]) -> float:
    """Return the cosine from which a vector is that of its text: less where the whole collection has fewer bits.

    That is so where nearly all vectors are close to those of their texts, and most are not equal to them: changed
    texts do not look like that.
    """
    close = [value for value in cosines if value >= AGREES]
    if len(cosines) < MIN_REFERENCES or len(close) < MOST * len(cosines):
        return SAME
    return AGREES if median(close) < SAME else SAME


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit of one collection; `folder` is for its state and nothing else."""

    folder: Path
    services: Services
    collection: str
    plan: AuditPlan = WHOLE
    on_progress: Callable[[Progress], None] = lambda _progress: None
    pauses: Sequence[float] | None = None

    def check(self) -> None:
        """Raise what would stop the audit, before it starts."""
        description = self.services.store.describe(self.collection, Deadline(DESCRIBE_MS))
        if self.plan.vectors is not None:
            self.services.collection(self.collection).require_embedder()
            choose_vector(description.vectors, self.services.settings.vector_name, self.collection)

    def start(self, ledger: Ledger) -> Ledger:
        """Begin an audit that has done nothing yet."""
        ledger.start(Progress(spec=self._spec(ledger.manifest)))
        return ledger

    def resume(self, manifest_sha256: str) -> Ledger:
        """Open the ledger of an interrupted audit of the same manifest.

        What was read before may have changed since. Unless only the report is left, the collection is read from its
        start, so that the report is of one state; the manifest is not sorted and no text is embedded a second time.
        """
        progress = load_progress(self.folder)
        if progress is None:
            raise InvalidParameterError(f"{self.folder} holds no interrupted audit to resume")
        spec = progress.spec
        now = self._spec(spec.manifest.model_copy(update={"sha256": manifest_sha256}))
        differing = [name for name in AuditSpec.model_fields if getattr(now, name) != getattr(spec, name)]
        if differing:
            another = differing[0].replace("_", " ")
            advice = "resume it with the same options, or start again with --restart"
            raise InvalidParameterError(f"The interrupted audit was of another {another}: {advice}")
        progress = progress.model_copy(update={"resumed": progress.resumed + 1, "process": token_hex(8)})
        ledger = Ledger.resume(self.folder, progress)
        if progress.phase != "report":
            ledger.forget(VECTOR_KINDS)
        return ledger

    def run(self, ledger: Ledger) -> AuditReport:
        """Run what is left, write all findings to `findings.jsonl` in the folder, and return the report.

        After a failure the audit can be resumed.
        """
        with closing(ledger):
            if ledger.progress.phase != "report":
                self._compare(AuditRun(ledger, Reader(self.services, self.collection, self.pauses), self.on_progress))
            findings = Findings(self.folder / FINDINGS_FILE, ledger)
        return build_report(ledger.progress, findings)

    def _compare(self, run: AuditRun) -> None:
        """Read the collection, compare it with the manifest, and check vectors if the plan wants it.

        `NotConfiguredError` if no chunk is as it should be because no text of the collection can be read.
        """
        began = run.progress.seconds
        if self.plan.is_by_ids:
            audit_by_id(run)
        else:
            scan(run)
            match_open_ids(run)
            match_unknown_points(run)
            if run.matches_by_text:
                match_by_content(run)
        faulty = run.ledger.count("SELECT count(DISTINCT chunk_id) FROM finding WHERE kind <> ?", Kind.ORPHAN)
        if faulty == run.progress.compared and run.ledger.manifest.presence_only < faulty:
            require_texts(run.reader)
        run.save()
        reading_seconds = run.progress.seconds - began
        if self.plan.near_duplicates is not None:
            find_near_duplicates(run, self.plan.near_duplicates)
        run.save(phase="vectors", reading_seconds=reading_seconds)
        if self.plan.vectors is not None:
            check_vectors(run, min(self.plan.vectors or run.ledger.manifest.chunks, run.progress.spec.audited))
        run.save(phase="report")

    def _spec(self, manifest: ManifestFacts) -> AuditSpec:
        embedder = self.services.collection(self.collection).embedder if self.plan.vectors is not None else None
        return AuditSpec(
            **{**self.plan.model_dump(), "by_ids": self.plan.is_by_ids},
            collection=self.collection,
            host=self.services.store.host,
            manifest=manifest,
            model=embedder.model if embedder else None,
            version=self.services.versions.get(self.collection),
        )
