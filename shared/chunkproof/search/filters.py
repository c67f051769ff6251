"""Map a caller's filters to the payload fields of a collection."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from chunkproof.base.errors import InvalidParameterError
from chunkproof.collection.facts import Sample
from chunkproof.collection.lookup import SMALL_COLLECTION, parse_point_id
from chunkproof.collection.payload_map import PayloadMap, flatten, lies_in_json_string
from chunkproof.collection.services import Collection
from chunkproof.contract.conditions import (
    Absent,
    All,
    AnyOf,
    Between,
    Condition,
    Either,
    HasId,
    HasVector,
    Not,
    fields_of,
)
from chunkproof.contract.model import find_nearest

# Each may take calls to the store.
MAX_EXPLAINED_FIELDS = 5


def map_filters(conditions: tuple[Condition, ...], collection: Collection) -> tuple[Condition, ...]:
    """Replace canonical field names in the conditions by the paths that this collection uses."""
    sample, payloads = collection.sample, collection.payloads
    return tuple(_map_condition(condition, sample, payloads) for condition in conditions)


def map_field(field: str, parameter: str, collection: Collection) -> str:
    """Return the path under which most payloads of this collection keep a field; `parameter` is the one to name."""
    sample, payloads = collection.sample, collection.payloads
    paths = _paths_of(field, sample, payloads, parameter)
    usual = payloads.usual_path(field, sample.payloads) if payloads.is_canonical(field) else None
    return usual if usual is not None and usual in paths else paths[0]


def _map_condition(condition: Condition, sample: Sample, payloads: PayloadMap) -> Condition:
    match condition:
        case Not(inner):
            return Not(tuple(_map_condition(c, sample, payloads) for c in inner))
        case Either(inner) | All(inner):
            return type(condition)(tuple(_map_condition(c, sample, payloads) for c in inner))
        case HasId() | HasVector():
            return condition
        case AnyOf() | Between() | Absent():
            paths = _paths_of(condition.field, sample, payloads)
            if (
                condition.field == "chunk_id"
                and isinstance(condition, AnyOf)
                and not payloads.id_paths_in(sample.payloads)
            ):
                ids = (parse_point_id(value) for value in condition.values if isinstance(value, str))
                points = HasId(tuple(point_id for point_id in ids if point_id is not None))
                return Either((replace(condition, field=paths[0]), *([points] if points.ids else [])))
            # A path counts only where those before it have no value, as in the metadata of a result.
            moved = [
                (*(Absent(higher) for higher in paths[:rank]), replace(condition, field=path))
                for rank, path in enumerate(paths)
            ]
            return moved[0][0] if len(moved) == 1 else Either(tuple(All(together) for together in moved))


def find_absent_fields(conditions: tuple[Condition, ...], collection: Collection) -> Iterator[str]:
    """Yield a sentence for each field of the conditions that no point has, as far as that can be found out quickly."""
    sample, payloads = collection.sample, collection.payloads
    names = sorted({name for payload in sample.payloads for name, _ in flatten(payload)})
    fields = dict.fromkeys(condition.field for condition in fields_of(conditions) if condition.field != "chunk_id")
    for field in islice(fields, MAX_EXPLAINED_FIELDS):
        if collection.deadline.remaining_ms() < collection.deadline.budget_ms / 2:  # other queries need the rest
            return
        paths = _paths_of(field, sample, payloads)
        is_list = "[" in field  # only the store reads paths into lists
        if is_list or any(payloads.stated(path, one) is not None for path in paths for one in sample.payloads):
            continue
        is_small = sample.is_complete or collection.describe().points_count <= SMALL_COLLECTION
        if is_small and not sample.is_complete:
            having = Not(tuple(Absent(path) for path in paths))
            if collection.count((having,)):
                continue
        points = (
            f"No point of collection {collection.name}"
            if is_small
            else f"None of the first {len(sample.payloads)} points"
        )
        near = find_nearest(field, names)
        yield f"{points} has the field {field}" + (f"; did you mean {near}?" if near else "")


def _paths_of(field: str, sample: Sample, payloads: PayloadMap, parameter: str | None = None) -> Sequence[str]:
    if field == "chunk_id":
        return payloads.id_paths_in(sample.payloads) or payloads.id_paths[:1] or [field]
    if not payloads.is_canonical(field):
        return [field]
    paths = payloads.paths_in(field, sample.payloads)
    if not paths and field == "document_id":  # results show a shared id in its place, else the URL
        return payloads.shared_paths or _paths_of("url", sample, payloads, parameter)
    reachable = [path for path in paths if not any(lies_in_json_string(path, p) for p in sample.payloads)]
    if paths and not reachable:
        name = parameter or f"filters.{field}"
        raise InvalidParameterError(
            f"{name} cannot be used: this collection keeps it inside a JSON string ({paths[0]})"
        )
    return reachable or [payloads.first_path(field)]
