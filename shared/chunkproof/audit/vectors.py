"""Compare stored vectors with the stored text embedded again, and find out why they differ.

A cause is named only where a check shows it: the text embedded as a question, the text cut short or the text of the
manifest gives the stored vector; the payload or the vector size shows another model, or the vectors that differ
resemble each other as their texts do; it is the vector of another chunk, or closer to some text of the collection
than chance allows. Otherwise the vector is unexplained.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import atanh, fsum, sqrt
from operator import mul
from statistics import median

from chunkproof.audit.findings import Finding, Kind
from chunkproof.audit.prepare import ExpectedChunk, SortedManifest
from chunkproof.audit.reader import CALL_MS, Reader
from chunkproof.audit.session import Run
from chunkproof.clients.known_models import can_compare, is_same_family
from chunkproof.clients.ports import Embedder, InputType, Point, Vector, VectorConfig, query_model
from chunkproof.deadline import Deadline
from chunkproof.errors import CorruptChunkError, InvalidParameterError, QueryTooLongError
from chunkproof.models.json import display_name
from chunkproof.retrieval.embedding import check_embeddings
from chunkproof.retrieval.lookup import Lookup
from chunkproof.retrieval.services import choose_vector
from chunkproof.retrieval.vectors import AGREES, SAME, cosine

# Lower than `SAME`: a text cut inside a token is embedded a little differently from one cut between two tokens.
SAME_WHEN_CUT = 0.995
# Cosines of unrelated directions have a standard deviation of 1/sqrt(size); six of them are no coincidence. (A lower
# cosine shows nothing: texts of one model on different subjects are as far apart as vectors of two models.)
RELATED = 6.0
# Four standard errors of a correlation (Fisher): once in thirty thousand by chance.
CORRELATED = 4.0
MAX_REFERENCES = 64
MIN_REFERENCES = 8
# The lengths that pipelines cut texts to, in characters.
CUTS = (8192, 8000, 4096, 4000, 2048, 2000, 1024, 1000, 512, 500, 256)
BATCH = 96
# Stored in few bits, and without the original vectors: cosines to them are 0.993 and more.
LOSSY_QUANTIZATION = "turbo"
MOST = 0.9


@dataclass(frozen=True, slots=True)
class _Subject:
    """A stored chunk whose vector is checked; `fresh` is the embedding of its text, None if it cannot be embedded."""

    expected: ExpectedChunk
    point: Point
    text: str
    fresh: Vector | None

    @property
    def chunk_id(self) -> str:
        return self.expected.chunk_id

    @property
    def cosine(self) -> float | None:
        """Cosine of the stored vector and the fresh one; None when there are not two."""
        stored, fresh = self.point.vector, self.fresh
        return None if stored is None or fresh is None else cosine(stored, fresh)


def check_vectors(run: Run, sample: SortedManifest) -> None:
    """Embed the stored texts of the sample again, and log every vector that does not fit its text."""
    check = _Check(run.reader, sample)
    chunks = sample.read(run.progress.vector_offset)
    while batch := list(islice(chunks, BATCH)):
        results = check.judge_all([chunk for _, chunk in batch])
        for finding in results:
            if finding is not None:
                run.log_finding(finding)
        run.save(
            vector_offset=batch[-1][0],
            vectors_checked=run.progress.vectors_checked + len(batch),
            vectors_ok=run.progress.vectors_ok + results.count(None),
            same_from=check.same_from,
        )


class _Check:
    """The embedder, the vector config of the collection, and reference texts of it embedded again."""

    def __init__(self, reader: Reader, sample: SortedManifest) -> None:
        services = reader.services
        self._reader, self._payloads = reader, services.payloads
        self._embedder = services.require_embedder(reader.collection)
        description = services.store.describe(reader.collection, Deadline(CALL_MS))
        self._config: VectorConfig = choose_vector(
            description.vectors, services.settings.vector_name, reader.collection
        )
        self._embedded_before: dict[tuple[str, str], Vector | None] = {}
        self._variants: dict[str, Embedder] = {}
        # Always the first ones, so that a resumed audit has the same references as an uninterrupted one.
        first = [chunk for _, chunk in islice(sample.read(), MAX_REFERENCES)]
        self._references = [subject for subject in self._read(first) if subject.fresh is not None]
        # They are in the sample themselves: no text is embedded twice for it.
        self._embedded_before = {
            (self._embedder_of(subject.point).model, subject.text): subject.fresh for subject in self._references
        }
        is_lossy = self._config.is_lossy or description.quantization == LOSSY_QUANTIZATION
        self.same_from = AGREES if is_lossy else _find_precision([one.cosine or 0.0 for one in self._references])
        self._failing = [subject for subject in self._references if (subject.cosine or 0.0) < self.same_from]

    def judge_all(self, chunks: Sequence[ExpectedChunk]) -> list[Finding | None]:
        """Judge the vector of each chunk that is stored; None where it fits its text."""
        return [self._judge(subject) for subject in self._read(chunks)]

    def _read(self, chunks: Sequence[ExpectedChunk]) -> list[_Subject]:
        point_ids = {chunk.chunk_id: chunk.point_id for chunk in chunks if not chunk.moved}
        found = self._reader.find(point_ids, with_vector=self._config.name) if point_ids else Lookup({})
        moved = self._reader.fetch([chunk.point_id for chunk in chunks if chunk.moved], self._config.name)
        read: list[tuple[ExpectedChunk, Point, str]] = []
        for chunk in chunks:
            points = found.points.get(chunk.chunk_id, [])[:1]
            if chunk.moved:
                points = [moved[chunk.point_id]] if chunk.point_id in moved else []
            for point in points:
                try:
                    read.append((chunk, point, self._payloads.embedded_text(point)))
                except CorruptChunkError:
                    continue  # the text has a finding of its own
        vectors = dict(self._embedded_before)
        wanted = [(self._embedder_of(point), text) for _, point, text in read]
        for embedder in {embedder.model: embedder for embedder, _ in wanted}.values():
            own = dict.fromkeys(text for other, text in wanted if other.model == embedder.model)
            new = [text for text in own if (embedder.model, text) not in vectors]
            keys = [(embedder.model, text) for text in new]
            vectors |= zip(keys, self._embed_all(new, embedder=embedder), strict=True)
        return [
            _Subject(*one, vectors[embedder.model, text]) for one, (embedder, text) in zip(read, wanted, strict=True)
        ]

    def _embedder_of(self, point: Point) -> Embedder:
        """Return the embedder of a point: where its payload names another model of the same space, one with that."""
        named = self._payloads.value("embedding_model", point.payload)
        own, make = self._embedder, getattr(self._embedder, "with_model", None)
        if not isinstance(named, str) or make is None or not is_same_family(named, own.model):
            return own
        if named not in self._variants:
            self._variants[named] = make(named)
        return self._variants[named]

    def _judge(self, subject: _Subject) -> Finding | None:
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

    def _find_cause(self, subject: _Subject, stored: Vector) -> tuple[Kind, str]:
        checks = [self._check_original, self._check_named_model, self._check_cuts]
        if subject.fresh is not None:
            among_chunks = [self._check_other_chunks, self._check_structure, self._check_neighbours]
            checks = [self._check_as_question, *checks, *among_chunks]
        for check in checks:
            if found := check(subject, stored):
                return found
        if subject.fresh is None:
            return Kind.UNVERIFIABLE_VECTOR, f"The text is longer than {self._embedder.model} accepts"
        return Kind.UNEXPLAINED_VECTOR, "It is not the vector of the stored text; no check shows why"

    def _check_as_question(self, subject: _Subject, stored: Vector) -> tuple[Kind, str] | None:
        vector = self._embed_all([subject.text], InputType.QUERY)[0]
        if vector is None or cosine(stored, vector) < self.same_from:
            return None
        model = query_model(self._embedder)
        by = "" if model == self._embedder.model else f" by {model}"
        return Kind.WRONG_INPUT_TYPE, f"Embedded as a question (search_query){by}, not as a passage"

    def _check_original(self, subject: _Subject, stored: Vector) -> tuple[Kind, str] | None:
        original = subject.expected.entry.original_text
        if not original or original == subject.text:
            return None
        vector = self._embed_all([original], embedder=self._embedder_of(subject.point))[0]
        if vector is None or cosine(stored, vector) < self.same_from:
            return None
        return Kind.STALE_VECTOR, "It is the vector of the manifest's text; the stored text was changed later"

    def _check_named_model(self, subject: _Subject, _stored: Vector) -> tuple[Kind, str] | None:
        named = self._payloads.value("embedding_model", subject.point.payload)
        if not isinstance(named, str) or can_compare(self._embedder, named):
            return None
        return (
            Kind.WRONG_MODEL,
            f"The payload says {display_name(named)}, queries are embedded by {query_model(self._embedder)}",
        )

    def _check_cuts(self, subject: _Subject, stored: Vector) -> tuple[Kind, str] | None:
        text = subject.text
        cuts = [text[:length] for length in CUTS if length < len(text)]
        if subject.fresh is None:
            cuts = [self._cut_to_fit(text), *cuts]
        for part, vector in zip(cuts, self._embed_all(cuts), strict=True):
            if vector is not None and cosine(stored, vector) >= min(SAME_WHEN_CUT, self.same_from):
                return Kind.TRUNCATED_INPUT, f"Embedded from the first {len(part)} of {len(text)} characters"
        return None

    def _check_other_chunks(self, subject: _Subject, stored: Vector) -> tuple[Kind, str] | None:
        for other in self._others(subject, self._references):
            if cosine(stored, other.fresh or ()) >= self.same_from:
                return (
                    Kind.STALE_VECTOR,
                    f"It is the vector of another chunk's text: {display_name(other.chunk_id)}",
                )
        return None

    def _check_structure(self, subject: _Subject, stored: Vector) -> tuple[Kind, str] | None:
        """Vectors of another model are far from those of this one, yet resemble each other as their texts do."""
        others = [other for other in self._others(subject, self._failing) if other.point.vector]
        if len(others) < MIN_REFERENCES:
            return None
        among_stored = [cosine(stored, other.point.vector or ()) for other in others]
        among_fresh = [cosine(subject.fresh or (), other.fresh or ()) for other in others]
        agreement = _correlation(among_stored, among_fresh)
        if atanh(min(agreement, 0.999999)) * sqrt(len(others) - 3) < CORRELATED:
            return None
        return Kind.WRONG_MODEL, (
            f"It resembles the other vectors that {self._embedder.model} does not make, as their texts do "
            f"(correlation {agreement:.2f} over {len(others)})"
        )

    def _check_neighbours(self, subject: _Subject, stored: Vector) -> tuple[Kind, str] | None:
        nearest = max(
            (cosine(stored, other.fresh or ()) for other in self._others(subject, self._references)),
            default=0.0,
        )
        if nearest < RELATED / sqrt(len(stored)):
            return None
        return Kind.STALE_VECTOR, (
            f"It is this model's vector of some other text (cosine {nearest:.3f} with a chunk of the sample)"
        )

    @staticmethod
    def _others(subject: _Subject, among: Sequence[_Subject]) -> list[_Subject]:
        return [other for other in among if other.chunk_id != subject.chunk_id]

    def _cut_to_fit(self, text: str) -> str:
        low, high = 0, len(text)
        while high - low > max(1, high // 200):
            middle = (low + high) // 2
            if self._embed_all([text[:middle]])[0] is None:
                high = middle
            else:
                low = middle
        return text[:low]

    def _embed_all(
        self, texts: Sequence[str], input_type: InputType = InputType.DOCUMENT, embedder: Embedder | None = None
    ) -> list[Vector | None]:
        """Embed the texts; None for one that is blank or longer than the model accepts."""
        embedder = embedder or self._embedder
        vectors: list[Vector | None] = []
        size = embedder.max_batch
        for first in range(0, len(texts), size):
            some = texts[first : first + size]
            try:
                vectors += self._embed_batch(some, input_type, embedder)
            except (QueryTooLongError, InvalidParameterError):
                if len(some) == 1:
                    vectors.append(None)
                else:
                    vectors += [self._embed_all([text], input_type, embedder)[0] for text in some]
        return vectors

    def _embed_batch(self, texts: Sequence[str], input_type: InputType, embedder: Embedder) -> Sequence[Vector]:
        def embed(these: Sequence[str]) -> Sequence[Vector]:
            return check_embeddings(embedder.embed(these, input_type, Deadline(CALL_MS)), len(these))

        return self._reader.retry(embed, texts)

    def _finding(self, subject: _Subject, kind: Kind, details: str, similarity: float | None) -> Finding:
        return Finding(
            chunk_id=subject.chunk_id,
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


def _correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Return Pearson's correlation; 0 where one side does not vary."""
    means = [fsum(side) / len(side) for side in (left, right)]
    x, y = ([value - mean for value in side] for side, mean in zip((left, right), means, strict=True))
    spread = sqrt(fsum(map(mul, x, x)) * fsum(map(mul, y, y)))
    return fsum(map(mul, x, y)) / spread if spread else 0.0
