"""Find out which ids in payloads are chunk ids: pipelines keep the id of a document under the same names."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from chunkproof.clients.ports import VectorStore
from chunkproof.deadline import Deadline
from chunkproof.errors import IndexRequiredError
from chunkproof.models.filters import AnyOf
from chunkproof.retrieval.payload import PayloadMap, id_at

# Values that the store counts for each field, the most frequent ones.
MAX_VALUES = 1_000
# A field in which more than half of the points share their value with others holds no chunk ids.
MOST = 0.5
# The same where only some values are known, so that not every shared one can be left out by itself.
SOME = 0.1
# Up to this many points, counting without an index takes only milliseconds.
SMALL_COLLECTION = 5_000


@dataclass(frozen=True, slots=True)
class IdCounts:
    """How many points have each value of a field; `is_complete` when these are all values that several points have."""

    counts: Mapping[str, int]
    is_complete: bool

    @property
    def repeated(self) -> set[str]:
        """The values that several points have."""
        return {value for value, count in self.counts.items() if count > 1}

    @property
    def is_shared(self) -> bool:
        """Whether the field holds the ids of something that has several points."""
        points = sum(self.counts[value] for value in self.repeated)
        return points > (MOST if self.is_complete else SOME) * sum(self.counts.values())


def read_ids(
    payload_map: PayloadMap,
    payloads: Sequence[Mapping[str, Any]],
    count: Callable[[str, Mapping[str, int]], IdCounts] | None,
) -> PayloadMap:
    """Return the map for a collection with these first payloads, in which every id means one point.

    `count` asks the store about a field and its sampled values; None when these are all payloads.
    """
    shared: list[str] = []
    repeated: set[str] = set()
    left = list(payloads)
    for path in payload_map.id_paths:
        sampled = Counter(value for payload in left if (value := id_at(path, payload)) is not None)
        if not sampled:
            continue
        found = IdCounts(sampled, is_complete=count is None)
        if count is not None and not found.is_shared:
            found = count(path, sampled)
        if found.is_shared:
            shared.append(path)
        else:
            repeated |= found.repeated
            left = [payload for payload in left if id_at(path, payload) is None]
    return payload_map.without_shared_ids(shared, repeated) if shared or repeated else payload_map


def count_ids(
    store: VectorStore, collection: str, path: str, sampled: Mapping[str, int], *, deadline: Deadline
) -> IdCounts:
    """Count the points that have each value; without an index, only those with a sampled value."""
    counts = store.facet(collection, path, (), deadline, limit=MAX_VALUES)
    if counts is not None:
        # Beyond the limit there may be more values that are repeated, if the last one is.
        found = IdCounts(counts, is_complete=len(counts) < MAX_VALUES or min(counts.values()) == 1)
        return found if found.is_shared or not found.repeated else _recount(found, store, collection, path, deadline)
    points = sum(sampled.values())
    with suppress(IndexRequiredError):
        if store.describe(collection, deadline).points_count <= SMALL_COLLECTION:
            points = store.count(collection, (AnyOf(path, tuple(sampled)),), deadline)
    # It is not known which of them the other points have: count those points under one value.
    unseen = points - sum(sampled.values())
    return IdCounts({**sampled, "": unseen + 1} if unseen > 0 else sampled, is_complete=False)


def _recount(found: IdCounts, store: VectorStore, collection: str, path: str, deadline: Deadline) -> IdCounts:
    """Count the repeated values exactly: a server that reorganizes its points may have counted some twice."""
    points = store.count(collection, (AnyOf(path, tuple(found.repeated)),), deadline)
    if points > len(found.repeated):
        return found
    return IdCounts(dict.fromkeys(found.counts, 1), is_complete=found.is_complete)
