"""The changes that `why` tries, and what in the store or the snapshot each of them rests on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from chunkproof.audit.snapshot import filterable_fields
from chunkproof.clients.ports import Point, PointId
from chunkproof.errors import IndexRequiredError
from chunkproof.models.filters import AnyOf, Between, Condition, Either
from chunkproof.models.json import display_name
from chunkproof.models.query import SearchQuery
from chunkproof.models.ranking import Mode
from chunkproof.retrieval.payload import PayloadMap, flatten
from chunkproof.why.fit import Fit
from chunkproof.why.replay import Replay
from chunkproof.why.report import Cause
from chunkproof.why.scenario import Scenario, meets, name_condition
from chunkproof.why.target import Target, TargetChunk

# Fields of similar names, such as lang and language.
SIMILAR_NAMES = 0.6
ANY_DEPTH = 1_000_000


@dataclass(frozen=True)
class Change:
    """One change; `undoes` is the cause that it proves if it brings the chunk back.

    Without `undoes` it is shown for information: nothing shows that what it changes is wrong. Changes are in the order
    of preference: what puts right a damage comes before what makes the search wider.
    """

    label: str
    undoes: Cause | None
    apply: Callable[[Scenario], Scenario]
    evidence: str | None = None
    field: int | None = None
    condition: Condition | None = None
    other_field: str | None = None
    is_for_all: bool = False
    mode: str | None = None


def list_changes(
    present: Scenario, target: Target, replay: Replay, fits: Mapping[PointId, Fit], *, is_foreign: bool
) -> list[Change]:
    """List every change that applies, in the order of preference."""
    return [
        *_put_back(target, replay),
        *_restore_text(target, replay),
        *_change_model(replay),
        *_embed_anew(target, fits, replay, is_foreign=is_foreign),
        *_make_readable(target),
        *_mend_fields(present, target, replay),
        *_drop_filters(present),
        *_search_exactly(replay),
        Change("with near-duplicates collapsed", Cause.DUPLICATES, lambda s: replace(s, collapsed=True)),
        *_drop_threshold(present),
        *_restore_vector(target),
    ]


def change_selection(query: SearchQuery) -> Iterator[Change]:
    """Yield the search without what it adds to a ranking: reranking, groups, diversity."""
    if query.rerank is not None:
        yield Change("without reranking", Cause.RERANKED, _override(rerank=None))
    if query.group_by is not None:
        label = f"without grouping by {query.group_by}"
        yield Change(label, Cause.LEFT_OUT, _override(group_by=None, group_size=None))
    if query.diversity is not None:
        yield Change("without diversity", Cause.LEFT_OUT, _override(diversity=None))


def change_mode(query: SearchQuery, modes: Sequence[Mode]) -> Iterator[Change]:
    """Yield the search in each other mode: by meaning, by words, by both."""
    labels = {Mode.DENSE: "by meaning alone", Mode.TEXT: "by words alone", Mode.HYBRID: "by meaning and words"}
    for mode in modes:
        if mode is not (query.mode or Mode.DENSE):
            label = f"{labels[mode]} (mode {mode})"
            override = _override(mode=mode, fusion=None, diversity=None, params=None)
            yield Change(label, Cause.OTHER_LEG, override, mode=mode.value)


def _override(**fields: Any) -> Callable[[Scenario], Scenario]:
    return lambda s: replace(s, overrides=(*s.overrides, *fields.items()))


def raise_top_k() -> Change:
    """Return the change that is left when nothing else helps: more results."""
    return Change("with a larger top_k", Cause.BEYOND_TOP_K, lambda s: replace(s, top_k=ANY_DEPTH))


def _put_back(target: Target, replay: Replay) -> Iterator[Change]:
    gone = [chunk for chunk in target.chunks if chunk.point is None]
    if not gone:
        return
    apply: Callable[[Scenario], Scenario] = lambda s: replace(s, put_back=True)  # noqa: E731
    chunk = next((one for one in gone if one.parts), None) or next((one for one in gone if one.twin), None) or gone[0]
    if chunk.parts:
        yield Change(
            "with its text in one chunk, as before",
            Cause.SPLIT_DIFFERENTLY,
            apply,
            describe_parts(chunk, replay.context.payloads),
        )
    elif chunk.twin is not None:
        yield Change("with it under its former id", Cause.ID_CHANGED, apply)
    elif chunk.former is not None:
        yield Change("with it put back from the snapshot", Cause.DELETED, apply)
    else:
        yield Change("if it were stored", Cause.NOT_IN_COLLECTION, apply)


def describe_parts(chunk: TargetChunk, payloads: PayloadMap) -> str:
    """Name the chunks that hold a former text now."""
    names = ", ".join(payloads.id_of(part) for part in chunk.parts[:3]) + (", …" if len(chunk.parts) > 3 else "")
    return f"its text is in {names} now"


def _restore_text(target: Target, replay: Replay) -> Iterator[Change]:
    changed = [chunk for chunk in target.chunks if chunk.has_changed_text and chunk.former_text is not None]
    if not changed:
        return
    apply: Callable[[Scenario], Scenario] = lambda s: replace(s, former_text=True)  # noqa: E731
    if parted := next((chunk for chunk in changed if chunk.is_split), None):
        yield Change(
            "with its text in one chunk, as before",
            Cause.SPLIT_DIFFERENTLY,
            apply,
            describe_parts(parted, replay.context.payloads),
        )
    else:
        yield Change("with its former text", Cause.TEXT_CHANGED, apply)


def _change_model(replay: Replay) -> Iterator[Change]:
    for number, space in enumerate(replay.spaces):
        if number:
            label = f"with every text embedded anew by {space.name}" if space.is_anew else f"asked with {space.name}"
            yield Change(
                label,
                Cause.OTHER_MODEL,
                lambda s, n=number: replace(s, space=n),  # type: ignore[misc]
                is_for_all=True,
            )


def _embed_anew(target: Target, fits: Mapping[PointId, Fit], replay: Replay, *, is_foreign: bool) -> Iterator[Change]:
    stored = [chunk for chunk in target.chunks if chunk.point is not None]
    if not stored or replay.context.embedder is None:
        return
    judged = [fits[chunk.point.id] for chunk in stored if chunk.point is not None and chunk.point.id in fits]
    stale = [fit for fit in judged if fit.is_stale]
    cause: Cause | None = None
    if stale and not (is_foreign and len(replay.spaces) == 1):
        cause = Cause.STALE_VECTOR if any(fit.is_of_this_model for fit in stale) else Cause.OTHER_MODEL
    known = [fit.cosine for fit in judged if fit.cosine is not None]
    shown = f"cosine {min(known):.2f} with its text, others {judged[0].usual:.2f}" if known else None
    # In a collection of another model, the text alone embedded by this one proves nothing.
    if not is_foreign or cause is not None:
        yield Change("with its text embedded anew", cause, lambda s: replace(s, fresh=True), shown)


def _restore_vector(target: Target) -> Iterator[Change]:
    """Show what the former vector alone does; what changed it is found by the other changes."""
    if any(chunk.point is not None and chunk.former_vector is not None for chunk in target.chunks):
        yield Change("with its former vector", None, lambda s: replace(s, former_vector=True))


def _make_readable(target: Target) -> Iterator[Change]:
    stored = [chunk for chunk in target.chunks if chunk.point is not None]
    if stored and not any(chunk.text for chunk in stored):
        yield Change("with a text that can be read", Cause.UNREADABLE, lambda s: replace(s, readable=True))


def _mend_fields(present: Scenario, target: Target, replay: Replay) -> Iterator[Change]:
    """Look for fields that have another name, or another value, than the filter and the snapshot have."""
    for number, condition in enumerate(present.filters):
        if not isinstance(condition, AnyOf | Between):
            continue
        for chunk in target.chunks:
            if chunk.point is None or replay.allows((condition,), chunk.point.id):
                continue
            if other := _find_renamed(condition, chunk, replay):
                yield Change(
                    f"with {condition.field} under its former name",
                    Cause.FIELD_RENAMED,
                    _filter_by_either(number, condition, other, replay),
                    f"{condition.field} is {other} now",
                    field=number,
                    condition=condition,
                    other_field=other,
                )
                break
            if chunk.former and meets(chunk.former.payload, replay.map((condition,))):
                value = chunk.former.payload.get(condition.field)
                yield Change(
                    f"with {condition.field} as in the snapshot",
                    Cause.VALUE_CHANGED,
                    lambda s, n=number: replace(s, mended=s.mended | {n}),  # type: ignore[misc]
                    None if value is None else f"it was {display_name(str(value))}",
                    field=number,
                    condition=condition,
                )
                break


def _filter_by_either(
    number: int, condition: AnyOf | Between, other: str, replay: Replay
) -> Callable[[Scenario], Scenario]:
    """Filter by both names, as other chunks may have either; without an index on the new one, let the chunk pass."""
    either = Either((condition, replace(condition, field=other)))
    try:
        replay.ranking((either,))
    except IndexRequiredError:
        return lambda s: replace(s, mended=s.mended | {number})
    return lambda s: replace(s, filters=_replace(s.filters, number, either))


def _find_renamed(condition: AnyOf | Between, chunk: TargetChunk, replay: Replay) -> str | None:
    """Return the field that holds what the filter asks for, where the chunk has no value under the filter's name."""
    point, payloads = chunk.point, replay.context.payloads
    if point is None or payloads.stated(condition.field, point.payload) is not None:
        return None
    former = chunk.former.payload if chunk.former else None
    if former is not None and not meets(former, replay.map((condition,))):
        return None  # it never met this filter
    for name, value in sorted(flatten(point.payload)):
        if value is None or not _is_met(replace(condition, field=name), point, replay):
            continue
        if former is not None:
            # The snapshot decides: the field is new, and has a value that was under another name.
            if name not in former and value in list(former.values()):
                return name
        elif _is_distinctive(condition) or _is_similar(condition.field, name):
            return name
    return None


def _is_met(condition: Condition, point: Point, replay: Replay) -> bool:
    try:
        return replay.allows((condition,), point.id)
    except IndexRequiredError:
        return meets(filterable_fields(point.payload), (condition,))


def _is_distinctive(condition: AnyOf | Between) -> bool:
    """Whether it is no coincidence that another field has such a value: a short number or a flag may be anything."""
    return isinstance(condition, AnyOf) and all(isinstance(value, str) and len(value) > 1 for value in condition.values)


def _is_similar(left: str, right: str) -> bool:
    names = (left.lower().split(".")[-1], right.lower().split(".")[-1])
    return SequenceMatcher(None, *names).ratio() >= SIMILAR_NAMES


def _drop_filters(present: Scenario) -> Iterator[Change]:
    for number, condition in enumerate(present.filters):
        if condition is not None:
            yield Change(
                f"without the filter on {name_condition(condition)}",
                Cause.FILTERED_OUT,
                lambda s, n=number: replace(s, filters=_replace(s.filters, n, None)),  # type: ignore[misc]
                field=number,
            )
    if len(present.filters) > 3:
        yield Change("without any filter", Cause.FILTERED_OUT, lambda s: replace(s, filters=(None,) * len(s.filters)))


def _replace(filters: Sequence[Condition | None], index: int, condition: Condition | None) -> tuple[Any, ...]:
    return (*filters[:index], condition, *filters[index + 1 :])


def _search_exactly(replay: Replay) -> Iterator[Change]:
    if replay.context.is_indexed and replay.is_exact:
        yield Change("with an exact search", Cause.MISSED_BY_INDEX, lambda s: replace(s, exact=True))


def _drop_threshold(present: Scenario) -> Iterator[Change]:
    if present.threshold > 0.0:
        yield Change("without the threshold", Cause.BELOW_THRESHOLD, lambda s: replace(s, threshold=0.0))
