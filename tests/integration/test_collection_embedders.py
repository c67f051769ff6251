"""Each collection's queries are embedded, cached and answered by its own embedder: services, handlers, Python."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

import chunkproof
from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.contract import SearchQuery
from chunkproof.embedders.embedder_port import InputType
from chunkproof.search.single import search
from chunkproof.service import container
from chunkproof.service.container import CollectionEmbedders, EmbedderBuilder
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.store_port import Point, WritableStore

from support.api import new_process
from support.chunks import fill
from support.cohere_server import hashed


class Named:
    """An embedder of four values that counts its calls."""

    max_batch, dimension = 8, 4

    def __init__(self, name: str, **optional: Any) -> None:
        self.model, self.calls = name, 0
        for field, value in optional.items():
            setattr(self, field, value)

    def excess(self, _text: str) -> str | None:
        return None

    def embed(self, texts: Sequence[str], _input_type: InputType, _deadline: Deadline) -> list[list[float]]:
        self.calls += len(texts)
        return [hashed(4)(f"{self.model} {text}") for text in texts]


@pytest.fixture
def two(memory_store: WritableStore) -> tuple[Services, Named, Named]:
    """Services with two collections, each with an embedder."""
    general, own = Named("general"), Named("own", query_model="own-fast")
    for name, model in (("a", "general"), ("b", "own")):
        vector = tuple(hashed(4)(f"{model} text"))
        fill(memory_store, name, Point(1, {"text": "text", "embedding_model": model}, vector=vector), size=4)
    settings = Settings.from_env({"CHUNKPROOF_COLLECTION": "a", "CHUNKPROOF_TENANT_CLAIM": "t"} | TENANT)
    return Services(settings, memory_store, general, embedders={"b": own}), general, own


TENANT = {"CHUNKPROOF_TENANT_FIELD": "tenant"}


def find(services: Services, collection: str) -> chunkproof.RetrievalResponse:
    query = SearchQuery.parse({"query_text": "text", "collection": collection})
    return search(query, services.collection(query.collection, Deadline(5_000)))


def test_a_query_is_embedded_by_the_embedder_of_its_collection(two: tuple[Services, Named, Named]) -> None:
    services, general, own = two
    assert find(services, "a").execution.embedding_model == "general"
    found = find(services, "b")
    assert found.execution.embedding_model == "own-fast"
    assert found.results[0].similarity_score == pytest.approx(1.0, abs=1e-6)
    assert (general.calls, own.calls) == (1, 1)


def test_the_same_text_is_cached_once_for_each_embedder(two: tuple[Services, Named, Named]) -> None:
    services, general, own = two
    cached = [find(services, name).execution.embedding_cached for name in ("a", "b", "a", "b")]
    assert cached == [False, False, True, True]
    assert (general.calls, own.calls) == (1, 1)


def test_tenants_have_the_embedders_of_the_collections_and_a_cache_of_their_own(
    two: tuple[Services, Named, Named],
) -> None:
    services, _, own = two
    find(services, "b")
    for tenant in ("red", "blue"):
        assert find(services.for_tenant(tenant), "b").execution.embedding_cached is False
        assert find(services.for_tenant(tenant), "b").execution.embedding_model == "own-fast"
    assert own.calls == 3


def test_another_size_names_both_sizes_and_the_entry_of_the_collection(two: tuple[Services, Named, Named]) -> None:
    services, *_ = two
    fill(services.store, "c", Point(1, {"text": "text"}, vector=(1.0, 0.0, 0.0)), size=3)  # type: ignore[arg-type]
    services.embedders = {"c": Named("own")}
    with pytest.raises(InvalidParameterError) as caught:
        find(services, "c")
    assert (caught.value.code, caught.value.status) == ("DIMENSION_MISMATCH", 400)
    assert caught.value.message == (
        "own makes 4 values, collection c stores 3: set CHUNKPROOF_MODELS (c) to the model that made the collection"
    )


@pytest.mark.parametrize(
    ("stored", "warned"), [("general", False), ("org/general", False), ("embed-v4.0", True), ("house", False)]
)
def test_chunks_of_another_space_are_warned_of(
    memory_store: WritableStore, caplog: pytest.LogCaptureFixture, stored: str, warned: bool
) -> None:
    payload = {"text": "text", "embedding_model": stored}
    fill(memory_store, "a", Point(1, payload, vector=tuple(hashed(4)("general text"))), size=4)
    embedder = Named("general", same_space=("house",))
    find(Services(Settings.from_env({}), memory_store, embedder), "a")
    assert ("Chunks were embedded with another model" in caplog.messages) is warned


def test_embedders_are_built_when_they_are_first_used_and_once() -> None:
    models = {
        "a": {"provider": "openai", "model": "m", "base_url": "http://localhost:1/v1"},
        "b": {"provider": "openai", "model": "m", "base_url": "http://localhost:1/v1"},
        "c": {"provider": "no_such_module_here:embed"},
    }
    settings = Settings.from_env({"CHUNKPROOF_MODELS": json.dumps(models)})
    builder = EmbedderBuilder(settings)
    embedders = CollectionEmbedders(settings.models, builder)
    assert "c" in embedders
    assert len(embedders) == 3
    assert embedders["a"] is embedders["b"]
    with pytest.raises(InvalidParameterError, match=r"CHUNKPROOF_MODELS \(c\) no_such_module_here:embed: "):
        embedders["c"]
    builder.close()


@pytest.mark.parametrize(
    ("entry", "address"),
    [
        ({"provider": "openai", "model": "m"}, "http://house.example/v1"),
        ({"provider": "openai", "model": "m", "base_url": "http://other.example/v1"}, "http://other.example/v1"),
        ({"provider": "openai", "model": "m", "key": "HOUSE_API_KEY"}, None),
        ({"provider": "cohere", "model": "m"}, "http://cohere.example"),
        ({"provider": "bedrock", "model": "amazon.titan-embed-text-v1"}, "http://bedrock.example"),
        ({"provider": "bedrock", "model": "amazon.titan-embed-text-v1", "region": "eu-west-1"}, None),
    ],
    ids=str,
)
def test_a_collections_own_model_is_called_at_the_address_of_the_settings_unless_it_has_another(
    entry: dict[str, str], address: str | None
) -> None:
    environ = {
        "OPENAI_BASE_URL": "http://house.example/v1",
        "COHERE_BASE_URL": "http://cohere.example",
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": "http://bedrock.example",
        "AWS_REGION": "us-east-1",
        "CHUNKPROOF_MODELS": json.dumps({"docs": entry}),
    }
    assert Settings.from_env(environ).models["docs"].base_url == address


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"base_url": "https://elsewhere.example/v1"}, {}),
        ({"base_url": "https://elsewhere.example/v1", "key": "HOUSE_API_KEY"}, {"authorization": "Bearer house"}),
        ({}, {"authorization": "Bearer sk-openai"}),
    ],
    ids=["another address", "another address with its key", "OpenAI itself"],
)
def test_the_key_of_openai_is_sent_to_its_own_address_only(entry: dict[str, str], key: dict[str, str]) -> None:
    models = {"docs": {"provider": "openai", "model": "m", **entry}}
    environ = {"OPENAI_API_KEY": "sk-openai", "HOUSE_API_KEY": "house", "CHUNKPROOF_MODELS": json.dumps(models)}
    settings = Settings.from_env(environ)
    builder = EmbedderBuilder(settings)
    made: Any = builder.build(settings.models["docs"])
    assert made._http._direct_transport._headers() == key
    builder.close()


def test_a_function_has_a_circuit_for_each_address(monkeypatch: pytest.MonkeyPatch) -> None:
    models = {
        "a": {"provider": "openai", "model": "m", "base_url": "http://localhost:1/v1"},
        "b": {"provider": "openai", "model": "n", "base_url": "http://localhost:2/v1"},
        "c": {"provider": "openai", "model": "o", "base_url": "http://localhost:2/v1"},
    }
    monkeypatch.setenv("QDRANT_URL", "http://localhost:6333")
    monkeypatch.setenv("CHUNKPROOF_MODELS", json.dumps(models))
    with new_process():
        assert set(container.services().circuits) == {"qdrant", "cohere", "openai", "openai localhost:2", "rerank"}


def test_python_takes_a_function_for_every_collection(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("CHUNKPROOF_MODELS", json.dumps({"docs": {"provider": "no_such_module_here:embed"}}))
    store = EdgeStore(tmp_path)
    fill(store, "docs", Point(1, {"text": "one"}, vector=tuple(hashed(8)("one"))), size=8)
    store.close()

    def embed(texts: list[str]) -> list[list[float]]:
        return [hashed(8)(text) for text in texts]

    with chunkproof.connect(data=tmp_path, embedder=embed) as opened:
        found = opened.search("one")
        assert found.results[0].similarity_score == pytest.approx(1.0, abs=1e-6)
        assert found.execution.embedding_model is not None
        assert found.execution.embedding_model.endswith(":embed")
    with pytest.raises(InvalidParameterError, match="embedder must be cohere, bedrock, openai, local"):
        chunkproof.connect(data=tmp_path, embedder="voyage")
    with pytest.raises(InvalidParameterError, match="embedder: int cannot embed; name a function"):
        chunkproof.connect(data=tmp_path, embedder=3)  # type: ignore[arg-type]
