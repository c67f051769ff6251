"""The attacks of `make attack`, with small numbers."""

import time
from importlib import import_module

import pytest

from support.qdrant_server import QdrantServer
from tools.checks.attack import concurrency, kills
from tools.checks.attack.__main__ import KINDS
from tools.checks.attack.attack import GRACE, MORE_SECONDS, Attack

# How often each kind is tried. Floods have a test of their own.
NUMBERS = {
    "originals": 5,
    "searches": 20,
    "budgets": 4,
    "absence": 20,
    "scans": 6,
    "repairs": 8,
    "events": 40,
    "marks": 1,
    "tenants": 60,
    "outputs": 200,
    "faults": 4,
    "sockets": 15,
    "concurrency": 3,
    "kills": 6,
    "shards": 4,
    "leaks": 3,
}


def test_every_kind_is_tried_here_or_in_the_test_of_floods() -> None:
    assert {*NUMBERS, "floods"} == set(KINDS)


@pytest.mark.server
@pytest.mark.parametrize("kind", NUMBERS)
def test_what_is_attacked_holds(kind: str, served_qdrant: QdrantServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_QDRANT_URL", served_qdrant.url)
    monkeypatch.setattr(concurrency, "CHUNKS", 1_000)
    monkeypatch.setattr(kills, "CHUNKS", 1_000)
    attack = Attack(kind, seed=5, most=NUMBERS[kind])

    import_module(f"tools.checks.attack.{kind}").run(attack)

    assert attack.details == []
    assert attack.tried == attack.held >= NUMBERS[kind]


def test_a_kind_that_goes_on_for_too_long_is_stopped_and_keeps_its_count() -> None:
    attack, started = Attack("slow", seed=1, seconds=0.0), time.monotonic()

    with attack.limit_time():
        attack.note(0.1)
        attack.note(0.2, "slipped")
        time.sleep(60)

    assert time.monotonic() - started < MORE_SECONDS * GRACE + 5
    assert (attack.tried, attack.held, attack.slowest, attack.details) == (2, 1, 0.2, ["slipped"])
