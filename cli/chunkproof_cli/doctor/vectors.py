"""Check whether the configured embedder made the stored vectors, and name the settings of the one that did."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from chunkproof.clients.known_models import KNOWN_MODELS, KnownModel, find_model
from chunkproof.clients.ports import Embedder, InputType, Point, VectorConfig
from chunkproof.deadline import Deadline
from chunkproof.embedder_config import place_of
from chunkproof.errors import ChunkproofError, CorruptChunkError, EmbeddingSizeError
from chunkproof.models import CollectionInfo
from chunkproof.retrieval.services import Services
from chunkproof.retrieval.vectors import AGREES, SIMILAR, cosine, cosine_with_text
from chunkproof_cli.doctor.content import check_missing_vectors
from chunkproof_cli.doctor.result import CheckResult, Level

COMPARED_CHUNKS = 5
# Where only the size is known, so many models are named.
NAMED_MODELS = 4
PREFIXES = tuple(dict.fromkeys(model.document_prefix for model in KNOWN_MODELS if model.document_prefix))


def check_vectors(
    info: CollectionInfo, points: Sequence[Point], services: Services, deadline: Callable[[], Deadline]
) -> Iterator[CheckResult]:
    """Check whether the configured embedder made the stored vectors, or say why that is unknown."""
    embedder = services.embedder_of(info.name)
    if not points or embedder is None:
        return
    stored = find_stored_models(points, services)
    yield CheckResult(Level.OK, "likely model", describe_likely_model(stored, info.vector_size))
    fix = propose_settings(stored, info.vector_size, info.name, services)
    made = embedder.dimension
    if made is not None and made != info.vector_size:
        sizes = f"{embedder.model} makes {made} values, the collection stores {info.vector_size}"
        yield CheckResult(Level.FAIL, "vectors", f"{sizes}: no search by text works", fix)
        return
    try:
        config = services.vector_config(info.name, deadline())
        yield from check_missing_vectors(info, config.name, services, deadline())
        compared = list(_fetch(info.name, points, config, services, deadline()))
        cosines = [
            found for point in compared if (found := cosine_with_text(point, info.name, services, deadline)) is not None
        ]
    except EmbeddingSizeError as error:
        yield CheckResult(Level.FAIL, "vectors", error.message, fix)
        return
    except ChunkproofError as error:
        yield CheckResult(Level.NOTE, "vectors", f"Not compared: {error.message}")
        return
    if not cosines:
        yield CheckResult(Level.NOTE, "vectors", "Not compared: no sampled chunk has a text that fits the model")
        return
    yield _judge(cosines, embedder.model, fix, _find_prefix(compared, embedder, services, deadline, min(cosines)))


def _judge(cosines: Sequence[float], model: str, fix: str, prefix: str | None) -> CheckResult:
    lowest = min(cosines)
    message = f"{len(cosines)} chunks embedded again with {model}: cosine {lowest:.3f} to {max(cosines):.3f}"
    if lowest >= AGREES:
        return CheckResult(Level.OK, "vectors", f"{message}; the stored vectors agree")
    if prefix is not None:
        level = Level.NOTE if lowest >= SIMILAR else Level.FAIL
        remedy = f"Set CHUNKPROOF_DOCUMENT_PREFIX='{prefix}', and CHUNKPROOF_QUERY_PREFIX to what the model expects"
        return CheckResult(
            level, "vectors", f"{message}; they agree with the prefix '{prefix}' before each text", remedy
        )
    if lowest >= SIMILAR:
        close = "close: probably the same model with other preprocessing or another input type"
        return CheckResult(Level.NOTE, "vectors", f"{message}; {close}")
    other = "the stored vectors come from another model or another text"
    return CheckResult(Level.FAIL, "vectors", f"{message}; {other}", f"{fix}; or embed the collection again")


def find_stored_models(points: Sequence[Point], services: Services) -> list[str]:
    """Return the models that the payloads name."""
    return sorted({str(m) for point in points if (m := services.payloads.value("embedding_model", point.payload))})


def describe_likely_model(stored: Sequence[str], size: int) -> str:
    """Say which model made the vectors: the payload's word for it, else those that make vectors of this size."""
    if stored:
        return " and ".join(stored) + " (from the payload)"
    fitting = _models_of(size)
    named = ", ".join(model.name for model in fitting[:NAMED_MODELS]) or "unknown"
    more = " or another" if len(fitting) > NAMED_MODELS else ""
    return f"{named}{more} (from the vector size)"


def propose_settings(stored: Sequence[str], size: int, collection: str, services: Services) -> str:
    """Say what to set for a collection of this size, whose payloads name these models."""
    is_own = collection in services.embedders
    names = place_of(collection) if is_own else "CHUNKPROOF_EMBEDDER and CHUNKPROOF_MODEL"
    for name in stored:
        known = find_model(name)
        if known and known.makes(size):
            return f"Set {_settings_of(replace(known, name=name), size, names if is_own else None)}"
    if stored:
        return f"Set {names} to the service that has {stored[0]}"
    choices = [_settings_of(model, size, names if is_own else None) for model in _one_per_provider(size)]
    if not choices:
        return f"Set {names} to the model that made the collection"
    return f"Set what made the collection: {'; or '.join(choices)}"


def _settings_of(model: KnownModel, size: int, place: str | None) -> str:
    """Return the settings of a model, as variables or as an entry of `CHUNKPROOF_MODELS`."""
    if place is None:
        return f"{' '.join(model.settings(size))}{_key_of(model)}"
    entry: dict[str, str | int] = {"provider": model.provider}
    if model.provider != "local":
        entry["model"] = model.name
    return f"{place} to {json.dumps(entry | ({'dimension': size} if size != model.sizes[0] else {}))}"


def _models_of(size: int) -> list[KnownModel]:
    """Return the models that offer this size: those whose usual size it is first."""
    fitting = [model for model in KNOWN_MODELS if size in model.sizes]
    return sorted(fitting, key=lambda model: model.sizes[0] != size)


def _one_per_provider(size: int) -> list[KnownModel]:
    first: dict[str, KnownModel] = {}
    for model in _models_of(size):
        first.setdefault(model.provider, model)
    return list(first.values())


def _key_of(model: KnownModel) -> str:
    return {"cohere": " COHERE_API_KEY=…", "openai": " OPENAI_API_KEY=… (or OPENAI_BASE_URL=…)"}.get(model.provider, "")


def _fetch(
    collection: str, points: Sequence[Point], config: VectorConfig, services: Services, deadline: Deadline
) -> Sequence[Point]:
    ids = [point.id for point in points[:COMPARED_CHUNKS]]
    return services.store.fetch(collection, ids, deadline, with_vector=config.name)


def _find_prefix(
    points: Sequence[Point],
    embedder: Embedder,
    services: Services,
    deadline: Callable[[], Deadline],
    lowest: float,
) -> str | None:
    """Return the prefix with which the stored vectors agree; None if they agree without one, or with none."""
    if lowest >= AGREES or getattr(embedder, "document_prefix", None) != "":
        return None
    texts: list[tuple[str, Point]] = []
    for point in points:
        try:
            texts.append((services.payloads.embedded_text(point), point))
        except CorruptChunkError:
            continue
    for prefix in PREFIXES:
        try:
            vectors = embedder.embed([prefix + text for text, _ in texts], InputType.DOCUMENT, deadline())
        except ChunkproofError:
            return None
        if all(cosine(vector, point.vector or ()) >= AGREES for vector, (_, point) in zip(vectors, texts, strict=True)):
            return prefix
    return None
