"""The attacks of `make attack` on files that runs share, with small numbers."""

import pytest

from checks.attack import concurrency, kills, shards
from support.qdrant_server import QdrantServer


@pytest.mark.server
def test_audits_at_the_same_time_give_the_reports_that_they_give_alone(
    served_qdrant: QdrantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_QDRANT_URL", served_qdrant.url)
    monkeypatch.setattr(concurrency, "CHUNKS", 1_000)
    found = concurrency.run(seed=5, seconds=60, most=3)
    assert found.details == ()
    assert found.tried == found.held > 0


@pytest.mark.server
def test_killed_commands_lose_nothing_and_leave_nothing_half_written(
    served_qdrant: QdrantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_QDRANT_URL", served_qdrant.url)
    monkeypatch.setattr(kills, "CHUNKS", 1_000)
    found = kills.run(seed=5, seconds=60, most=6)
    assert found.details == ()
    assert found.tried == found.held > 0


def test_killed_writers_of_an_edge_collection_leave_every_write_whole() -> None:
    found = shards.run(seed=5, seconds=60, most=4)
    assert found.details == ()
    assert found.tried == found.held > 0
