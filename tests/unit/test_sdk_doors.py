"""The light doors into both SDKs: that they fit the releases in use, and what happens when they do not."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from types import ModuleType

import httpx
import pytest
import qdrant_client
from cohere.core.api_error import ApiError

from chunkproof.clients import cohere_endpoint
from chunkproof.clients.qdrant import rest_client

from support.keeping_server import Said, keeping_server

BODY = {"model": "m", "texts": ["one"], "input_type": "search_query", "embedding_types": ["float"]}


def imported_by(statements: str) -> set[str]:
    """The top-level packages that a new process has after these."""
    code = textwrap.dedent(statements) + "\nimport sys; print(*{m.partition('.')[0] for m in sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_qdrants_door_is_that_of_the_release_in_use_and_leaves_out_the_rest() -> None:
    packages = imported_by("""
        from chunkproof.clients.qdrant import rest_client
        module = rest_client._alone()
        for name in ("ApiClient", "UnexpectedResponse", "ResponseHandlingException", "ResourceExhaustedResponse"):
            assert module.__dict__[name].__module__.startswith("qdrant_client."), name
    """)
    assert not packages & {"numpy", "grpc", "qdrant_client"}


def test_coheres_door_is_that_of_the_release_in_use_and_leaves_out_the_rest() -> None:
    packages = imported_by("""
        import httpx
        from chunkproof.clients import cohere_endpoint
        cohere_endpoint._wrapped("http://127.0.0.1:1", httpx.Client())
    """)
    assert not packages & {"tokenizers", "fastavro", "requests"}


def test_the_sdk_is_whole_for_whoever_imports_it_after_the_door_was_used() -> None:
    imported_by("""
        from chunkproof.clients.qdrant import rest_client
        rest_client.rest_client()
        import qdrant_client
        import qdrant_client.http.models
        assert qdrant_client.QdrantClient(":memory:").get_collections().collections == []
        assert qdrant_client.http.models.Filter.__module__ == "qdrant_client.http.models.models"
    """)


def test_what_was_imported_before_stays_as_it_was() -> None:
    before = {name: module for name, module in sys.modules.items() if name.startswith("qdrant_client")}
    rest_client._alone()
    assert sys.modules["qdrant_client"] is qdrant_client
    assert {name: module for name, module in sys.modules.items() if name in before} == before


def unfit(*_: object) -> ModuleType:
    raise ImportError("cannot import name")


def test_a_release_of_qdrants_sdk_that_does_not_fit_is_entered_by_the_front_door(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rest_client, "_alone", unfit)
    front = rest_client.rest_client.__wrapped__()
    assert front.ApiClient is qdrant_client.http.ApiClient


def test_a_release_of_coheres_sdk_that_does_not_fit_is_entered_by_the_front_door(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cohere_endpoint, "_wrapped", unfit)
    with httpx.Client() as client:
        endpoint = cohere_endpoint.embed_endpoint("http://127.0.0.1:1", client)
    assert endpoint.__qualname__.startswith("_front")


DOORS = {"the light door": cohere_endpoint._wrapped, "the front door": cohere_endpoint._front}


@pytest.mark.parametrize("backend", DOORS.values(), ids=DOORS.keys())
def test_both_of_coheres_doors_give_the_same(backend: Callable[..., cohere_endpoint.Embed]) -> None:
    answer = Said(200, b'{"id": "1", "embeddings": {"float": [[0.6, 0.8]]}, "texts": ["one"]}')
    with keeping_server(lambda _: answer) as server, httpx.Client() as client:
        assert backend(server.url, client)(BODY) == [[0.6, 0.8]]


@pytest.mark.parametrize("backend", DOORS.values(), ids=DOORS.keys())
def test_both_of_coheres_doors_refuse_the_same(backend: Callable[..., cohere_endpoint.Embed]) -> None:
    answer = Said(422, b'{"message": "too many tokens"}', headers={"x-id": "7"})
    with (
        keeping_server(lambda _: answer) as server,
        httpx.Client() as client,
        pytest.raises(ApiError) as caught,
    ):
        backend(server.url, client)(BODY)
    assert caught.value.status_code == 422
    assert "too many tokens" in str(caught.value.body)
    assert (caught.value.headers or {})["x-id"] == "7"
