"""A small version of `make why-oracle`: faults are planted by other code than the one that looks for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chunkproof.embedders.local_model import local_model
from chunkproof.stores.server import ServerStore

from support.why_faults import FAULTS, IMPOSSIBLE, MODES, OUTSIDE, Embedding
from support.wordllama_model import WORDLLAMA
from tools.checks.why_oracle import Oracle

pytestmark = pytest.mark.server
SEED = 5
# An index of a few points misses nothing; `test_suite_exact.py` has a poor one.
SINGLE = [name for name in FAULTS if name != "index"]
PAIRS = [("stale vector", "filter"), ("text changed", "threshold"), ("deleted", "duplicates"), ("other model", "split")]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory, served_qdrant: object) -> Iterator[Oracle]:
    """The chunks on control and calibration of robots, and their questions."""
    from chunkproof.net.transport import DeadlineTransport

    store = ServerStore(served_qdrant.url, DeadlineTransport())  # type: ignore[attr-defined]
    folder = Path(tmp_path_factory.mktemp("oracle"))
    yield Oracle(store, folder, Embedding(local_model()), size=60, seed=SEED, documents="robotics-c")
    store.close()


@pytest.mark.parametrize("faults", [*((name,) for name in SINGLE), *PAIRS], ids=" and ".join)
def test_a_planted_fault_is_named_and_nothing_else(oracle: Oracle, faults: tuple[str, ...]) -> None:
    assert frozenset(faults) not in IMPOSSIBLE
    [world] = oracle.draw(faults, 1)
    found = oracle.judge(world)
    assert found is not None
    assert set(found.named) == set(faults), found.line


@pytest.fixture(scope="module")
def without_trace(tmp_path_factory: pytest.TempPathFactory, served_qdrant: object) -> Iterator[Oracle]:
    """The whole handbook and some of Python's documentation, embedded with a model that takes no time."""
    from chunkproof.net.transport import DeadlineTransport

    store = ServerStore(served_qdrant.url, DeadlineTransport())  # type: ignore[attr-defined]
    folder = Path(tmp_path_factory.mktemp("without-trace"))
    yield Oracle(store, folder, Embedding(WORDLLAMA), size=300, seed=SEED)
    store.close()


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name in OUTSIDE for mode in MODES.get(name, (None,))])
def test_a_fault_without_a_trace_is_named_or_left_open_in_every_mode(
    without_trace: Oracle, name: str, mode: str | None
) -> None:
    for world in without_trace.draw_outside(name, mode, 1):
        found = without_trace.judge(world, with_snapshot=False)
        if found is None:  # the search finds it this time: equal scores are returned in any order
            continue
        assert not found.is_wrong, found.line
        assert found.is_right, found.line
