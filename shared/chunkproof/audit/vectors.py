"""Stored vectors against the stored text embedded again: the same, or what a check shows of the cause.

A vector that is not its text's is called by a cause only where something shows it: the text embedded as a
question, or cut short, or the manifest's own text gives the stored vector; the payload or the size tells of
another model, or the stored vectors that fail resemble each other as their texts do; it is another chunk's
vector, or closer to some text of the collection than chance allows. Otherwise it is unexplained.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import atanh, fsum, sqrt
from operator import mul

from chunkproof.audit.findings import Finding, Kind
from chunkproof.audit.prepare import Expected, Prepared, point_of
from chunkproof.audit.reader import CALL_MS, Reader
from chunkproof.audit.session import Run
from chunkproof.clients.ports import InputType, Point, Vector, VectorConfig
from chunkproof.deadline import Deadline
from chunkproof.errors import CorruptChunkError, InvalidParameterError, NotConfiguredError, QueryTooLongError
from chunkproof.models.json import display_name
from chunkproof.retrieval.embedding import check_embeddings
from chunkproof.retrieval.services import choose_vector

# The same text again gives the same vector but for rounding: 32-bit storage costs 1e-7, a service's own hardware
# up to 1e-4. One changed word in two hundred costs more than this.
SAME = 0.999
# A cut in the middle of a token is embedded a little differently from a cut between two.
SAME_WHEN_CUT = 0.995
# Cosines of unrelated directions have a spread of 1/sqrt(size). Beyond six times that it is no chance. (The reverse
# shows nothing: texts of one model on different subjects are as far apart as vectors of two models.)
RELATED = 6.0
# Four standard errors of a correlation (Fisher): once in thirty thousand by chance.
CORRELATED = 4.0
REFERENCES = 64
LEAST_REFERENCES = 8
# Where pipelines cut: characters, from the usual limits downwards.
CUTS = (8192, 8000, 4096, 4000, 2048, 2000, 1024, 1000, 512, 500, 256)
BATCH = 96


@dataclass(frozen=True, slots=True)
class _Subject:
    """A stored chunk whose vector is in question, and its text as this model embeds it now."""

    expected: Expected
    point: Point
    text: str
    fresh: Vector | None

    @property
    def chunk_id(self) -> str:
        return self.expected.chunk_id


def check_vectors(run: Run, chosen: Prepared) -> None:
    """Embed the stored texts of the chosen chunks again, and log every vector that is not its text's."""
    check = _Check(run.reader, chosen)
    coming = chosen.read(run.progress.embedded)
    while batch := list(islice(coming, BATCH)):
        verdicts = list(check.of([chunk for _, chunk in batch]))
        for finding in verdicts:
            if finding is not None:
                run.found(finding)
        good = verdicts.count(None)
        run.save(
            embedded=batch[-1][0],
            checked=run.progress.checked + len(batch),
            vectors_ok=run.progress.vectors_ok + good,
        )


class _Check:
    """The embedder, the collection's vector, and some texts of the collection as this model embeds them."""

    def __init__(self, reader: Reader, chosen: Prepared) -> None:
        services = reader.services
        if services.embedder is None:
            raise NotConfiguredError("No embedder is configured: set COHERE_API_KEY")
        self._reader, self._embedder, self._payloads = reader, services.embedder, services.payloads
        description = services.store.describe(reader.collection, Deadline(CALL_MS))
        self._space: VectorConfig = choose_vector(
            description.vectors, services.settings.vector_name, reader.collection
        )
        self._known: dict[str, Vector | None] = {}
        # Always the first of the sample, so that an audit that goes on judges as one that was not interrupted.
        first = [chunk for _, chunk in islice(chosen.read(), REFERENCES)]
        self._references = [s for s in self._read(first) if s.fresh is not None]
        # They are checked as well: no text is embedded twice for it.
        self._known = {s.text: s.fresh for s in self._references}
        self._failing = [s for s in self._references if not _is_its_own(s)]

    def of(self, chunks: Sequence[Expected]) -> Iterator[Finding | None]:
        """What is wrong with the vector of each chunk that is stored; None when it is its text's."""
        return map(self._judged, self._read(chunks))

    def _read(self, chunks: Sequence[Expected]) -> list[_Subject]:
        homes = {chunk.chunk_id: point_of(chunk.key) for chunk in chunks}
        found = self._reader.find(dict(homes), with_vector=self._space.name)
        read: list[tuple[Expected, Point, str]] = []
        for chunk in chunks:
            for point in found.points.get(chunk.chunk_id, [])[:1]:
                try:
                    read.append((chunk, point, self._payloads.embedded_text(point)))
                except CorruptChunkError:
                    continue  # the text is unverifiable, and said to be
        new = list(dict.fromkeys(text for _, _, text in read if text not in self._known))
        vectors = {**self._known, **dict(zip(new, self._embedded(new), strict=True))}
        return [_Subject(*one, vectors[one[2]]) for one in read]

    def _judged(self, subject: _Subject) -> Finding | None:
        stored, fresh = subject.point.vector, subject.fresh
        if stored is None:
            return self._finding(subject, Kind.UNVERIFIABLE_VECTOR, "The point has no such vector", None)
        if fresh is not None and len(fresh) != len(stored):
            sizes = f"{len(stored)} values are stored, {self._embedder.model} makes {len(fresh)}"
            return self._finding(subject, Kind.WRONG_MODEL, sizes, None)
        cosine = None if fresh is None else cosine_of(stored, fresh)
        if cosine is not None and cosine >= SAME:
            return None
        kind, cause = self._cause(subject, stored)
        return self._finding(subject, kind, cause, cosine)

    def _cause(self, subject: _Subject, stored: Vector) -> tuple[Kind, str]:
        checks = [self._as_original, self._as_named, self._cut]
        if subject.fresh is not None:
            checks = [self._as_question, *checks, self._as_other, self._by_structure, self._by_neighbours]
        for check in checks:
            if found := check(subject, stored):
                return found
        if subject.fresh is None:
            return Kind.UNVERIFIABLE_VECTOR, f"The text is longer than {self._embedder.model} reads"
        return Kind.UNEXPLAINED_VECTOR, "It is not the vector of the stored text; no check shows why"

    def _as_question(self, subject: _Subject, stored: Vector) -> tuple[Kind, str] | None:
        vector = self._embedded([subject.text], InputType.QUERY)[0]
        if vector is None or cosine_of(stored, vector) < SAME:
            return None
        return Kind.WRONG_INPUT_TYPE, "Embedded as a question (search_query), not as a passage"

    def _as_original(self, subject: _Subject, stored: Vector) -> tuple[Kind, str] | None:
        original = subject.expected.entry.original_text
        if not original or original == subject.text:
            return None
        vector = self._embedded([original])[0]
        if vector is None or cosine_of(stored, vector) < SAME:
            return None
        return Kind.STALE_VECTOR, "It is the vector of the manifest's text; the stored text was changed later"

    def _as_named(self, subject: _Subject, _stored: Vector) -> tuple[Kind, str] | None:
        named = self._payloads.value("embedding_model", subject.point.payload)
        if not isinstance(named, str) or named == self._embedder.model:
            return None
        return (
            Kind.WRONG_MODEL,
            f"The payload says {display_name(named)}, queries are embedded by {self._embedder.model}",
        )

    def _cut(self, subject: _Subject, stored: Vector) -> tuple[Kind, str] | None:
        text = subject.text
        cuts = [text[:length] for length in CUTS if length < len(text)]
        if subject.fresh is None:
            cuts = [self._longest_that_fits(text), *cuts]
        for part, vector in zip(cuts, self._embedded(cuts), strict=True):
            if (
                vector is not None
                and len(vector) == len(stored)
                and cosine_of(stored, vector) >= SAME_WHEN_CUT
            ):
                return Kind.TRUNCATED_INPUT, f"Embedded from the first {len(part)} of {len(text)} characters"
        return None

    def _as_other(self, subject: _Subject, stored: Vector) -> tuple[Kind, str] | None:
        for other in self._others(subject, self._references):
            if cosine_of(stored, other.fresh or ()) >= SAME:
                return (
                    Kind.STALE_VECTOR,
                    f"It is the vector of another chunk's text: {display_name(other.chunk_id)}",
                )
        return None

    def _by_structure(self, subject: _Subject, stored: Vector) -> tuple[Kind, str] | None:
        """Vectors of another model are far from this one's, yet resemble each other as the texts do."""
        others = [other for other in self._others(subject, self._failing) if other.point.vector]
        if len(others) < LEAST_REFERENCES:
            return None
        among_stored = [cosine_of(stored, other.point.vector or ()) for other in others]
        among_fresh = [cosine_of(subject.fresh or (), other.fresh or ()) for other in others]
        agreement = _correlation(among_stored, among_fresh)
        if atanh(min(agreement, 0.999999)) * sqrt(len(others) - 3) < CORRELATED:
            return None
        return Kind.WRONG_MODEL, (
            f"It resembles the other vectors that {self._embedder.model} does not make, as their texts do "
            f"(correlation {agreement:.2f} over {len(others)})"
        )

    def _by_neighbours(self, subject: _Subject, stored: Vector) -> tuple[Kind, str] | None:
        nearest = max(
            (cosine_of(stored, other.fresh or ()) for other in self._others(subject, self._references)),
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

    def _longest_that_fits(self, text: str) -> str:
        low, high = 0, len(text)
        while high - low > max(1, high // 200):
            middle = (low + high) // 2
            if self._embedded([text[:middle]])[0] is None:
                high = middle
            else:
                low = middle
        return text[:low]

    def _embedded(
        self, texts: Sequence[str], input_type: InputType = InputType.DOCUMENT
    ) -> list[Vector | None]:
        """One vector per text; None for one that is longer than the model reads, or blank."""
        vectors: list[Vector | None] = []
        size = self._embedder.max_batch
        for first in range(0, len(texts), size):
            some = texts[first : first + size]
            try:
                vectors += self._embed(some, input_type)
            except (QueryTooLongError, InvalidParameterError):
                if len(some) == 1:
                    vectors.append(None)
                else:
                    vectors += [self._embedded([text], input_type)[0] for text in some]
        return vectors

    def _embed(self, texts: Sequence[str], input_type: InputType) -> Sequence[Vector]:
        def ask(these: Sequence[str]) -> Sequence[Vector]:
            return check_embeddings(self._embedder.embed(these, input_type, Deadline(CALL_MS)), len(these))

        return self._reader.patiently(ask, texts)

    def _finding(self, subject: _Subject, kind: Kind, details: str, cosine: float | None) -> Finding:
        return Finding(
            chunk_id=subject.chunk_id,
            kind=kind,
            details=details,
            point_ids=(subject.point.id,),
            source=self._payloads.source_of(subject.point.payload),
            cosine=None if cosine is None else round(cosine, 6),
        )


def cosine_of(left: Vector, right: Vector) -> float:
    """Cosine similarity; 0 with a vector of zeros."""
    lengths = sqrt(fsum(map(mul, left, left)) * fsum(map(mul, right, right)))
    return fsum(map(mul, left, right)) / lengths if lengths else 0.0


def _is_its_own(subject: _Subject) -> bool:
    stored, fresh = subject.point.vector, subject.fresh
    return bool(stored and fresh and len(stored) == len(fresh) and cosine_of(stored, fresh) >= SAME)


def _correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Pearson's; 0 where one side does not vary."""
    means = [fsum(side) / len(side) for side in (left, right)]
    x, y = ([value - mean for value in side] for side, mean in zip((left, right), means, strict=True))
    spread = sqrt(fsum(map(mul, x, x)) * fsum(map(mul, y, y)))
    return fsum(map(mul, x, y)) / spread if spread else 0.0
