"""The benchmark's arithmetic: medians and ratios, when a goal counts as reached, and the exit code."""

import pytest

from bench.goals import Goal, Verdict, exit_code, judge, ratio
from bench.money import money_lines, sizes
from bench.process import ContestantError
from bench.results import Part
from bench.spread import Spread
from bench.table import goal_lines
from bench.turns import check_texts_agree, order


def goal(value: float) -> Goal:
    return Goal("cold ÷ (a)", value, limit=0.40, aim_for=0.15)


def cold(**walls: list[float]) -> dict[str, Part]:
    """Processor time is half of what ours takes, and all of what others take."""
    part = Part("cold", "cold")
    for name, values in walls.items():
        share = 0.5 if name == "chunkproof" else 1.0
        part.add(name, wall_ms=values, cpu_ms=[share * value for value in values])
    return {"cold": part}


def test_a_spread_has_the_middle_the_ends_and_the_middle_half() -> None:
    spread = Spread((5.0, 1.0, 2.0, 4.0, 3.0))
    assert (spread.median, spread.low, spread.high, spread.middle_half) == (3.0, 1.0, 5.0, (2.0, 4.0))


def test_the_95th_percentile_is_a_value_that_was_measured() -> None:
    assert Spread(tuple(float(n) for n in range(1, 21))).p95 == 19.0
    assert Spread((7.0,)).p95 == 7.0


def test_ratios_by_rounds_compare_what_was_measured_together() -> None:
    assert Spread((1.0, 4.0)).by_rounds(Spread((2.0, 16.0))).values == (0.5, 0.25)


def test_a_ratio_to_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        ratio(1.0, 0.0)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (0.10, Verdict.AIM),
        (0.15, Verdict.AIM),
        (0.16, Verdict.ENOUGH),
        (0.40, Verdict.ENOUGH),
        (0.401, Verdict.MISSED),
    ],
)
def test_a_goal_is_reached_up_to_its_limit_and_not_beyond(value: float, verdict: Verdict) -> None:
    assert goal(value).verdict is verdict


def test_only_a_missed_at_least_fails_the_run() -> None:
    assert exit_code([goal(0.10), goal(0.40)]) == 0
    assert exit_code([goal(0.10), goal(0.41)]) == 1
    assert exit_code([]) == 0


def test_cold_is_compared_with_the_plain_handler_and_with_the_best_of_the_peers() -> None:
    plain, peers = judge(
        cold(
            chunkproof=[1.0, 1.0, 1.2],
            plain=[4.0, 5.0, 4.0],
            langchain=[9.0, 9.0, 9.0],
            llamaindex=[2.0, 2.0, 90.0],
            haystack=[3.0, 3.0, 3.0],
        )
    )
    assert (plain.against, plain.ratio, plain.verdict) == ("plain", 0.125, Verdict.ENOUGH)
    assert (peers.against, peers.ratio, peers.verdict) == ("llamaindex", 0.5, Verdict.MISSED)
    assert plain.by_cpu == 0.125
    assert plain.spread is not None
    assert plain.spread.values == (0.125, 0.1, 0.15)


def test_a_validation_is_compared_with_a_bare_retrieve_by_processor_time() -> None:
    part = Part("by_id", "by id")
    part.add("chunkproof", wall_ms=[9.0], cpu_ms=[1.25])
    part.add("bare_sdk", wall_ms=[1.0], cpu_ms=[1.0])
    (one,) = judge({"by_id": part})
    assert (one.ratio, one.verdict) == (1.25, Verdict.ENOUGH)


def test_a_first_answer_at_a_distance_is_compared_without_its_imports_and_with_the_best_peer_as_a_whole() -> None:
    part = Part("far_first_30", "first")
    for name, wall, imports in (("chunkproof", 800.0, 400.0), ("floor", 500.0, 100.0), ("haystack", 2000.0, 1.0)):
        part.add(name, wall_ms=[wall], after_imports_ms=[wall - imports], cpu_ms=[imports])
    for name in ("langchain", "llamaindex"):
        part.rows[name] = {**part.rows["haystack"], "wall_ms": Spread((9000.0,))}
    floor, peer = judge({"far_first_30": part})
    assert (floor.ratio, floor.verdict) == (1.0, Verdict.AIM)
    assert (peer.against, peer.ratio, peer.verdict) == ("haystack", 0.4, Verdict.AIM)


def test_time_per_result_is_judged_against_itself_and_aimed_at_the_floors() -> None:
    part = Part("top_k", "growth")
    part.add("chunkproof, top_k 10", wall_ms=[10.0])
    part.add("chunkproof, top_k 1000", wall_ms=[200.0])
    part.add("floor, top_k 1000", wall_ms=[100.0])
    (found,) = judge({"top_k": part})
    assert found.ratio == pytest.approx(0.2)  # 0.2 ms a result against 1 ms
    assert found.aim_for == pytest.approx(0.125)  # 0.1 ms a result, and a quarter more
    assert found.verdict is Verdict.ENOUGH


def test_what_was_not_measured_is_not_judged() -> None:
    assert list(judge({})) == []


def test_the_table_says_what_was_missed() -> None:
    header, line = goal_lines([goal(0.5)])
    assert header.split() == ["figure", "ratio", "by", "CPU", "at", "least", "aim", "for"]
    assert line.split() == ["cold", "÷", "(a)", "0.500", "≤", "0.40", "≤", "0.15", "MISSED"]


def test_contestants_that_answer_otherwise_are_not_compared() -> None:
    check_texts_agree({"floor": ["a", "b"], "plain": ["a", "b"]}, 2)
    with pytest.raises(ContestantError, match="plain did not find what floor found"):
        check_texts_agree({"floor": ["a", "b"], "plain": ["b", "a"]}, 2)
    with pytest.raises(ContestantError, match="floor found 1 chunks instead of 2"):
        check_texts_agree({"floor": ["a"], "plain": ["a"]}, 2)


def test_every_contestant_begins_a_round_in_turn() -> None:
    assert [order(["a", "b", "c"], number) for number in range(3)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
    ]


def test_the_cheapest_size_of_memory_is_one_within_the_target() -> None:
    warm, cold = Part("warm", ""), Part("cold", "")
    warm.add("chunkproof", cpu_ms=[4.0], peak_mb=[50.0])
    cold.add("chunkproof", cpu_ms=[340.0], peak_mb=[60.0])

    small, second, *_, largest = sizes(warm, cold)

    assert small.warm_ms == pytest.approx(122 + 4 * 1769 / 256)
    assert small.cold_ms > 2_000 > second.cold_ms
    assert largest.warm_ms == 126
    # 0.99 × 126 ms and 0.01 × (366 + 340) ms of 2 GB, a million times, and 0.20 for the requests.
    assert largest.usd == pytest.approx((0.99 * 126 + 0.01 * 706) * 1_000 * 2 * 0.0000166667 + 0.20)
    assert list(money_lines(warm, cold))[-1] == "  cheapest within 2,000 ms, cold starts too: 512 MB"
    warm.add("chunkproof", cpu_ms=[4.0], peak_mb=[500.0])
    assert list(money_lines(warm, cold))[-1].endswith("1,024 MB")


def test_workers_are_judged_by_the_processor_time_of_a_request() -> None:
    part = Part("serve", "")
    part.add("workers: 1, clients: 32", cpu_ms=[4.0])
    part.add("workers: one a core, clients: 32", cpu_ms=[4.6])

    (found,) = judge({"serve": part})

    assert (found.ratio, found.verdict) == (pytest.approx(1.15), Verdict.MISSED)
