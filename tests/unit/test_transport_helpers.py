"""Helpers of the transport: `retry-after`, and the host for messages."""

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.net.resilience import retry_after
from chunkproof.net.transport import _count, host_of


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("0", 0.0), ("7", 7.0), (" 30 ", 30.0), ("1.5", 1.5), (".5", 0.5), ("120.", 120.0)],
)
def test_retry_after_is_read_in_seconds_and_fractions(value, seconds):
    assert retry_after({"retry-after": value}) == seconds


@pytest.mark.parametrize("name", ["retry-after", "Retry-After", "RETRY-AFTER"])
def test_the_header_name_ignores_case(name):
    assert retry_after({name: "7"}) == 7.0
    assert retry_after(httpx.Headers({name: "7"})) == 7.0


def test_a_future_date_is_the_time_until_then():
    at = datetime.now(UTC) + timedelta(hours=1)

    seconds = retry_after({"retry-after": format_datetime(at, usegmt=True)})

    assert 3500 < seconds <= 3600


def test_a_past_date_is_zero_seconds():
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0


@pytest.mark.parametrize("headers", [None, {}, {"content-type": "text/plain"}])
def test_without_the_header_the_result_is_none(headers):
    assert retry_after(headers) is None


@pytest.mark.parametrize(
    "value",
    ["", " ", "soon", "-5", "1.2.3", ".", "1e5", "nan", "inf", "²", "5s", "2025-01-01", "Wed, 99 Foo 2015"],
)
def test_an_invalid_value_is_none(value):
    assert retry_after({"retry-after": value}) is None


def test_a_number_beyond_any_float_is_none():
    assert retry_after({"retry-after": "9" * 400}) is None


def test_a_date_with_an_absurd_time_zone_is_none():
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 +99999999999999999999"}) is None


@given(
    st.text()
    | st.from_regex(r"(Mon, )?\d{1,3} (Jan|Feb) \d{1,5} \d{1,2}:\d\d(:\d\d)? ([+-]\d{1,6}|GMT|EST|X)?")
    | st.text(alphabet="0123456789., :+-GMTJan", max_size=30)
)
def test_every_value_is_none_or_a_finite_number_of_seconds(value):
    seconds = retry_after({"retry-after": value})

    assert seconds is None or (seconds >= 0 and math.isfinite(seconds))


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://localhost:6333", "localhost:6333"),
        ("https://api.cohere.com/v2/embed?key=1#x", "api.cohere.com"),
        ("https://key:secret@cluster.example:6334/path", "cluster.example:6334"),
        ("https://CLUSTER.example", "cluster.example"),
        ("localhost", "?"),
        ("", "?"),
    ],
)
def test_only_host_and_port_of_a_url_are_shown(url, host):
    assert host_of(url) == host


def test_an_ipv6_host_keeps_its_brackets():
    assert host_of("http://[::1]:6333") == "[::1]:6333"


@pytest.mark.parametrize("url", ["http://localhost:abc", "http://localhost:99999", "http://[::1"])
def test_an_invalid_url_shows_no_more_than_its_host(url):
    assert host_of(url) in ("?", "localhost")


@given(st.text("{[:a", max_size=60), st.sampled_from("{[:"), st.integers(0, 20))
def test_signs_of_a_response_are_counted_as_far_as_matters(body, sign, most):
    assert _count(body.encode(), sign.encode(), most) == min(body.count(sign), most + 1)
