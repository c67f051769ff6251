"""The circuit breaker: when calls go through, when none does, and which call is the probe."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import httpx
import pytest

from chunkproof.net import resilience
from chunkproof.net.resilience import CircuitBreaker, CircuitOpenError, CircuitState

from support.clock import replace_clock
from support.log_lines import capture_records

LONG_S = 60.0
# An open circuit is half-open at once.
NO_TIME_S = 0.0


@pytest.fixture
def clock(monkeypatch):
    return replace_clock(resilience, monkeypatch)


def breaker_after(*outcomes: bool | None, max_failures: float = 3, open_s: float = LONG_S) -> CircuitBreaker:
    """A breaker after calls with these outcomes: True is a failure, False a success, None says nothing."""
    breaker = CircuitBreaker("qdrant", max_failures=max_failures, open_s=open_s)
    for failed in outcomes:
        breaker.record(is_probe=breaker.admit(), failed=failed)
    return breaker


def is_admitted(breaker: CircuitBreaker) -> bool:
    try:
        breaker.admit()
    except CircuitOpenError:
        return False
    return True


def test_a_new_circuit_is_closed():
    assert breaker_after().state is CircuitState.CLOSED


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
def test_three_failures_in_a_row_open_it_and_only_a_success_resets_the_count(outcomes, state):
    assert breaker_after(*outcomes).state is state


def test_by_default_five_failures_open_it_for_five_seconds(clock):
    breaker = CircuitBreaker("qdrant")
    for _ in range(4):
        breaker.record(failed=True)
    assert breaker.state is CircuitState.CLOSED
    breaker.record(failed=True)
    with pytest.raises(CircuitOpenError) as caught:
        breaker.admit()
    assert caught.value.retry_after == 5.0


def test_a_breaker_without_a_limit_never_opens():
    assert breaker_after(*[True] * 100, max_failures=float("inf")).state is CircuitState.CLOSED


def test_while_it_is_open_no_call_goes_through():
    breaker = breaker_after(True, True, True)

    assert [is_admitted(breaker) for _ in range(3)] == [False, False, False]


@pytest.mark.parametrize(("passed_s", "wait_s"), [(0.0, 60.0), (12.5, 47.5), (59.0, 1.0), (59.75, 1.0)])
def test_a_refused_call_gets_the_time_to_wait_of_at_least_a_second(clock, passed_s, wait_s):
    breaker = breaker_after(True, open_s=60.0, max_failures=1)
    clock.now += passed_s

    with pytest.raises(CircuitOpenError) as caught:
        breaker.admit()
    assert caught.value.retry_after == wait_s


def test_the_error_of_an_open_circuit_is_a_transport_error_which_the_sdks_handle():
    assert isinstance(CircuitOpenError(1.0), httpx.TransportError)


@pytest.mark.parametrize(
    ("passed_s", "state"),
    [(0.0, CircuitState.OPEN), (59.9, CircuitState.OPEN), (60.0, CircuitState.HALF_OPEN)],
)
def test_it_is_half_open_after_its_time(clock, passed_s, state):
    breaker = breaker_after(True, max_failures=1, open_s=60.0)
    clock.now += passed_s

    assert breaker.state is state


def test_half_open_lets_one_call_through_and_no_other():
    breaker = breaker_after(True, max_failures=1, open_s=NO_TIME_S)

    assert [is_admitted(breaker) for _ in range(3)] == [True, False, False]
    assert breaker.state is CircuitState.OPEN


def test_half_open_lets_exactly_one_of_several_threads_through():
    threads = 8
    for _ in range(20):
        breaker = breaker_after(True, max_failures=1, open_s=NO_TIME_S)
        together = Barrier(threads)

        def admit(breaker: CircuitBreaker = breaker, together: Barrier = together) -> bool:
            together.wait()
            return is_admitted(breaker)

        with ThreadPoolExecutor(threads) as pool:
            admitted = [pool.submit(admit) for _ in range(threads)]
        assert sum(one.result() for one in admitted) == 1


def test_a_call_during_a_probe_is_refused_for_a_second():
    breaker = breaker_after(True, max_failures=1, open_s=NO_TIME_S)
    breaker.admit()

    with pytest.raises(CircuitOpenError) as caught:
        breaker.admit()
    assert caught.value.retry_after == 1.0


def test_a_probe_that_succeeds_closes_it_for_all_calls():
    breaker = breaker_after(True, max_failures=1, open_s=NO_TIME_S)
    breaker.record(is_probe=breaker.admit(), failed=False)

    assert breaker.state is CircuitState.CLOSED
    assert [is_admitted(breaker) for _ in range(3)] == [True, True, True]


def test_after_it_closed_the_count_starts_from_zero():
    breaker = breaker_after(True, True, max_failures=2, open_s=NO_TIME_S)
    breaker.record(is_probe=breaker.admit(), failed=False)
    breaker.record(failed=True)

    assert breaker.state is CircuitState.CLOSED


def test_a_probe_that_fails_opens_it_for_the_same_time_again(clock):
    breaker = breaker_after(True, True, max_failures=2, open_s=60.0)
    clock.now += 60.0
    is_probe = breaker.admit()
    clock.now += 3.0
    breaker.record(failed=True, is_probe=is_probe)
    clock.now += 59.0

    with pytest.raises(CircuitOpenError) as caught:
        breaker.admit()
    assert caught.value.retry_after == 1.0
    clock.now += 1.0
    assert is_admitted(breaker)


def test_after_a_probe_that_says_nothing_the_next_call_is_the_probe():
    breaker = breaker_after(True, max_failures=1, open_s=NO_TIME_S)
    breaker.record(is_probe=breaker.admit(), failed=None)

    assert breaker.state is CircuitState.HALF_OPEN
    assert [is_admitted(breaker) for _ in range(2)] == [True, False]


def test_the_end_of_an_earlier_call_does_not_admit_a_second_probe():
    breaker = breaker_after(max_failures=1, open_s=NO_TIME_S)
    breaker.admit()  # a slow call
    breaker.admit()
    breaker.record(failed=True)  # another one opens the circuit
    breaker.admit()  # the probe
    breaker.record(failed=None)  # the slow one ends and says nothing about the service

    assert not is_admitted(breaker)


def test_the_success_of_an_earlier_call_closes_it():
    breaker = breaker_after(max_failures=1)
    slow = breaker.admit()
    breaker.record(failed=True, is_probe=breaker.admit())
    breaker.record(failed=False, is_probe=slow)

    assert breaker.state is CircuitState.CLOSED


def test_admit_returns_whether_the_call_is_the_probe():
    breaker = breaker_after(max_failures=1, open_s=NO_TIME_S)

    assert breaker.admit() is False
    breaker.record(failed=True)
    assert breaker.admit() is True


def test_opening_and_closing_are_logged_once_each_with_the_name_of_the_service():
    with capture_records("chunkproof.net.resilience") as records:
        breaker = breaker_after(True, True, max_failures=2, open_s=NO_TIME_S)
        for failed in (True, False, False):  # two probes and an ordinary call
            breaker.record(is_probe=breaker.admit(), failed=failed)

    assert [(record.getMessage(), record.dependency) for record in records] == [
        ("circuit opened", "qdrant"),
        ("circuit closed", "qdrant"),
    ]
