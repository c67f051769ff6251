"""Fixtures on real parts: Qdrant embedded and served, Cohere's SDK on a loopback server."""

import logging
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from uuid import uuid4

import cohere
import httpx
import pydantic
import pytest
import qdrant_client
from hypothesis import settings

import chunkproof
from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.embedders.local_model import MiniLm
from chunkproof.net.s3 import Bucket
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import WritableStore

from support.cohere_server import CohereServer, cohere_server
from support.qdrant_server import NoServerError, QdrantServer, qdrant_server
from support.stores import MemoryStore

pytest_plugins = ["support.leaks"]

# How many examples a property test tries. No deadline: a busy machine is no failure.
settings.register_profile("default", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Where a built layer is to be tested (`make test-built`), and not the sources.
LAYER = os.environ.get("CHUNKPROOF_LAYER")


def pytest_configure() -> None:
    """Nothing but the layer may be what a run on the layer tests."""
    for package in (chunkproof, cohere, httpx, pydantic, qdrant_client):
        if LAYER and not Path(package.__file__ or "").is_relative_to(LAYER):
            pytest.exit(f"{package.__name__} is not the layer's: {package.__file__}", returncode=2)


@pytest.fixture(autouse=True, scope="session")
def _embed_once() -> Iterator[None]:
    """Let the local model embed each text once in a run: many tests load the same handbook."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MiniLm, "_embed_text", cache(MiniLm._embed_text))
        yield


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the settings or the data folder of whoever runs it."""
    for variable in (*Settings.variables(), "CO_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data-home"))


@pytest.fixture
def deadline() -> Deadline:
    """Time enough for any test."""
    return Deadline(60_000)


@pytest.fixture(scope="session")
def served_qdrant() -> Iterator[QdrantServer]:
    """A real Qdrant server, the same for the whole run; where there cannot be one, its tests skip."""
    try:
        with qdrant_server() as server:
            yield server
    except NoServerError as reason:
        if os.environ.get("CHUNKPROOF_REQUIRE_SERVER"):
            pytest.fail(f"a Qdrant server is required here: {reason}")
        pytest.skip(f"no Qdrant server: {reason}")


@pytest.fixture
def server_store(served_qdrant: QdrantServer) -> Iterator[WritableStore]:
    """A store on the real server."""
    store = ServerStore(served_qdrant.url, DeadlineTransport())
    yield store
    store.close()


@pytest.fixture
def memory_store() -> Iterator[WritableStore]:
    """An embedded store that leaves nothing behind."""
    store = MemoryStore()
    yield store
    store.close()


@pytest.fixture
def word_store() -> Iterator[WritableStore]:
    """The same, with an index of the words in texts."""
    store = MemoryStore(words=True)
    yield store
    store.close()


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.server)])
def store(request: pytest.FixtureRequest) -> WritableStore:
    """Every kind of store in turn."""
    chosen: WritableStore = request.getfixturevalue(f"{request.param}_store")
    return chosen


@pytest.fixture
def collection() -> str:
    """A name that no other test uses."""
    return f"test-{uuid4().hex[:12]}"


@pytest.fixture
def cohere_api() -> Iterator[CohereServer]:
    """A loopback server that speaks Cohere's API."""
    with cohere_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _logs_enabled() -> None:
    """Undo what another test, or a library that it started, did to the functions' logger."""
    logging.disable(logging.NOTSET)
    logger = logging.getLogger("chunkproof")
    logger.disabled = False
    if logger.level > logging.INFO:
        logger.setLevel(logging.INFO)


@pytest.fixture
def s3_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An empty bucket in a simulated S3."""
    from moto import mock_aws  # half a second to import: not for every test file

    from chunkproof.net import s3

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        import boto3

        s3.aws_client.cache_clear()
        boto3.client("s3").create_bucket(Bucket="published")
        yield s3.Bucket("published")
        s3.aws_client.cache_clear()
