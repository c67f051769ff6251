"""The time budget of a request."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from chunkproof.base.request import Deadline, Stopwatch, current, run_with_timeout


@pytest.mark.parametrize("budget", [0, -1, -1e12])
def test_the_remaining_time_is_never_negative(budget):
    assert Deadline(budget).remaining_ms() == 0.0


def test_the_remaining_time_is_the_budget_less_the_elapsed_time():
    deadline = Deadline(1e9)
    spent = deadline.elapsed_ms()
    remaining = deadline.remaining_ms()

    assert spent >= 0
    assert remaining <= 1e9 - spent


def test_elapsed_time_grows_and_remaining_time_shrinks():
    deadline = Deadline(1e9)

    assert deadline.elapsed_ms() <= deadline.elapsed_ms()
    assert deadline.remaining_ms() >= deadline.remaining_ms()


def test_no_deadline_is_enforced_by_default():
    assert current() is None


def test_the_innermost_deadline_is_enforced_and_then_the_outer_one_again():
    outer, inner = Deadline(10), Deadline(5)

    with outer.enforced():
        assert current() is outer
        with inner.enforced():
            assert current() is inner
        assert current() is outer
    assert current() is None


def test_an_exception_inside_ends_the_enforcement():
    with pytest.raises(KeyError), Deadline(10).enforced():
        raise KeyError
    assert current() is None


def test_the_same_deadline_can_be_enforced_again():
    deadline = Deadline(10)

    for _ in range(2):
        with deadline.enforced():
            assert current() is deadline


def test_the_deadline_is_not_enforced_in_another_thread():
    with Deadline(10).enforced(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(current).result() is None


def test_a_stopwatch_counts_up_from_zero_to_the_microsecond():
    watch = Stopwatch()
    first, second = watch.ms(), watch.ms()

    assert 0 <= first <= second
    assert first == round(first, 3)


def test_a_call_with_a_timeout_returns_and_raises_like_the_call_itself():
    assert run_with_timeout(lambda: 7, 10) == 7
    with pytest.raises(ZeroDivisionError):
        run_with_timeout(lambda: 1 // 0, 10)


def test_a_call_that_takes_longer_than_its_timeout_raises_timeout_error():
    released = Event()
    with pytest.raises(TimeoutError):
        run_with_timeout(lambda: released.wait(20), 0.01)
    released.set()
