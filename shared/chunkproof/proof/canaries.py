"""Canaries: fixed texts whose vectors are recorded once and compared with the embedder's vectors of today.

The weights behind a model's name can change: a provider replaces them, a server of one's own loads another file. Stored
vectors and new queries then no longer belong together, and nothing else fails.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from json import dumps
from re import sub
from typing import Literal, Protocol

from pydantic import ValidationError

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.collection.embedding import check_embeddings
from chunkproof.collection.services import Services
from chunkproof.contract import Model
from chunkproof.embedders.embedder_port import Embedder, InputType, query_model
from chunkproof.proof.vector_judge import SAME, cosine

# Vectors count as the same while 1 - cosine is at most this. Other processors, batches and number formats add noise: an
# error of 1 % in each value is 0.00005, rounding to bfloat16 0.000002. Other weights differ by more; measured with
# all-MiniLM-L6-v2: 0.0013 with 7 % of its 8-bit weights one step higher or lower, 0.015 with two thirds of them.
TOLERANCE = round(1 - SAME, 6)
DEADLINE_MS = 60_000
# Digits kept of each value; the cosine changes by less than 1e-14.
DIGITS = 8

# A change of these makes every record void. Ten texts of the kinds that collections hold, in eight languages.
TEXTS = (
    "The pump must be switched off before the filter is opened.",
    "def area(radius): return 3.14159 * radius ** 2  # in square metres",
    "How do I rotate an API key without downtime?",
    "Der Antrag ist bis zum 31. März schriftlich beim Amt einzureichen.",
    "Le vaccin se conserve entre deux et huit degrés, à l'abri de la lumière.",
    "La biblioteca abre de lunes a viernes, de nueve a veinte horas.",
    "水泵启动前请检查阀门是否打开。",
    "会議の議事録は金曜日までに共有してください。",
    "يجب حفظ نسخة احتياطية من قاعدة البيانات كل ليلة.",
    "Поезд прибывает на третью платформу в 18:45.",
)
_TEXTS_DIGEST = sha256(dumps(TEXTS).encode()).hexdigest()

Vectors = dict[str, tuple[tuple[float, ...], ...]]
"""The vectors of the texts, by input type."""
State = Literal["same", "changed", "recorded", "not recorded"]


class Records(Protocol):
    """Where records are kept: a folder of a bucket, or of this machine."""

    def read_if_exists(self, name: str) -> bytes | None:
        """Read a record; None when there is none."""
        ...

    def write(self, name: str, content: str | bytes) -> None:
        """Create or replace a record."""
        ...


class CanaryText(Model):
    """A text whose vector differs by more than the tolerance."""

    number: int
    text: str
    input_type: str
    cosine: float


class Canary(Model):
    """What became of the canaries of one embedder.

    `drift` is 1 - the lowest cosine, and None without a record. `texts` has those over the tolerance, the worst first.
    """

    collections: tuple[str, ...]
    model: str
    query_model: str
    state: State
    dimension: int
    recorded_dimension: int | None = None
    recorded_at: datetime | None = None
    drift: float | None = None
    texts: tuple[CanaryText, ...] = ()


class _Record(Model):
    model: str
    query_model: str
    dimension: int
    recorded_at: datetime
    vectors: Vectors


@dataclass(frozen=True)
class _Subject:
    """An embedder, the collections that use it, and the name of its record."""

    embedder: Embedder
    collections: tuple[str, ...]
    owner: str

    @property
    def record(self) -> str:
        names = (self.embedder.model, query_model(self.embedder), self.owner, _TEXTS_DIGEST)
        readable = sub(r"[^A-Za-z0-9.-]+", "-", self.embedder.model)[:80]
        return f"{readable}-{sha256(dumps(names).encode()).hexdigest()[:16]}.json"


def record_canaries(services: Services, records: Records) -> tuple[Canary, ...]:
    """Embed the texts with every embedder in use, and record their vectors as the right ones."""
    return tuple(_record(subject, _embed(subject.embedder), records) for subject in _subjects(services))


def check_canaries(
    services: Services, records: Records, *, tolerance: float = TOLERANCE, record_missing: bool = False
) -> tuple[Canary, ...]:
    """Embed the texts with every embedder in use, and compare the vectors with the recorded ones.

    With `record_missing`, an embedder without a record gets one.
    """
    return tuple(_check(subject, records, tolerance, record_missing) for subject in _subjects(services))


def _subjects(services: Services) -> Iterator[_Subject]:
    """The embedders of the collections that the settings name; those without one of their own share theirs."""
    settings = services.settings
    named = dict.fromkeys((settings.collection, *settings.allowed_collections, *services.embedders))
    shared = tuple(name for name in named if name not in services.embedders)
    if shared:
        yield _Subject(services.collection(shared[0]).require_embedder(), shared, "")
    for name in services.embedders:
        yield _Subject(services.collection(name).require_embedder(), (name,), name)


def _embed(embedder: Embedder) -> Vectors:
    deadline = Deadline(DEADLINE_MS)
    return {kind.value: tuple(_embed_as(embedder, kind, deadline)) for kind in InputType}


def _embed_as(embedder: Embedder, kind: InputType, deadline: Deadline) -> Iterator[tuple[float, ...]]:
    for start in range(0, len(TEXTS), embedder.max_batch):
        part = TEXTS[start : start + embedder.max_batch]
        for vector in check_embeddings(embedder.embed(part, kind, deadline), len(part)):
            yield tuple(round(float(value), DIGITS) for value in vector)


def _record(subject: _Subject, vectors: Vectors, records: Records) -> Canary:
    made = _Record(
        model=subject.embedder.model,
        query_model=query_model(subject.embedder),
        dimension=_dimension(vectors),
        recorded_at=datetime.now(UTC),
        vectors=vectors,
    )
    records.write(subject.record, made.model_dump_json())
    return _describe(subject, "recorded", made.dimension, made)


def _check(subject: _Subject, records: Records, tolerance: float, record_missing: bool) -> Canary:
    known = _read(subject, records)
    vectors = _embed(subject.embedder)
    if known is None:
        if record_missing:
            return _record(subject, vectors, records)
        return _describe(subject, "not recorded", _dimension(vectors), None)
    found = sorted(_compare(known.vectors, vectors), key=lambda text: text.cosine)
    drift = max(0.0, 1.0 - found[0].cosine)
    texts = tuple(text for text in found if 1.0 - text.cosine > tolerance)
    judged = _describe(subject, "changed" if texts else "same", _dimension(vectors), known)
    return judged.model_copy(update={"drift": drift, "texts": texts})


def _describe(subject: _Subject, state: State, dimension: int, known: _Record | None) -> Canary:
    return Canary(
        collections=subject.collections,
        model=subject.embedder.model,
        query_model=query_model(subject.embedder),
        state=state,
        dimension=dimension,
        recorded_dimension=known.dimension if known else None,
        recorded_at=known.recorded_at if known else None,
    )


def _read(subject: _Subject, records: Records) -> _Record | None:
    content = records.read_if_exists(subject.record)
    if content is None:
        return None
    with suppress(ValidationError):
        known = _Record.model_validate_json(content)
        has_all = all(len(known.vectors.get(kind, ())) == len(TEXTS) for kind in InputType)
        if has_all and all(any(vector) for vectors in known.vectors.values() for vector in vectors):
            return known
    raise InvalidParameterError(f"The record {subject.record} is damaged: write it again with chunkproof canary record")


def _compare(recorded: Vectors, found: Vectors) -> Iterator[CanaryText]:
    for kind, vectors in found.items():
        for number, (before, now) in enumerate(zip(recorded[kind], vectors, strict=True)):
            similarity = min(1.0, cosine(before, now))
            yield CanaryText(number=number + 1, text=TEXTS[number], input_type=kind, cosine=similarity)


def _dimension(vectors: Vectors) -> int:
    return len(next(iter(vectors.values()))[0])
