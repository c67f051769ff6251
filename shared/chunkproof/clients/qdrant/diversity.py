"""Select results that differ from each other, for rankings that Qdrant's own MMR does not know.

Qdrant takes the cosine with the query as the relevance of a result, also when it selects among the results of a fused
search. What only its words found would then come last. Here, relevance is the score by which the search ranks.
"""

import sys
from collections.abc import Sequence
from math import hypot
from operator import mul

from chunkproof.clients.ports import Point, Vector

if sys.version_info >= (3, 12):
    from math import sumprod
else:

    def sumprod(one: Vector, other: Vector) -> float:
        """Return the sum of the products."""
        return float(sum(map(mul, one, other)))


def select_diverse(points: Sequence[Point], limit: int, diversity: float) -> list[Point]:
    """Return the points that maximal marginal relevance selects, in that order; they must have their vectors.

    The next point is always the one with the highest `(1 - diversity) * relevance - diversity * similarity`. Relevance
    is the score, scaled so that the best point has 1 and the last 0. Similarity is the highest cosine with a point that
    was selected before; a point without a vector is similar to none. Of equals, the better score decides, then the id.
    """
    points = sorted(points, key=lambda point: (-point.score, str(point.id)))
    vectors = [_to_unit_length(point.vector) for point in points]
    relevance = _scale([point.score for point in points])
    similarity = [-1.0] * len(points)
    left, selected = list(range(len(points))), list[Point]()
    while left and len(selected) < limit:
        best = max(left, key=lambda one: (1 - diversity) * relevance[one] - diversity * similarity[one])
        left.remove(best)
        for one in left:
            cosine = sumprod(vectors[one], vectors[best]) if vectors[one] and vectors[best] else 0.0
            similarity[one] = max(similarity[one], cosine)
        selected.append(points[best])
    return selected


def _scale(scores: Sequence[float]) -> list[float]:
    least, most = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - least) / (most - least) if most > least else 1.0 for score in scores]


def _to_unit_length(vector: Vector | None) -> Vector:
    length = hypot(*vector) if vector else 0.0
    return [value / length for value in vector or ()] if length else ()
