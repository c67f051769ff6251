"""Check whether the configured embedder made the stored vectors, and name the settings of the one that did."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, groupby, permutations
from operator import itemgetter
from random import Random
from statistics import median
from typing import Any

from chunkproof.base.embedder_config import place_of
from chunkproof.base.errors import ChunkproofError, EmbeddingSizeError
from chunkproof.collection.payload_map import PayloadMap
from chunkproof.collection.services import Collection
from chunkproof.contract.conditions import HasVector, Not
from chunkproof.embedders.embedder_port import InputType
from chunkproof.embedders.known_models import KNOWN_MODELS, KnownModel, find_model
from chunkproof.proof.vector_judge import AGREES, SAME, SIMILAR, EmbeddedTexts, VectorJudge, cosine
from chunkproof.stores.store_port import Description, Point, PointId, VectorConfig
from chunkproof_cli.doctor.doctor_report import CheckResult, fail, note, ok

# So many points show which prefix was used, and which field holds the text of a vector.
PREFIX_CHUNKS, PROBED = 5, 4
# So many fields are tried at once, and of so many, every two together.
TRIED_FIELDS, JOINED_FIELDS = 8, 4
# Where only the size is known, so many models are named.
NAMED_POINTS, NAMED_MODELS = 10, 4
PREFIXES = tuple(dict.fromkeys(model.document_prefix for model in KNOWN_MODELS if model.document_prefix))
KEYS = {"cohere": " COHERE_API_KEY=…", "openai": " OPENAI_API_KEY=… (or OPENAI_BASE_URL=…)"}


def check_vectors(
    config: VectorConfig | None, description: Description, ids: Sequence[PointId], collection: Collection
) -> Iterator[CheckResult]:
    """Check whether all vectors are stored, and whether the embedder made those of `config`, or say why not."""
    embedder, services = collection.embedder, collection.services
    names = [*(vector.name for vector in description.vectors), *description.sparse_vectors]
    for name in names if ids else ():
        yield from _check_missing_vectors(name, config, description, collection)
    if not ids or embedder is None or config is None:
        return
    try:
        points = collection.fetch(ids, with_vector=config.name)
    except ChunkproofError as error:
        yield note("vectors", f"Not compared: {error.message}")
        return
    # The models that the payloads name, and else those that make vectors of this size: the usual size first.
    stored = sorted({str(m) for point in points if (m := services.payloads.value("embedding_model", point.payload))})
    fitting = sorted((m for m in KNOWN_MODELS if config.size in m.sizes), key=lambda m: m.sizes[0] != config.size)
    yield ok("likely model", _describe_likely_model(stored, fitting))
    fix = _propose_settings(stored, fitting, config.size, collection)
    if embedder.dimension not in (None, config.size):
        sizes = f"{embedder.model} makes {embedder.dimension} values, the collection stores {config.size}"
        yield fail("vectors", f"{sizes}: no search by text works", fix)
        return
    judge = VectorJudge(embedder, services.payloads, EmbeddedTexts(collection), lambda: points)
    try:
        pairs = [(point, fresh) for point, fresh in judge.embed_again(points) if point.vector]
    except ChunkproofError as error:
        yield note("vectors", f"Not compared: {error.message}")
        return
    cosines = {point.id: cosine(point.vector or (), fresh) for point, fresh in pairs}
    if wrong := {len(fresh) for _, fresh in pairs} - {config.size}:
        facts = (embedder.model, min(wrong), collection.name, config.size, collection.model_setting)
        yield fail("vectors", EmbeddingSizeError(*facts).message, fix)
    elif cosines:
        prefix = None if judge.usual >= AGREES else _find_prefix([point for point, _ in pairs][:PREFIX_CHUNKS], judge)
        fitting = [model for model in fitting if model.name != embedder.model]
        yield _judge(cosines, judge, _propose_settings(stored, fitting, config.size, collection), prefix)
    elif any(map(services.payloads.find_text, points)):
        yield note("vectors", "Not compared: no sampled chunk has a vector, and a text that fits the model")


def spread(items: Sequence[Any], count: int) -> list[Any]:
    """Return so many items from all over, the same at each run; not every n-th: chunks of pages come in turns."""
    chosen = Random(0).sample(range(len(items)), min(count, len(items)))  # noqa: S311 - not a secret
    return [items[n] for n in sorted(chosen)]


def choose_reading(
    collection: Collection, points: Sequence[Point], vectors: Sequence[VectorConfig], paths: Sequence[str]
) -> tuple[float, VectorConfig, str] | None:
    """Return how well which vector agrees with which field: the best, or the first of the fields that surely do."""
    found = [*_compare(collection, points, vectors, [(path,) for path in paths[:TRIED_FIELDS]])]
    best = [max(of_vector, key=itemgetter(0)) for _, of_vector in groupby(found, key=lambda each: each[1].name)]
    # Of all that surely agree, the first field.
    order = {path: -number for number, path in enumerate(paths)}
    chosen = max(best, default=None, key=lambda each: (min(each[0], AGREES), order[each[2][0]], each[0]))
    if chosen and chosen[0] > SIMILAR:
        return chosen[0], chosen[1], chosen[2][0]
    rest = paths[TRIED_FIELDS:]
    return choose_reading(collection, points, vectors, rest) if rest else None


def find_joined(
    collection: Collection, points: Sequence[Point], vectors: Sequence[VectorConfig], paths: Sequence[str], alone: float
) -> tuple[str, ...]:
    """Return the fields whose texts, one after the other, agree far better than one alone; nothing if none do."""
    if alone >= SAME or len(paths) < 2:
        return ()
    few = paths[:JOINED_FIELDS]
    joined = (*permutations(few, 2), *combinations(sorted(few), 3), tuple(sorted(paths)))
    found = _compare(collection, points, vectors, joined)
    agreement, _, best = max(found, default=(0.0, None, ()), key=itemgetter(0))
    return best if agreement >= max(SIMILAR, (1 + 2 * alone) / 3) else ()


def _compare(
    collection: Collection, points: Sequence[Point], vectors: Sequence[VectorConfig], fields: Sequence[tuple[str, ...]]
) -> Iterator[tuple[float, VectorConfig, tuple[str, ...]]]:
    """Yield the median cosine of a few vectors with the texts of fields, for all that the embedder may have made."""
    embedder = collection.embedder
    ids = [point.id for point in spread(points, PROBED)]
    for vector in vectors:
        with suppress(ChunkproofError):
            fits = embedder is not None and embedder.dimension in (None, vector.size)
            probed = [each for each in collection.fetch(ids, with_vector=vector.name) if each.vector] if fits else []
            for paths in fields if probed else ():
                maps = [PayloadMap({"text": (path,)}) for path in paths]
                read = [[each.embedded_text(p) for each in maps if each.find_text(p)] for p in probed]
                pairs = [(p, "\n".join(texts)) for p, texts in zip(probed, read, strict=True) if texts]
                fresh = collection.embed([text for _, text in pairs], InputType.DOCUMENT, embedder)
                cosines = [cosine(p.vector or (), made) for (p, _), made in zip(pairs, fresh, strict=True) if made]
                yield round(median(cosines), 5) if cosines else 0.0, vector, paths


def _check_missing_vectors(
    name: str, config: VectorConfig | None, description: Description, collection: Collection
) -> Iterator[CheckResult]:
    """Count the points that a search of this vector cannot find, because they have none."""
    missing = 0
    with suppress(ChunkproofError):  # of a server before 1.13
        missing = collection.count((Not((HasVector(name),)),))
    if missing:
        condition = f'Filter(must_not=[HasVectorCondition(has_vector="{name}")])'
        is_searched = config is not None and name == config.name
        which = "" if is_searched else f" {name or '(unnamed)'}"
        yield (fail if is_searched and missing * 10 >= description.points_count else note)(
            "points without vectors" if is_searched else "other vectors",
            f"{missing:,} of {description.points_count:,} points have no vector{which}, so no search "
            f"{'' if is_searched else 'of it '}finds them",
            f'List them: client.scroll("{collection.name}", scroll_filter={condition}); '
            "then embed and upsert them again",
            1 - missing / max(1, description.points_count),
        )


def _judge(cosines: Mapping[PointId, float], judge: VectorJudge, fix: str, prefix: str | None) -> CheckResult:
    lowest, model = min(cosines.values()), judge.embedder.model if judge.embedder else ""
    belong = sum(cosine >= AGREES for cosine in cosines.values()) / len(cosines)
    message = f"{len(cosines)} chunks embedded again with {model}: cosine {lowest:.3f} to {max(cosines.values()):.3f}"
    if lowest >= AGREES:
        return ok("vectors", f"{message}; the stored vectors agree")
    if prefix is not None:
        remedy = f"Set CHUNKPROOF_DOCUMENT_PREFIX='{prefix}', and CHUNKPROOF_QUERY_PREFIX to what the model expects"
        agree = f"{message}; they agree with the prefix '{prefix}' before each text"
        return (note if lowest >= SIMILAR else fail)("vectors", agree, remedy, belong)
    others = [str(point_id) for point_id, similarity in cosines.items() if similarity < AGREES]
    if len(others) * 2 < len(cosines) and (lowest < SIMILAR or max(cosines.values()) >= SAME):
        more = f" and {len(others) - NAMED_POINTS} more" if len(others) > NAMED_POINTS else ""
        named = f"{len(cosines) - len(others)} agree, not {', '.join(others[:NAMED_POINTS])}{more}"
        remedy = "Embed these again; chunkproof audit MANIFEST --vectors checks every point"
        return (note if lowest >= SIMILAR else fail)("vectors", f"{message}; {named}", remedy, belong)
    if lowest >= SIMILAR:
        close = "close: the same model, probably with a title or the like beside the text, or with another input type"
        return note("vectors", f"{message}; {close}", share=belong)
    if judge.origins.is_of_this_model:
        other = "this model made the stored vectors, of other texts: parts, other chunks, or with a title or prefix"
        return fail("vectors", f"{message}; {other}", "Embed the stored texts again, or store what was embedded")
    other = f"come from another model{'' if judge.origins.other_model else ' or another text'}"
    other = other if any(cosines.values()) else "are all zeros"
    return fail("vectors", f"{message}; the stored vectors {other}", f"{fix}; or embed the collection again")


def _describe_likely_model(stored: Sequence[str], fitting: Sequence[KnownModel]) -> str:
    """Say which model made the vectors: the payload's word for it, else those that make vectors of this size."""
    if stored:
        return " and ".join(stored) + " (from the payload)"
    named = ", ".join(model.name for model in fitting[:NAMED_MODELS]) or "unknown"
    more = " or another" if len(fitting) > NAMED_MODELS else ""
    return f"{named}{more} (from the vector size)"


def _propose_settings(stored: Sequence[str], fitting: Sequence[KnownModel], size: int, collection: Collection) -> str:
    """Say what to set for a collection whose payloads name these models, and whose size others fit."""
    place = place_of(collection.name) if collection.name in collection.services.embedders else None
    names = place or "CHUNKPROOF_EMBEDDER and CHUNKPROOF_MODEL"

    def describe(model: KnownModel) -> str:
        """Return the settings of a model, as variables or as an entry of `CHUNKPROOF_MODELS`."""
        if place is None:
            return f"{' '.join(model.settings(size))}{KEYS.get(model.provider, '')}"
        entry: dict[str, str | int] = {"provider": model.provider}
        if model.provider != "local":
            entry["model"] = model.name
        return f"{place} to {json.dumps(entry | ({'dimension': size} if size != model.sizes[0] else {}))}"

    for name in stored:
        known = find_model(name)
        if known and known.makes(size):
            return f"Set {describe(replace(known, name=name))}"
    if stored:
        return f"Set {names} to the service that has {stored[0]}"
    if not fitting:
        return f"Set {names} to the model that made the collection"
    of_provider = {model.provider: model for model in reversed(fitting)}
    one_each = [model for model in fitting if of_provider[model.provider] is model]
    return f"Set what made the collection: {'; or '.join(map(describe, one_each))}"


def _find_prefix(points: Sequence[Point], judge: VectorJudge) -> str | None:
    """Return the prefix with which the stored vectors agree; None if there is none."""
    if getattr(judge.embedder, "document_prefix", None) != "":
        return None
    with suppress(ChunkproofError):
        for prefix in PREFIXES:
            again = judge.embed_again(points, prefix)
            if again and all(cosine(fresh, point.vector or ()) >= AGREES for point, fresh in again):
                return prefix
    return None
