"""Keys in Secrets Manager: which key each service gets, when the secret is read, and the error messages."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import boto3
import pytest
from moto import mock_aws

from chunkproof.net.secrets import SOURCE, clear_secret_cache
from chunkproof.service import container

from support.api import Reply, get, invoke, new_process, post
from support.cohere_server import KEY
from support.listeners import dripping_server, silent_server
from support.qdrant_server import QdrantServer, free_port
from support.recording_server import CannedResponse, RecordedRequest, RecordingServer, recording_server

NAME = "chunkproof/keys"
QDRANT_KEY = "test-qdrant-s3cr3t-77aa"
SEARCH = post("/search", {"query_text": "backups", "collection": "docs"})
COLLECTION = {
    "status": "green",
    "optimizer_status": "ok",
    "segments_count": 1,
    "points_count": 0,
    "indexed_vectors_count": 0,
    "payload_schema": {},
    "config": {
        "params": {"vectors": {"size": 2, "distance": "Cosine"}},
        "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000},
        "optimizer_config": {
            "deleted_threshold": 0.2,
            "vacuum_min_vector_number": 1000,
            "default_segment_number": 0,
            "flush_interval_sec": 5,
        },
        "wal_config": {"wal_capacity_mb": 32, "wal_segments_ahead": 0},
    },
}


def _respond(request: RecordedRequest) -> CannedResponse:
    """Respond like both services: Cohere's embed API, and a Qdrant with an empty collection."""
    if request.path == "/v2/embed":
        body: Any = {
            "id": "1",
            "embeddings": {"float": [[1.0, 0.0]]},
            "texts": ["backups"],
            "response_type": "embeddings_by_type",
        }
    else:
        result: Any = {"points": []} if request.path.endswith("/query") else COLLECTION
        body = {
            "result": {"collections": []} if request.path == "/collections" else result,
            "status": "ok",
            "time": 0,
        }
    return CannedResponse(body=json.dumps(body).encode(), headers={"content-type": "application/json"})


@pytest.fixture
def services() -> Iterator[RecordingServer]:
    """Qdrant and Cohere in one server that records the headers."""
    with recording_server(_respond) as server:
        yield server


@pytest.fixture(autouse=True)
def _deployed(services: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("QDRANT_URL", services.url)
    monkeypatch.setenv("COHERE_BASE_URL", services.url)
    monkeypatch.setenv("CHUNKPROOF_DEADLINE_MS", "20000")
    with new_process():
        yield


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Secrets Manager, and credentials for it."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        yield boto3.client("secretsmanager")


def keep(aws: Any, monkeypatch: pytest.MonkeyPatch, secret: str | bytes) -> str:
    """Make this the secret of the deployment; returns its ARN."""
    value = {"SecretString": secret} if isinstance(secret, str) else {"SecretBinary": secret}
    arn = str(aws.create_secret(Name=NAME, **value)["ARN"])
    monkeypatch.setenv("CHUNKPROOF_SECRET_ARN", arn)
    return arn


def sent(services: RecordingServer, header: str) -> set[tuple[str, str | None]]:
    """The path of each request, and the value of the header."""
    return {
        ("cohere" if request.path == "/v2/embed" else "qdrant", request.headers.get(header))
        for request in services.requests
    }


def refusal(reply: Reply, *secrets: str) -> str:
    assert (reply.status, reply.code) == (503, "NOT_CONFIGURED")
    for secret in (*secrets, "arn:aws", NAME):
        assert secret not in reply.text
    return reply.errors[0]


# keys that are used


def test_the_keys_of_the_secret_reach_the_services(
    aws: Any, monkeypatch: pytest.MonkeyPatch, services: RecordingServer
) -> None:
    keep(aws, monkeypatch, json.dumps({"QDRANT_API_KEY": QDRANT_KEY, "COHERE_API_KEY": KEY}))
    assert invoke(SEARCH).status == 200
    assert sent(services, "api-key") == {("qdrant", QDRANT_KEY), ("cohere", None)}
    assert sent(services, "authorization") == {("qdrant", None), ("cohere", f"Bearer {KEY}")}


@pytest.fixture(scope="module")
def keyed_qdrant(served_qdrant: QdrantServer) -> Iterator[str]:
    """A Qdrant server that requires a key."""
    if served_qdrant.process is None or "QDRANT__SERVICE__HTTP_PORT" not in served_qdrant.env:
        pytest.skip("the server at hand cannot be started again with a key")
    with TemporaryDirectory(dir=served_qdrant.home) as folder:
        home, port = Path(folder), free_port()
        if served_qdrant.user:
            shutil.chown(home, served_qdrant.user)
        env = served_qdrant.env | {
            "QDRANT__SERVICE__HTTP_PORT": str(port),
            "QDRANT__SERVICE__GRPC_PORT": str(free_port()),
            "QDRANT__SERVICE__API_KEY": QDRANT_KEY,
            "QDRANT__STORAGE__STORAGE_PATH": str(home / "storage"),
            "QDRANT__STORAGE__SNAPSHOTS_PATH": str(home / "snapshots"),
        }
        url = f"http://127.0.0.1:{port}"
        server = QdrantServer(url, served_qdrant.command, env, home, served_qdrant.user)
        try:
            server.start()
            yield url
        finally:
            server.stop()


@pytest.mark.server
@pytest.mark.parametrize(
    ("key", "status", "message"),
    [
        (QDRANT_KEY, 404, "Collection docs not found"),
        ("s3cr3t", 503, "Qdrant refused the key; check QDRANT_API_KEY"),
    ],
)
def test_a_real_qdrant_accepts_the_key_of_the_secret_and_no_other(
    aws: Any, monkeypatch: pytest.MonkeyPatch, keyed_qdrant: str, key: str, status: int, message: str
) -> None:
    aws.create_secret(Name=NAME, SecretString=json.dumps({"QDRANT_API_KEY": key, "COHERE_API_KEY": KEY}))
    monkeypatch.setenv("CHUNKPROOF_SECRET_ARN", NAME)
    monkeypatch.setenv("QDRANT_URL", keyed_qdrant)
    reply = invoke(get("/collections/docs"))
    assert (reply.status, reply.errors[-1]) == (status, message)
    assert key not in reply.text


def test_a_binary_secret_is_read(aws: Any, monkeypatch: pytest.MonkeyPatch, services: RecordingServer) -> None:
    keep(aws, monkeypatch, json.dumps({"COHERE_API_KEY": KEY}).encode())
    assert invoke(SEARCH).status == 200
    assert ("cohere", f"Bearer {KEY}") in sent(services, "authorization")


def test_without_a_key_of_qdrant_no_header_is_sent(
    aws: Any, monkeypatch: pytest.MonkeyPatch, services: RecordingServer
) -> None:
    keep(aws, monkeypatch, json.dumps({"COHERE_API_KEY": KEY}))
    assert invoke(SEARCH).status == 200
    assert sent(services, "api-key") == {("qdrant", None), ("cohere", None)}


def test_a_key_in_the_environment_takes_precedence_over_the_secret(
    aws: Any, monkeypatch: pytest.MonkeyPatch, services: RecordingServer
) -> None:
    keep(aws, monkeypatch, json.dumps({"QDRANT_API_KEY": "other", "COHERE_API_KEY": "other"}))
    monkeypatch.setenv("QDRANT_API_KEY", QDRANT_KEY)
    monkeypatch.setenv("COHERE_API_KEY", KEY)
    assert invoke(SEARCH).status == 200
    assert ("qdrant", QDRANT_KEY) in sent(services, "api-key")
    assert ("cohere", f"Bearer {KEY}") in sent(services, "authorization")


def test_a_changed_key_is_used_after_the_cache_is_cleared(
    aws: Any, monkeypatch: pytest.MonkeyPatch, services: RecordingServer
) -> None:
    arn = keep(aws, monkeypatch, json.dumps({"QDRANT_API_KEY": "old", "COHERE_API_KEY": KEY}))
    invoke(get("/collections/docs"))
    aws.put_secret_value(SecretId=arn, SecretString=json.dumps({"QDRANT_API_KEY": "new", "COHERE_API_KEY": KEY}))
    invoke(get("/collections/docs"))
    assert {key for _, key in sent(services, "api-key")} == {"old"}, "kept for five minutes"
    clear_secret_cache()
    services.requests.clear()
    invoke(get("/collections/docs"))
    assert {key for _, key in sent(services, "api-key")} == {"new"}


# when no secret is read


def test_without_a_secret_aws_is_not_called(monkeypatch: pytest.MonkeyPatch, services: RecordingServer) -> None:
    monkeypatch.setenv("CHUNKPROOF_SECRET_ARN", "")
    monkeypatch.setenv("COHERE_API_KEY", KEY)
    assert invoke(SEARCH).status == 200
    assert sent(services, "api-key") == {("qdrant", None), ("cohere", None)}


def test_building_the_services_reads_no_secret(monkeypatch: pytest.MonkeyPatch, services: RecordingServer) -> None:
    monkeypatch.setenv("CHUNKPROOF_SECRET_ARN", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:none")
    container.services()
    assert services.requests == []


def test_shallow_health_reads_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKPROOF_SECRET_ARN", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:none")
    assert invoke(get("/health")).status == 200


def test_without_a_key_of_cohere_the_error_names_the_setting() -> None:
    assert refusal(invoke(SEARCH)) == "COHERE_API_KEY is not set"


# errors


@pytest.mark.parametrize("event", [SEARCH, get("/collections/docs"), post("/validate-chunk", {"chunk_id": "1"})])
def test_a_missing_secret_is_named(aws: Any, monkeypatch: pytest.MonkeyPatch, event: dict[str, Any]) -> None:
    arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:none-a1b2c3"
    monkeypatch.setenv("CHUNKPROOF_SECRET_ARN", arn)
    assert refusal(invoke(event)) == f"The {SOURCE} could not be read (ResourceNotFoundException)"


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ("s3cr3t-not-json", "is not JSON"),
        ("{'COHERE_API_KEY': 's3cr3t'}", "is not JSON"),
        ('["s3cr3t"]', "is not a JSON object of strings"),
        ('"s3cr3t"', "is not a JSON object of strings"),
        ("null", "is not a JSON object of strings"),
        ('{"COHERE_API_KEY": ["s3cr3t"]}', "is not a JSON object of strings"),
        ('{"COHERE_API_KEY": null}', "is not a JSON object of strings"),
    ],
)
def test_a_malformed_secret_is_named_and_never_shown(
    aws: Any,
    monkeypatch: pytest.MonkeyPatch,
    services: RecordingServer,
    capfd: pytest.CaptureFixture[str],
    secret: str,
    why: str,
) -> None:
    keep(aws, monkeypatch, secret)
    assert refusal(invoke(SEARCH), "s3cr3t") == f"The {SOURCE} {why}"
    logged = capfd.readouterr()
    assert "s3cr3t" not in logged.out + logged.err
    assert services.requests == [], "no request is sent without the key"


@pytest.mark.parametrize(
    "secret", [{}, {"QDRANT_API_KEY": "s3cr3t"}, {"COHERE_API_KEY": "", "QDRANT_API_KEY": "s3cr3t"}]
)
def test_a_secret_without_coheres_key_is_named_and_never_shown(
    aws: Any, monkeypatch: pytest.MonkeyPatch, secret: dict[str, str]
) -> None:
    keep(aws, monkeypatch, json.dumps(secret))
    assert refusal(invoke(SEARCH), "s3cr3t") == f"COHERE_API_KEY is not in the {SOURCE}"


def test_without_credentials_the_secret_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CHUNKPROOF_SECRET_ARN", NAME)
    assert refusal(invoke(SEARCH)) == f"The {SOURCE} could not be read (NoCredentialsError)"


def test_without_a_region_the_secret_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKPROOF_SECRET_ARN", NAME)
    assert refusal(invoke(SEARCH)) == f"The {SOURCE} could not be read (NoRegionError)"


@pytest.mark.parametrize("key", ["s3cr3t\n", "s3cr3t-é"])
def test_a_key_that_cannot_be_sent_in_a_header_is_malformed(
    aws: Any, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    keep(aws, monkeypatch, json.dumps({"COHERE_API_KEY": key}))
    assert "COHERE_API_KEY" in refusal(invoke(SEARCH), "s3cr3t")


@pytest.mark.parametrize(
    "server", [silent_server, lambda: dripping_server(0.05, 1000)], ids=["silent", "a byte now and then"]
)
def test_a_silent_secrets_manager_times_out_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch, server: Callable[[], AbstractContextManager[str]]
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("CHUNKPROOF_SECRET_ARN", NAME)
    monkeypatch.setenv("CHUNKPROOF_DEADLINE_MS", "300")
    replies: list[Reply] = []
    caller = threading.Thread(target=lambda: replies.append(invoke(SEARCH)), daemon=True)
    with server() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", url)
        started = monotonic()
        caller.start()
        caller.join(timeout=2)
        took = monotonic() - started
    caller.join(timeout=20)  # the server is gone, and with it what it waited for
    assert took < 4, "the deadline is 0.3 s, and a busy machine takes its time"
    assert (replies[0].status, replies[0].code) == (503, "SECRET_TIMEOUT")
    assert replies[0].errors == [f"The {SOURCE} could not be read in time"]
