"""The local model is loaded early only for commands that will embed a query with it."""

import pytest

from chunkproof.embedders import local_model
from chunkproof_cli.main import preload_model


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was loaded, without loading it."""
    found: list[str] = []

    class Model:
        def prepare(self) -> None:
            found.append("local model")

    monkeypatch.setattr(local_model, "local_model", Model)
    return found


@pytest.mark.parametrize("line", ["search backups --mode hybrid", "serve --port 0"])
def test_a_search_or_a_server_with_the_local_model_loads_it(loaded: list[str], line: str) -> None:
    preload_model(line.split())
    assert loaded == ["local model"]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "demo",
        "validate search",
        "serve --workers 2",
        "search --help",
        "search backups --mode text",
        "search backups --mode=text",
        "search backups --api http://localhost:8080",
        "search backups --embedder cohere",
    ],
)
def test_other_commands_do_not(loaded: list[str], line: str) -> None:
    preload_model(line.split())
    assert loaded == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("COHERE_API_KEY", "key"),
        ("CHUNKPROOF_EMBEDDER", "cohere"),
        ("CHUNKPROOF_MODELS", '{"docs": {"provider": "openai", "model": "text-embedding-3-small"}}'),
        ("CHUNKPROOF_MAX_TOP_K", "not a number"),
    ],
)
def test_a_search_with_another_embedder_or_wrong_settings_does_not(
    loaded: list[str], monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    preload_model(["search", "backups"])
    assert loaded == []
