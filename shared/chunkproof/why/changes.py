"""The changes that `why` tries, and what in the store or the snapshot each of them rests on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from chunkproof.audit.snapshot_file import filterable_fields
from chunkproof.base.errors import IndexRequiredError
from chunkproof.collection.payload_map import flatten
from chunkproof.contract.conditions import AnyOf, Between, Either
from chunkproof.contract.model import display_name
from chunkproof.contract.query import SearchQuery
from chunkproof.contract.query_options import Mode
from chunkproof.proof.vector_judge import Origin
from chunkproof.stores.store_port import Point
from chunkproof.why.causes import Cause
from chunkproof.why.replay import Replay, Scenario, meets, name_condition
from chunkproof.why.target import TargetChunk

# Fields of similar names, such as lang and language.
SIMILAR_NAMES = 0.6
ANY_DEPTH = 1_000_000
# Of more filters, only those are tried that exclude an expected chunk.
MOST_FILTERS = 8


@dataclass(frozen=True)
class Change:
    """One change; `undoes` is the cause that it proves if it brings the chunk back.

    Without `undoes` it is shown for information: nothing shows that what it changes is wrong. `updates` are fields of
    the scenario. Changes are in the order of preference: what puts right a damage comes before what makes the search
    wider.
    """

    label: str
    undoes: Cause | None
    updates: Mapping[str, Any]
    evidence: str | None = None
    # The filter that it is about; for a renamed field, the field's other name.
    filter: int | None = None
    other_field: str | None = None
    is_for_all: bool = False

    def apply(self, scenario: Scenario) -> Scenario:
        """Return the scenario with this change, beside those that were made before."""
        updates = dict(self.updates)
        if "filters" in updates:
            updates["filters"] = tuple(updates["filters"].get(n, c) for n, c in enumerate(scenario.filters))
        if "mended" in updates:
            updates["mended"] |= scenario.mended
        if "overrides" in updates:
            updates["overrides"] = (*scenario.overrides, *updates["overrides"].items())
        return replace(scenario, **updates)


# What is left when nothing else helps: more results.
MORE_RESULTS = Change("with a larger top_k", Cause.BEYOND_TOP_K, {"top_k": ANY_DEPTH})


def list_changes(replay: Replay) -> Iterator[Change]:
    """Yield every change that applies, in the order of preference."""
    present, stored = replay.present, replay.target.stored
    yield from _put_back(replay)
    yield from _restore_text(replay)
    for number, space in enumerate(replay.rankings.spaces):
        if number:
            label = f"with every text embedded anew by {space.name}" if space.is_anew else f"asked with {space.name}"
            yield Change(label, replay.foreign_cause, {"space": number}, is_for_all=True)
    if not replay.is_by_words:
        yield from _embed_anew(replay)
    if replay.lacking_words:
        lacks = f"its BM25 vector lacks {', '.join(map(display_name, replay.lacking_words[:3]))}"
        yield Change("with its BM25 vector made anew", Cause.STALE_VECTOR, {"rewritten": True}, lacks)
    if stored and not any(chunk.text for _, chunk in stored):
        yield Change("with a text that can be read", Cause.UNREADABLE, {"readable": True})
    yield from _mend_fields(replay)
    for number, condition in enumerate(replay.query.filters):
        if len(present.filters) > MOST_FILTERS and all(
            replay.passes(chunk, (condition,)) for chunk in replay.target.chunks
        ):
            continue  # a chunk that passes it is not lost by it
        label = f"without the filter on {name_condition(condition)}"
        yield Change(label, Cause.FILTERED_OUT, {"filters": {number: None}}, filter=number)
    if len(present.filters) > 3:
        yield Change("without any filter", Cause.FILTERED_OUT, {"filters": dict.fromkeys(range(len(present.filters)))})
    quantization = replay.collection.describe().quantization
    if replay.collection.is_indexed and replay.rankings.is_exact and not replay.is_by_words:
        evidence = f"vectors are compared in {quantization} quantization" if quantization else None
        yield Change("with an exact search", Cause.MISSED_BY_INDEX, {"exact": True}, evidence)
    yield Change("with near-duplicates collapsed", Cause.DUPLICATES, {"collapsed": True})
    if present.threshold > 0.0:
        yield Change("without the threshold", Cause.BELOW_THRESHOLD, {"threshold": 0.0})
    if any(chunk.former_vector is not None for _, chunk in stored) and not replay.is_by_words:
        # What changed the vector is found by the other changes.
        yield Change("with its former vector", None, {"former_vector": True})
    yield from _change_selection(replay.query)


def _change_selection(query: SearchQuery) -> Iterator[Change]:
    """Yield the search without what it adds to a ranking: the check of texts, reranking, groups, diversity."""
    if query.require_integrity:
        evidence = "require_integrity leaves it out: it is not the text that was hashed"
        without: dict[str, Any] = {"overrides": {"require_integrity": False}}
        yield Change("without require_integrity", Cause.TEXT_CHANGED, without, evidence)
    if query.rerank:
        yield Change("without reranking", Cause.RERANKED, {"overrides": {"rerank": False}})
    if query.group_by is not None:
        without = {"overrides": {"group_by": None, "group_size": None}}
        yield Change(f"without grouping by {query.group_by}", Cause.LEFT_OUT, without)
    if query.diversity is not None:
        yield Change("without diversity", Cause.LEFT_OUT, {"overrides": {"diversity": None}})
    if query.fusion is not None and query.fusion.weights is not None:
        yield Change("without the weights of the fusion", Cause.OTHER_LEG, {"overrides": {"fusion": None}})


def change_mode(query: SearchQuery) -> Iterator[Change]:
    """Yield the search in each other mode: by meaning, by words, by both."""
    labels = {Mode.DENSE: "by meaning alone", Mode.TEXT: "by words alone", Mode.HYBRID: "by meaning and words"}
    for mode, label in labels.items():
        if mode is not (query.mode or Mode.DENSE):
            overrides = {"mode": mode, "fusion": None, "diversity": None, "params": None}
            yield Change(f"{label} (mode {mode})", Cause.OTHER_LEG, {"overrides": overrides})


def _put_back(replay: Replay) -> Iterator[Change]:
    gone = [chunk for chunk in replay.target.chunks if chunk.point is None]
    # Where its text is now explains more than that it is gone.
    gone.sort(key=lambda chunk: (not chunk.parts, not chunk.twin))
    updates = {"put_back": True}
    for chunk in gone[:1]:
        if chunk.parts:
            yield _join(chunk, updates, replay)
        elif chunk.twin is not None:
            name = replay.collection.payloads.id_of(chunk.twin)
            yield Change("with it under its former id", Cause.ID_CHANGED, updates, f"it is {display_name(name)}")
        elif chunk.former is not None:
            yield Change("with it put back from the snapshot", Cause.DELETED, updates)
        else:
            yield Change("if it were stored", Cause.NOT_IN_COLLECTION, updates)


def _join(chunk: TargetChunk, updates: Mapping[str, Any], replay: Replay) -> Change:
    payloads = replay.collection.payloads
    names = ", ".join(payloads.id_of(part) for part in chunk.parts[:3]) + (", …" if len(chunk.parts) > 3 else "")
    evidence = f"its text is in {names} now"
    return Change("with its text in one chunk, as before", Cause.SPLIT_DIFFERENTLY, updates, evidence)


def _restore_text(replay: Replay) -> Iterator[Change]:
    changed = [chunk for chunk in replay.target.chunks if chunk.has_changed_text and chunk.former_text is not None]
    changed.sort(key=lambda chunk: not chunk.parts)
    updates = {"former_text": True}
    for chunk in changed[:1]:
        former = Change("with its former text", Cause.TEXT_CHANGED, updates)
        yield _join(chunk, updates, replay) if chunk.parts else former


def _embed_anew(replay: Replay) -> Iterator[Change]:
    is_foreign, stored = replay.is_foreign, replay.target.stored
    if not stored or replay.collection.embedder is None:
        return
    judged = [replay.fits[point.id] for point, _ in stored if point.id in replay.fits]
    stale = [fit for fit in judged if fit.is_stale]
    cause: Cause | None = None
    if stale and not (is_foreign and len(replay.rankings.spaces) == 1):
        is_other = all(fit.origin is Origin.ANOTHER_MODEL for fit in stale)
        cause = Cause.OTHER_MODEL if is_other else Cause.STALE_VECTOR
    cosines = [fit.cosine for fit in judged if fit.cosine is not None]
    evidence = f"cosine {min(cosines):.2f} with its text, others {judged[0].usual:.2f}" if cosines else None
    evidence = evidence or (stale[0].evidence or "there is none, or one of zeros" if stale else None)
    if cause is Cause.OTHER_MODEL:
        evidence = f"{evidence}; {stale[0].evidence}"
    # In a collection of another model, the text alone embedded by this one proves nothing.
    if not is_foreign or cause is not None:
        yield Change("with its text embedded anew", cause, {"fresh": True}, evidence)


def _mend_fields(replay: Replay) -> Iterator[Change]:
    """Look for fields that have another name, or another value, than the filter and the snapshot have."""
    for number, condition in enumerate(replay.query.filters):
        if not isinstance(condition, AnyOf | Between):
            continue
        for point, chunk in replay.target.stored:
            if replay.rankings.allows((condition,), point.id):
                continue
            if other := _find_renamed(condition, point, chunk, replay):
                yield Change(
                    f"with {condition.field} under its former name",
                    Cause.FIELD_RENAMED,
                    _filter_by_either(number, condition, other, replay),
                    f"{condition.field} is {other} now",
                    filter=number,
                    other_field=other,
                )
                break
            if chunk.former and meets(chunk.former.payload, replay.rankings.map((condition,))):
                value = chunk.former.payload.get(condition.field)
                yield Change(
                    f"with {condition.field} as in the snapshot",
                    Cause.VALUE_CHANGED,
                    {"mended": frozenset((number,))},
                    None if value is None else f"it was {display_name(str(value))}",
                    filter=number,
                )
                break


def _filter_by_either(number: int, condition: AnyOf | Between, other: str, replay: Replay) -> Mapping[str, Any]:
    """Filter by both names, as other chunks may have either; without an index on the new one, let the chunk pass."""
    either = Either((condition, replace(condition, field=other)))
    try:
        replay.collection.count(replay.rankings.map((either,)))
    except IndexRequiredError:
        return {"mended": frozenset((number,))}
    return {"filters": {number: either}}


def _find_renamed(condition: AnyOf | Between, point: Point, chunk: TargetChunk, replay: Replay) -> str | None:
    """Return the field that holds what the filter asks for, where the chunk has no value under the filter's name."""
    if replay.collection.payloads.stated(condition.field, point.payload) is not None:
        return None
    former = chunk.former.payload if chunk.former else None
    if former is not None and not meets(former, replay.rankings.map((condition,))):
        return None  # it never met this filter
    # Another field has such a value by no coincidence; a short number or a flag may be anything.
    is_distinctive = isinstance(condition, AnyOf) and all(isinstance(v, str) and len(v) > 1 for v in condition.values)
    for name, value in sorted(flatten(point.payload)):
        other = replace(condition, field=name)
        try:
            is_met = value is not None and replay.rankings.allows((other,), point.id)
        except IndexRequiredError:
            is_met = meets(filterable_fields(point.payload), (other,))
        if not is_met:
            continue
        if former is not None:
            # The snapshot decides: the field is new, and has a value that was under another name.
            if name not in former and value in list(former.values()):
                return name
        elif is_distinctive or _is_similar(condition.field, name):
            return name
    return None


def _is_similar(left: str, right: str) -> bool:
    names = (left.lower().split(".")[-1], right.lower().split(".")[-1])
    return SequenceMatcher(None, *names).ratio() >= SIMILAR_NAMES
