"""Selection by maximal marginal relevance."""

from math import hypot

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.stores.hybrid import select_diverse
from chunkproof.stores.store_port import Point


def points(*scored: tuple[float, tuple[float, ...] | None]) -> list[Point]:
    return [Point(number, {}, score, vector) for number, (score, vector) in enumerate(scored, 1)]


def select(found: list[Point], limit: int, diversity: float) -> list[object]:
    return [point.id for point in select_diverse(found, limit, diversity)]


def test_a_point_like_the_first_gives_way_to_one_that_differs() -> None:
    # Scaled relevance: 1, 0.9, 0.5, 0. Cosines with the first: 0.96, 0, 0.6.
    found = points((0.020, (1.0, 0.0)), (0.019, (0.96, 0.28)), (0.015, (0.0, 3.0)), (0.010, (0.6, 0.8)))
    assert select(found, 4, 0.0) == [1, 2, 3, 4]
    # 0.8 * 0.9 - 0.2 * 0.96 = 0.528 is more than 0.8 * 0.5 - 0.2 * 0.
    assert select(found, 2, 0.2) == [1, 2]
    # 0.5 * 0.9 - 0.5 * 0.96 = -0.03 is less than 0.5 * 0.5 - 0.5 * 0.
    assert select(found, 2, 0.5) == [1, 3]
    # Then 2 is similar to 1 (0.96), and 4 to 3 (0.8): -0.03 is more than -0.4.
    assert select(found, 3, 0.5) == [1, 3, 2]
    assert select(found, 3, 1.0) == [1, 3, 4]


def test_the_scale_of_scores_does_not_matter() -> None:
    vectors = [(1.0, 0.0), (0.96, 0.28), (0.0, 1.0)]
    small = points(*zip((0.0166, 0.0164, 0.0159), vectors, strict=True))
    large = points(*zip((1660.0, 1640.0, 1590.0), vectors, strict=True))
    assert all(select(small, 3, share / 10) == select(large, 3, share / 10) for share in range(11))


def test_a_point_without_a_vector_is_similar_to_none() -> None:
    found = points((1.0, (1.0, 0.0)), (0.9, (1.0, 0.0)), (0.5, None), (0.4, (0.0, 0.0)))
    assert select(found, 4, 0.9) == [1, 3, 4, 2]


def test_few_and_equal_points_are_all_selected_in_their_order() -> None:
    assert select([], 5, 0.5) == []
    assert select(points((0.3, (1.0, 0.0))), 5, 0.5) == [1]
    assert select(points((0.3, (1.0, 0.0)), (0.3, (1.0, 0.0))), 5, 0.5) == [1, 2]


VECTORS = st.tuples(*[st.integers(-3, 3)] * 3).map(lambda one: tuple(map(float, one))).filter(any)


@given(
    st.lists(st.tuples(st.integers(0, 20), VECTORS), min_size=1, max_size=8),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
def test_every_choice_is_the_best_by_the_definition(
    scored: list[tuple[int, tuple[float, ...]]], limit: int, diversity: float
) -> None:
    found = points(*((float(score), vector) for score, vector in scored))
    least, most = min(point.score for point in found), max(point.score for point in found)

    def cosine(one: Point, other: Point) -> float:
        a, b = one.vector or (), other.vector or ()
        return sum(x * y for x, y in zip(a, b, strict=True)) / hypot(*a) / hypot(*b)

    def value(point: Point, chosen: list[Point]) -> float:
        relevance = (point.score - least) / (most - least) if most > least else 1.0
        return (1 - diversity) * relevance - diversity * max((cosine(point, other) for other in chosen), default=-1.0)

    chosen: list[Point] = []
    for point in select_diverse(found, limit, diversity):
        left = [one for one in found if one not in chosen]
        assert value(point, chosen) == pytest.approx(max(value(one, chosen) for one in left))
        chosen.append(point)
    assert len(chosen) == len({point.id for point in chosen}) == min(limit, len(found))
