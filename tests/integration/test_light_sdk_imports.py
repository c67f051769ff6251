"""The parts of both SDKs that are imported without the rest: they fit the installed releases and stay light."""

import asyncio
import inspect
import subprocess
import sys
import textwrap
from importlib.metadata import version

import pytest
import qdrant_client
from cohere.core.api_error import ApiError
from cohere.core.client_wrapper import SyncClientWrapper
from pydantic_core import from_json
from qdrant_client.common import response_parsing

from chunkproof.base.request import Deadline
from chunkproof.embedders.cohere import CohereEmbedder, _Deferred
from chunkproof.embedders.embedder_port import InputType
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import load_rest_client

from support.recording_server import CannedResponse, recording_server


def imported_packages(statements: str) -> set[str]:
    """Run the statements in a new process, and return the top-level packages that they imported."""
    code = textwrap.dedent(statements) + "\nimport sys; print(*{m.partition('.')[0] for m in sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def misfit(package: str, module: str) -> str:
    release = f"{package} {version(package)}"
    return f"{release} does not fit {module}: adapt that module, or keep the last release that fits"


@pytest.mark.parametrize(
    "name", ["ApiClient", "UnexpectedResponse", "ResponseHandlingException", "ResourceExhaustedResponse"]
)
def test_the_installed_qdrant_client_has_the_classes_that_the_store_uses(name: str) -> None:
    message = misfit("qdrant-client", "stores/server.py")
    try:
        found = getattr(load_rest_client.__wrapped__(), name, None)
    except (ImportError, AttributeError) as error:
        pytest.fail(f"{message} ({error})")
    # An empty class of server.py has another module.
    assert getattr(found, "__module__", "").startswith("qdrant_client."), message


def test_the_installed_qdrant_client_reads_responses_with_the_function_that_the_store_replaces() -> None:
    parsing = load_rest_client.__wrapped__().parse_response.__globals__
    assert parsing["_loads"].keywords == {"cache_strings": "keys"}, misfit("qdrant-client", "stores/server.py")
    assert response_parsing._loads is from_json


def test_the_installed_cohere_has_the_http_client_that_the_embedder_uses() -> None:
    message = misfit("cohere", "embedders/cohere.py")
    taken = inspect.signature(SyncClientWrapper).parameters
    assert {"token", "base_url", "max_retries", "httpx_client"} <= taken.keys(), message
    taken = inspect.signature(ApiError).parameters
    assert {"status_code", "headers", "body"} <= taken.keys(), message
    response = CannedResponse(200, b'{"id": "1", "embeddings": {"float": [[0.6, 0.8]]}, "texts": ["one"]}')
    with recording_server(lambda _: response) as server:
        embedder = CohereEmbedder(DeadlineTransport(), model="m", base_url=server.url)
        assert embedder.embed(["one"], InputType.QUERY, Deadline(20_000)) == [[0.6, 0.8]], message
        embedder.close()
    assert [(request.method, request.path) for request in server.requests] == [("POST", "/v2/embed")], message


def test_the_rest_client_imports_neither_numpy_nor_grpc_nor_the_whole_sdk() -> None:
    packages = imported_packages("""
        from chunkproof.stores.server import load_rest_client
        load_rest_client()
    """)
    assert not packages & {"numpy", "grpc", "qdrant_client"}


@pytest.mark.parametrize(("version", "imports_engine"), [("1.16.3", False), ("1.14.0", True)])
def test_the_engine_is_imported_only_for_a_server_that_makes_no_bm25_vectors(
    version: str, imports_engine: bool
) -> None:
    with recording_server(lambda _: CannedResponse(200, b'{"version": "%s"}' % version.encode())) as server:
        packages = imported_packages(f"""
            from chunkproof.stores.server import ServerStore
            from chunkproof.net.transport import DeadlineTransport
            from chunkproof.base.request import Deadline
            import sys
            store = ServerStore("{server.url}", DeadlineTransport())
            assert "qdrant_edge" not in sys.modules
            store.features(Deadline(20_000))
        """)
    assert ("qdrant_edge" in packages) == imports_engine


def test_the_cohere_embedder_imports_no_tokenizer() -> None:
    packages = imported_packages("""
        from chunkproof.embedders.cohere import CohereEmbedder
        from chunkproof.net.transport import DeadlineTransport
        CohereEmbedder(DeadlineTransport(), model="m")
    """)
    assert not packages & {"tokenizers", "fastavro", "requests"}


def test_the_whole_sdk_can_be_imported_after_the_rest_client() -> None:
    imported_packages("""
        from chunkproof.stores.server import load_rest_client
        load_rest_client()
        import qdrant_client
        import qdrant_client.http.models
        assert qdrant_client.QdrantClient(":memory:").get_collections().collections == []
        assert qdrant_client.http.models.Filter.__module__ == "qdrant_client.http.models.models"
    """)


def test_an_sdk_that_is_already_imported_stays_as_it_is() -> None:
    before = {name: module for name, module in sys.modules.items() if name.startswith("qdrant_client")}
    load_rest_client.__wrapped__()
    assert sys.modules["qdrant_client"] is qdrant_client
    assert {name: module for name, module in sys.modules.items() if name in before} == before


def test_what_is_deferred_is_there_when_it_is_used() -> None:
    assert _Deferred("asyncio").sleep is asyncio.sleep
