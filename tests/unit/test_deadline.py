"""The time budget of a request."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from chunkproof.deadline import Deadline, Stopwatch, current, run_with_timeout


@pytest.mark.parametrize("budget", [0, -1, -1e12])
def test_what_remains_is_never_negative(budget):
    assert Deadline(budget).remaining_ms() == 0.0


def test_a_budget_is_spent_by_what_has_passed():
    deadline = Deadline(1e9)
    spent = deadline.elapsed_ms()
    remaining = deadline.remaining_ms()

    assert spent >= 0
    assert remaining <= 1e9 - spent


def test_time_does_not_run_backwards():
    deadline = Deadline(1e9)

    assert deadline.elapsed_ms() <= deadline.elapsed_ms()
    assert deadline.remaining_ms() >= deadline.remaining_ms()


def test_none_is_applied_outside():
    assert current() is None


def test_the_innermost_is_applied_and_the_outer_one_comes_back():
    outer, inner = Deadline(10), Deadline(5)

    with outer.enforced():
        assert current() is outer
        with inner.enforced():
            assert current() is inner
        assert current() is outer
    assert current() is None


def test_a_failure_inside_takes_the_deadline_off():
    with pytest.raises(KeyError), Deadline(10).enforced():
        raise KeyError
    assert current() is None


def test_the_same_deadline_may_be_applied_again():
    deadline = Deadline(10)

    for _ in range(2):
        with deadline.enforced():
            assert current() is deadline


def test_another_thread_has_no_part_in_it():
    with Deadline(10).enforced(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(current).result() is None


def test_a_stopwatch_counts_up_from_zero_to_the_microsecond():
    watch = Stopwatch()
    first, second = watch.ms(), watch.ms()

    assert 0 <= first <= second
    assert first == round(first, 3)


def test_a_bounded_call_gives_what_it_gives_and_raises_what_it_raises():
    assert run_with_timeout(lambda: 7, 10) == 7
    with pytest.raises(ZeroDivisionError):
        run_with_timeout(lambda: 1 // 0, 10)


def test_a_call_that_takes_longer_than_its_bound_is_left_behind():
    released = Event()
    with pytest.raises(TimeoutError):
        run_with_timeout(lambda: released.wait(20), 0.01)
    released.set()
