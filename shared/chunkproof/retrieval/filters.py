"""Map a caller's filters to the payload fields of a collection."""

from collections.abc import Sequence
from dataclasses import replace

from chunkproof.deadline import Deadline
from chunkproof.errors import InvalidParameterError
from chunkproof.models.filters import Absent, All, AnyOf, Between, Condition, Either, HasId, HasVector, Not
from chunkproof.retrieval.payload import PayloadMap, lies_in_json_string
from chunkproof.retrieval.services import Sample, Services


def map_filters(
    conditions: tuple[Condition, ...], collection: str, services: Services, deadline: Deadline
) -> tuple[Condition, ...]:
    """Replace canonical field names in the conditions by the paths that this collection uses."""
    sample = services.sample(collection, deadline)
    payloads = services.payloads_of(collection, deadline)
    return tuple(_map_condition(condition, sample, payloads) for condition in conditions)


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
            # A path counts only where those before it have no value, as in the metadata of a result.
            moved = [
                (*(Absent(higher) for higher in paths[:rank]), replace(condition, field=path))
                for rank, path in enumerate(paths)
            ]
            return moved[0][0] if len(moved) == 1 else Either(tuple(All(together) for together in moved))


def _paths_of(field: str, sample: Sample, payloads: PayloadMap) -> Sequence[str]:
    if field == "chunk_id":
        return payloads.id_paths_in(sample.payloads) or payloads.id_paths[:1] or [field]
    if not payloads.is_canonical(field):
        return [field]
    paths = payloads.paths_in(field, sample.payloads)
    if not paths and field == "document_id":  # results show a shared id in its place, else the URL
        return payloads.shared_paths or _paths_of("url", sample, payloads)
    reachable = [path for path in paths if not any(lies_in_json_string(path, p) for p in sample.payloads)]
    if paths and not reachable:
        raise InvalidParameterError(
            f"filters.{field} cannot be used: this collection keeps it inside a JSON string ({paths[0]})"
        )
    return reachable or [payloads.first_path(field)]
