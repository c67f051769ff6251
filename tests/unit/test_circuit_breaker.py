"""The circuit breaker: when calls go through, when none does, and who may try again."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import httpx
import pytest

from chunkproof.clients import resilience as module
from chunkproof.clients.resilience import CircuitBreaker, CircuitOpenError, CircuitState

from support.clock import clock_of
from support.log_lines import records_of

LONG_S = 60.0
# After no rest at all, an open circuit is half-open at once.
NONE_S = 0.0


@pytest.fixture
def clock(monkeypatch):
    return clock_of(module, monkeypatch)


def made(*outcomes: bool | None, max_failures: float = 3, open_s: float = LONG_S) -> CircuitBreaker:
    """A breaker after calls that went so: True is a failure, False a success, None tells nothing."""
    breaker = CircuitBreaker("qdrant", max_failures=max_failures, open_s=open_s)
    for failed in outcomes:
        breaker.record(is_probe=breaker.admit(), failed=failed)
    return breaker


def is_let_through(breaker: CircuitBreaker) -> bool:
    try:
        breaker.admit()
    except CircuitOpenError:
        return False
    return True


def test_a_new_circuit_is_closed():
    assert made().state is CircuitState.CLOSED


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ([True, True], CircuitState.CLOSED),
        ([True, True, True], CircuitState.OPEN),
        ([True, True, False], CircuitState.CLOSED),
        ([True, True, False, True, True], CircuitState.CLOSED),
        ([True, True, False, True, True, True], CircuitState.OPEN),
        ([True, True, None], CircuitState.CLOSED),
        ([True, True, None, True], CircuitState.OPEN),
        ([None] * 10, CircuitState.CLOSED),
        ([False] * 10, CircuitState.CLOSED),
    ],
)
def test_three_failures_in_a_row_open_it_and_only_a_success_starts_the_count_anew(outcomes, state):
    assert made(*outcomes).state is state


def test_by_default_it_takes_five_failures_and_rests_for_five_seconds(clock):
    breaker = CircuitBreaker("qdrant")
    for _ in range(4):
        breaker.record(failed=True)
    assert breaker.state is CircuitState.CLOSED
    breaker.record(failed=True)
    with pytest.raises(CircuitOpenError) as caught:
        breaker.admit()
    assert caught.value.retry_after == 5.0


def test_one_without_a_limit_never_opens():
    assert made(*[True] * 100, max_failures=float("inf")).state is CircuitState.CLOSED


def test_while_it_is_open_no_call_goes_through():
    breaker = made(True, True, True)

    assert [is_let_through(breaker) for _ in range(3)] == [False, False, False]


@pytest.mark.parametrize(("passed_s", "wait_s"), [(0.0, 60.0), (12.5, 47.5), (59.0, 1.0), (59.75, 1.0)])
def test_a_refused_call_is_told_how_long_the_rest_lasts_and_never_less_than_a_second(clock, passed_s, wait_s):
    breaker = made(True, open_s=60.0, max_failures=1)
    clock.now += passed_s

    with pytest.raises(CircuitOpenError) as caught:
        breaker.admit()
    assert caught.value.retry_after == wait_s


def test_a_refusal_is_a_failure_of_transport_as_the_sdks_know_it():
    assert isinstance(CircuitOpenError(1.0), httpx.TransportError)


@pytest.mark.parametrize(
    ("passed_s", "state"),
    [(0.0, CircuitState.OPEN), (59.9, CircuitState.OPEN), (60.0, CircuitState.HALF_OPEN)],
)
def test_after_the_rest_it_is_half_open(clock, passed_s, state):
    breaker = made(True, max_failures=1, open_s=60.0)
    clock.now += passed_s

    assert breaker.state is state


def test_half_open_lets_one_call_through_and_then_no_other():
    breaker = made(True, max_failures=1, open_s=NONE_S)

    assert [is_let_through(breaker) for _ in range(3)] == [True, False, False]
    assert breaker.state is CircuitState.OPEN


def test_half_open_lets_exactly_one_of_several_threads_through():
    threads = 8
    for _ in range(20):
        breaker = made(True, max_failures=1, open_s=NONE_S)
        together = Barrier(threads)

        def come(breaker: CircuitBreaker = breaker, together: Barrier = together) -> bool:
            together.wait()
            return is_let_through(breaker)

        with ThreadPoolExecutor(threads) as pool:
            let_through = [pool.submit(come) for _ in range(threads)]
        assert sum(answer.result() for answer in let_through) == 1


def test_who_comes_while_another_one_probes_waits_a_second():
    breaker = made(True, max_failures=1, open_s=NONE_S)
    breaker.admit()

    with pytest.raises(CircuitOpenError) as caught:
        breaker.admit()
    assert caught.value.retry_after == 1.0


def test_a_probe_that_succeeds_closes_it_for_everybody():
    breaker = made(True, max_failures=1, open_s=NONE_S)
    breaker.record(is_probe=breaker.admit(), failed=False)

    assert breaker.state is CircuitState.CLOSED
    assert [is_let_through(breaker) for _ in range(3)] == [True, True, True]


def test_after_it_closed_all_failures_are_needed_again():
    breaker = made(True, True, max_failures=2, open_s=NONE_S)
    breaker.record(is_probe=breaker.admit(), failed=False)
    breaker.record(failed=True)

    assert breaker.state is CircuitState.CLOSED


def test_a_probe_that_fails_opens_it_for_another_rest(clock):
    breaker = made(True, True, max_failures=2, open_s=60.0)
    clock.now += 60.0
    is_probe = breaker.admit()
    clock.now += 3.0
    breaker.record(failed=True, is_probe=is_probe)
    clock.now += 59.0

    with pytest.raises(CircuitOpenError) as caught:
        breaker.admit()
    assert caught.value.retry_after == 1.0
    clock.now += 1.0
    assert is_let_through(breaker)


def test_a_probe_that_tells_nothing_leaves_its_place_to_the_next():
    breaker = made(True, max_failures=1, open_s=NONE_S)
    breaker.record(is_probe=breaker.admit(), failed=None)

    assert breaker.state is CircuitState.HALF_OPEN
    assert [is_let_through(breaker) for _ in range(2)] == [True, False]


def test_a_call_from_before_it_opened_does_not_give_the_probes_place_away():
    breaker = made(max_failures=1, open_s=NONE_S)
    breaker.admit()  # a slow call
    breaker.admit()
    breaker.record(failed=True)  # another one opens the circuit
    breaker.admit()  # the probe
    breaker.record(failed=None)  # the slow one ends, and tells nothing

    assert not is_let_through(breaker)


def test_a_call_from_before_it_opened_that_succeeds_closes_it():
    breaker = made(max_failures=1)
    slow = breaker.admit()
    breaker.record(failed=True, is_probe=breaker.admit())
    breaker.record(failed=False, is_probe=slow)

    assert breaker.state is CircuitState.CLOSED


def test_a_call_is_told_whether_it_is_the_probe():
    breaker = made(max_failures=1, open_s=NONE_S)

    assert breaker.admit() is False
    breaker.record(failed=True)
    assert breaker.admit() is True


def test_opening_and_closing_are_logged_once_each_with_the_services_name():
    with records_of("chunkproof.clients.resilience") as records:
        breaker = made(True, True, max_failures=2, open_s=NONE_S)
        for failed in (True, False, False):  # two probes, and a call like any other
            breaker.record(is_probe=breaker.admit(), failed=failed)

    assert [(record.getMessage(), record.dependency) for record in records] == [
        ("circuit opened", "qdrant"),
        ("circuit closed", "qdrant"),
    ]
