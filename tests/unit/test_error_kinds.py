"""Errors that are also Python's own kinds keep their code where commands handle the system's errors."""

import pytest

from chunkproof.base.errors import ChunkproofError, VectorStoreTimeoutError, VectorStoreUnavailableError
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.embedders.local_model import MiniLm
from chunkproof_cli.commands.load import load_chunks
from chunkproof_cli.loading import Loader


@pytest.mark.parametrize("kind", [VectorStoreUnavailableError, VectorStoreTimeoutError])
def test_a_store_that_is_lost_while_loading_is_reported_as_such(kind, monkeypatch):
    def lose(*_: object, **_options: object) -> None:
        raise kind("localhost:6333", "The connection failed")

    class Connection:
        services = Services(Settings.from_env({}), None, MiniLm())
        store = embedder = None

    monkeypatch.setattr(Loader, "load", lose)
    with pytest.raises(ChunkproofError, match="Qdrant service unavailable at localhost:6333") as raised:
        load_chunks([], 0, "docs", Connection)
    assert type(raised.value) is kind


def test_both_parts_of_a_message_stay_in_the_text_and_nothing_is_taken_for_an_errno():
    error = VectorStoreUnavailableError("host", "reason", retry_after=1.5)

    assert isinstance(error, ConnectionError)
    assert str(error) == "Qdrant service unavailable at host; reason"
    assert (error.messages[1], error.retry_after, error.errno, error.strerror) == ("reason", 1.5, None, None)
