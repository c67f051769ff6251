"""Events that no gateway sends get an error envelope; the handlers never raise."""

import json
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from chunkproof.contract.model import parse_time
from chunkproof.net.resilience import MAX_RETRY_AFTER_S, retry_after
from chunkproof.service.container import check_health
from chunkproof_cli.local.gateway import FUNCTIONS, load_function

from support.api import LambdaContext, committed_event
from support.chunks import make_services
from support.memory_handlers import in_memory_handlers

STRANGE: tuple[Any, ...] = (None, [], "x", 5, True, {}, [[]], {"http": None}, {"a": [1]}, ["name"], "\ud800", 1e400)


@pytest.fixture(scope="module", autouse=True)
def _handlers() -> Iterator[None]:
    with in_memory_handlers():
        yield


def check(event: Any) -> None:
    for name in FUNCTIONS:
        proxy = load_function(name).lambda_handler(event, LambdaContext())
        assert 200 <= proxy["statusCode"] < 600
        assert json.loads(proxy["body"])
        assert proxy["headers"]["x-request-id"]


@pytest.mark.parametrize("event", STRANGE)
def test_anything_at_all_is_answered(event):
    check(event)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths(inner, (*path, name))


def replace(event: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = deepcopy(event)
    target = changed
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    "name", ["search.200.json", "validate-chunk.200-match.json", "health.200-deep.json", "collections.200.json"]
)
def test_a_real_event_with_any_part_replaced_is_answered(name):
    event, random = committed_event(name), Random(18)
    event.setdefault("pathParameters", {"name": "docs"})
    event.setdefault("queryStringParameters", {"deep": "false"})
    changes = [(path, value) for path in paths(event) if path for value in STRANGE]

    for path, value in random.sample(changes, 60):
        check(replace(event, path, value))


@pytest.mark.parametrize("text", ["2020-01-01T00:00:00+01:00:30", "2020-01-01T00:00:00-00:00:01"])
def test_an_offset_with_seconds_is_no_iso_date(text):
    assert parse_time(text) is None


def test_an_offset_of_minutes_is():
    assert parse_time("2020-01-01T00:00:00+05:45") is not None


@pytest.mark.parametrize("value", ["3601", "99999999999", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_wait_is_limited_to_an_hour(value):
    assert retry_after({"retry-after": value}) == MAX_RETRY_AFTER_S


@pytest.mark.parametrize("vector", [[float("nan")] * 3, [float("inf"), 0.0], [], [0.0, 0.0]])
def test_deep_health_is_down_when_the_embedder_returns_no_embedding(memory_store, deadline, vector):
    class Embedder:
        model, dimension, max_batch = "m", None, 1

        def excess(self, _text: str) -> None:
            return None

        def embed(self, *_: Any) -> list[list[float]]:
            return [vector]

    health = check_health(services=make_services(memory_store, "docs", Embedder()), deadline=deadline)

    assert health.status == "down"
    assert health.embedder is not None
    assert health.embedder.status == "down"
