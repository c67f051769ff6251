"""The retry policy: which failed calls are repeated, after which pause, and which count against the service."""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.base.request import Deadline
from chunkproof.net.resilience import LARGE_BYTES, Attempt, CircuitOpenError, pause_before_retry

PLENTY = 60_000.0
ALL_STATUSES = range(200, 600)
RETRIED = {429, 500, 502, 503, 504}
NOT_CONNECTED = [httpx.ConnectError("refused")]
TIMEOUTS = [
    httpx.ConnectTimeout("late"),
    httpx.ReadTimeout("late"),
    httpx.WriteTimeout("late"),
    httpx.PoolTimeout("late"),
]
BROKEN = [
    httpx.ReadError("reset"),
    httpx.WriteError("broken pipe"),
    httpx.RemoteProtocolError("closed without a response"),
    httpx.TransportError("something else"),
    CircuitOpenError(1.0),
]

milliseconds = st.floats(0, 5_000)
attempts = st.builds(
    Attempt,
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    took_ms=milliseconds,
    status=st.sampled_from([200, 401, 404, *RETRIED]),
    retry_after=st.none() | st.floats(0, 5),
) | st.builds(
    Attempt,
    method=st.sampled_from(["GET", "POST", "PUT"]),
    took_ms=milliseconds,
    error=st.sampled_from([*NOT_CONNECTED, *TIMEOUTS, *BROKEN]),
    was_stale=st.booleans(),
)


def response(status: int, method: str = "POST", took_ms: float = 5.0, **rest: float) -> Attempt:
    return Attempt(method, took_ms, status, **rest)


def failure(error: httpx.TransportError, method: str = "POST", *, was_stale: bool = False) -> Attempt:
    return Attempt(method, 5.0, error=error, was_stale=was_stale)


def name(error: Exception) -> str:
    return type(error).__name__


# which calls


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_read_is_repeated_after_these_statuses_only(method):
    assert {status for status in ALL_STATUSES if response(status, method).is_worth_repeating} == RETRIED


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_a_write_that_got_a_response_is_never_repeated(method):
    assert not any(response(status, method).is_worth_repeating for status in ALL_STATUSES)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("error", NOT_CONNECTED, ids=name)
def test_a_call_without_a_connection_is_repeated_with_any_method(method, error):
    assert failure(error, method).is_worth_repeating


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
@pytest.mark.parametrize("error", [*TIMEOUTS, *BROKEN], ids=name)
def test_a_call_that_broke_on_a_new_connection_is_not_repeated(method, error):
    assert not failure(error, method).is_worth_repeating


@pytest.mark.parametrize("error", BROKEN[:3], ids=name)
@pytest.mark.parametrize(("method", "is_repeated"), [("GET", True), ("POST", True), ("PUT", False)])
def test_a_call_on_a_stale_connection_is_repeated_if_it_is_a_read(error, method, is_repeated):
    assert failure(error, method, was_stale=True).is_worth_repeating is is_repeated


# how often, and after which pause


@pytest.mark.parametrize(("number", "is_repeated"), [(1, True), (2, False), (3, False)])
def test_a_call_is_repeated_once(number, is_repeated):
    pause = pause_before_retry(response(503), number, Deadline(PLENTY))

    assert (pause is not None) is is_repeated


def test_a_call_that_would_fail_again_has_no_pause():
    assert pause_before_retry(response(400), 1, Deadline(PLENTY)) is None
    assert pause_before_retry(response(200), 1, None) is None


def test_a_pause_is_random_and_at_most_a_fifth_of_a_second():
    pauses = [pause_before_retry(response(503), 1, Deadline(PLENTY)) for _ in range(50)]

    assert all(0.0 <= pause <= 0.2 for pause in pauses)
    assert len(set(pauses)) > 40, "callers that failed together do not retry together"


def test_a_call_on_a_stale_connection_is_repeated_without_a_pause():
    stale = failure(httpx.RemoteProtocolError("closed"), was_stale=True)

    assert pause_before_retry(stale, 1, Deadline(PLENTY)) == 0.0
    assert pause_before_retry(stale, 1, None) == 0.0


def test_a_retry_after_is_added_to_the_random_pause():
    pauses = [pause_before_retry(response(429, retry_after=3.0), 1, Deadline(PLENTY)) for _ in range(50)]

    assert all(3.0 <= pause <= 3.2 for pause in pauses)


@pytest.mark.parametrize(
    ("retry_after", "took_ms", "budget_ms", "is_repeated"),
    [
        # A pause of up to 200 ms and at least 100 ms for the call must fit.
        (None, 5.0, 1_300.0, True),
        (None, 5.0, 90.0, False),
        (None, 5.0, 0.0, False),
        # The next attempt may take as long as the last one.
        (None, 1_000.0, 2_200.0, True),
        (None, 1_000.0, 990.0, False),
        (1.0, 5.0, 2_300.0, True),
        (1.0, 5.0, 1_090.0, False),
        (7.0, 5.0, 2_000.0, False),
    ],
)
def test_a_call_is_repeated_only_if_it_fits_into_the_time_left(retry_after, took_ms, budget_ms, is_repeated):
    attempt = response(503, took_ms=took_ms, retry_after=retry_after)
    pauses = [pause_before_retry(attempt, 1, Deadline(budget_ms)) for _ in range(20)]

    assert all((pause is not None) is is_repeated for pause in pauses)


@pytest.mark.parametrize(("retry_after", "is_repeated"), [(None, True), (0.0, True), (0.21, False), (3.0, False)])
def test_without_a_deadline_only_short_pauses_are_made(retry_after, is_repeated):
    pauses = [pause_before_retry(response(429, retry_after=retry_after), 1, None) for _ in range(20)]

    assert all((pause is not None) is is_repeated for pause in pauses)
    assert all(pause <= 0.2 for pause in pauses if pause is not None)


@given(attempts, st.integers(1, 3), milliseconds)
def test_a_pause_and_another_attempt_as_long_as_the_last_always_fit_into_the_time_left(attempt, number, budget_ms):
    pause = pause_before_retry(attempt, number, Deadline(budget_ms))

    if pause is not None:
        assert number == 1
        assert pause >= (attempt.retry_after or 0.0)
        assert pause * 1000 + max(attempt.took_ms, 100.0) <= budget_ms


@given(attempts, milliseconds)
def test_a_call_worth_repeating_is_repeated_if_it_surely_fits(attempt, spare_ms):
    wait_ms = (attempt.retry_after or 0.0) * 1000
    # One more second, in case the machine stalls between the two lines below.
    budget = Deadline(wait_ms + 200 + max(attempt.took_ms, 100.0) + 1_000 + spare_ms)

    assert (pause_before_retry(attempt, 1, budget) is not None) is attempt.is_worth_repeating


# what counts against the service


def test_statuses_from_500_on_count_as_failures_of_the_service():
    assert {status for status in ALL_STATUSES if response(status).is_service_failure(None)} == set(range(500, 600))
    assert response(429).is_service_failure(Deadline(PLENTY)) is False


@pytest.mark.parametrize("budget", [None, Deadline(PLENTY)])
@pytest.mark.parametrize("error", [*NOT_CONNECTED, *BROKEN], ids=name)
def test_a_connection_that_failed_counts_as_a_failure_of_the_service(error, budget):
    assert failure(error).is_service_failure(budget) is True


@pytest.mark.parametrize("error", BROKEN[:3], ids=name)
def test_a_stale_connection_says_nothing_about_the_service(error):
    assert failure(error, was_stale=True).is_service_failure(Deadline(PLENTY)) is None


@pytest.mark.parametrize("error", TIMEOUTS, ids=name)
@pytest.mark.parametrize(
    ("took_ms", "budget_ms", "counts"),
    [(500.0, 2_000, True), (499.0, 2_000, None), (2_000.0, 2_000, True), (0.5, 0, None), (1.0, 0, True)],
)
def test_a_timeout_counts_only_if_the_call_had_a_quarter_of_the_budget(error, took_ms, budget_ms, counts):
    assert Attempt("POST", took_ms, error=error).is_service_failure(Deadline(budget_ms)) is counts


@pytest.mark.parametrize("error", TIMEOUTS, ids=name)
def test_without_a_deadline_every_timeout_counts(error):
    assert Attempt("POST", 1.0, error=error).is_service_failure(None) is True


@pytest.mark.parametrize("error", [*BROKEN, *(error for error in TIMEOUTS if "Connect" not in name(error))], ids=name)
def test_a_large_call_that_broke_or_timed_out_says_nothing_about_the_service(error):
    attempt = Attempt("POST", 1_000.0, error=error, size=LARGE_BYTES + 1)
    assert attempt.is_service_failure(Deadline(1_000)) is None
    assert Attempt("POST", 1_000.0, error=error, size=LARGE_BYTES).is_service_failure(Deadline(1_000)) is True


def test_a_large_call_counts_if_there_is_no_connection_or_a_response():
    for error in NOT_CONNECTED:
        assert Attempt("POST", 5.0, error=error, size=LARGE_BYTES + 1).is_service_failure(Deadline(PLENTY)) is True
    assert response(502, size=LARGE_BYTES + 1).is_service_failure(None) is None
    assert response(413, size=LARGE_BYTES + 1).is_service_failure(None) is False


def test_a_call_that_asks_for_much_says_nothing_about_the_service_though_it_is_small():
    heavy = Deadline(1_000).limit_responses(1_000_000, is_heavy=True)
    for error in (httpx.ReadTimeout("late"), httpx.ReadError("broken")):
        assert Attempt("POST", 1_000.0, error=error).is_service_failure(heavy) is None
    assert Attempt("POST", 1_000.0, error=httpx.ConnectError("none")).is_service_failure(heavy) is True
    assert response(503).is_service_failure(heavy) is None
