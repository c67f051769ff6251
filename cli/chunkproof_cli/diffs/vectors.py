"""Decide whether two collections keep their vectors in one space, from texts that both have."""

from collections.abc import Iterator
from heapq import heappush, heappushpop
from statistics import median

from chunkproof.audit.reader import CALL_MS, Reader
from chunkproof.clients.ports import PointId, Vector, VectorConfig
from chunkproof.deadline import Deadline
from chunkproof.errors import CorruptChunkError, InvalidParameterError
from chunkproof.retrieval.integrity import digest
from chunkproof.retrieval.services import choose_vector
from chunkproof.retrieval.vectors import SAME, cosine
from chunkproof_cli.diffs.report import Space, VectorDiff

# The texts with the smallest hashes are drawn on both sides, so that common texts are drawn on both.
DRAWN = 2_000
PAIRS = 256
# In one space, a text is nearest to itself; in another one, one time in as many as there are texts.
LEAST_NEAREST = 0.9
# Fewer pairs show nothing about neighbours.
LEAST_PAIRS = 5


def compare_vectors(a: Reader, b: Reader) -> VectorDiff:
    """Compare the vectors of texts that both collections have."""
    config_a, config_b = _config(a), _config(b)
    if config_a is None or config_b is None:
        return VectorDiff(space=Space.UNKNOWN, pairs=0, identical=0, details="A collection has no single dense vector")
    if config_a.size != config_b.size:
        sizes = f"{config_a.size} and {config_b.size} values"
        return VectorDiff(space=Space.OTHER_SIZE, pairs=0, identical=0, details=sizes)
    left, right = _draw_texts(a), _draw_texts(b)
    common = sorted(left.keys() & right.keys())[:PAIRS]
    pairs = list(_read_pairs(a, b, config_a, config_b, [(left[sha], right[sha]) for sha in common]))
    if not pairs:
        return VectorDiff(space=Space.UNKNOWN, pairs=0, identical=0, details="No text is in both collections")
    return judge_vectors(pairs)


def judge_vectors(pairs: list[tuple[Vector, Vector]]) -> VectorDiff:
    """Decide from pairs of vectors of the same texts."""
    cosines = [cosine(left, right) for left, right in pairs]
    identical = sum(each >= SAME for each in cosines)
    nearest = _share_nearest(pairs) if len(pairs) >= LEAST_PAIRS else None
    if identical == len(pairs):
        space = Space.SAME_VECTORS
    elif nearest is None:
        space = Space.SAME_SPACE if min(cosines) >= LEAST_NEAREST else Space.UNKNOWN
    else:
        space = Space.SAME_SPACE if nearest >= LEAST_NEAREST else Space.OTHER_SPACE
    return VectorDiff(
        space=space,
        pairs=len(pairs),
        identical=identical,
        lowest=round(min(cosines), 6),
        median=round(median(cosines), 6),
        nearest=nearest,
    )


def _share_nearest(pairs: list[tuple[Vector, Vector]]) -> float:
    """Return how many vectors of A are nearest to the vector of the same text in B; equal vectors count."""
    import numpy as np  # a tenth of a second to import

    sides = [np.array(side, dtype=np.float64) for side in zip(*pairs, strict=True)]
    left, right = (side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-12) for side in sides)
    products = left @ right.T
    own = np.diag(products)
    return float(np.mean(own >= products.max(axis=1) - 1e-9))


def _config(reader: Reader) -> VectorConfig | None:
    services = reader.services
    description = services.store.describe(reader.collection, Deadline(CALL_MS))
    try:
        return choose_vector(description.vectors, services.settings.vector_name, reader.collection)
    except InvalidParameterError:
        return None


def _draw_texts(reader: Reader) -> dict[str, PointId]:
    """Return the points of the texts with the smallest hashes."""
    largest: list[tuple[int, str, PointId]] = []  # a heap: its top is the largest hash, the first to go
    drawn: set[str] = set()
    for page in reader.pages(None):
        for point in page.points:
            try:
                text = reader.services.payloads.text_of(point)
            except CorruptChunkError:
                continue
            sha256 = digest(text)
            if not text.strip() or sha256 in drawn:
                continue
            item = (-int(sha256[:15], 16), sha256, point.id)
            drawn.add(sha256)
            if len(largest) < DRAWN:
                heappush(largest, item)
            else:
                drawn.discard(heappushpop(largest, item)[1])
    return {sha256: point_id for _, sha256, point_id in largest}


def _read_pairs(
    a: Reader, b: Reader, config_a: VectorConfig, config_b: VectorConfig, ids: list[tuple[PointId, PointId]]
) -> Iterator[tuple[Vector, Vector]]:
    of_a = a.fetch([left for left, _ in ids], config_a.name)
    of_b = b.fetch([right for _, right in ids], config_b.name)
    for left, right in ids:
        first, second = of_a.get(left), of_b.get(right)
        if first and second and first.vector and second.vector:
            yield first.vector, second.vector
