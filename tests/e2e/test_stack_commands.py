"""`chunkproof secret` and `chunkproof doctor --stack`, against moto's AWS and a stack behind the local gateway."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from support.commands import Command
from support.recording_server import CannedResponse, RecordedRequest, recording_server

NAME_ANOTHER = "Name one that exists with --collection, or deploy with the parameter Collection"
KEYS = {"QDRANT_API_KEY": "qdrant-key-1d0c", "COHERE_API_KEY": "cohere-key-9f3b"}


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


@pytest.mark.usefixtures("aws")
def test_keys_from_standard_input_are_stored_and_replaced(chunkproof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for mark, keys in (("", KEYS), ("\ufeff", {**KEYS, "COHERE_API_KEY": "rotated"})):
        typed(monkeypatch, mark + json.dumps(keys))
        run = chunkproof("secret", "--name", "the-keys")
        assert run.code == 0, run.err
        assert run.out.startswith("arn:aws:secretsmanager:us-east-1:")
        stored = boto3.client("secretsmanager").get_secret_value(SecretId="the-keys")["SecretString"]
        assert json.loads(stored) == keys
        assert not any(key in run.out + run.err for key in keys.values())


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize("text", ["", "not json", "[]", "{}", '{"QDRANT_API_KEY": 5}', '{"OTHER": "x"}', "[" * 100_000])
def test_anything_else_on_standard_input_is_refused(
    chunkproof: Command, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    typed(monkeypatch, text)
    run = chunkproof("secret")
    assert run.code == 2
    assert "QDRANT_API_KEY, COHERE_API_KEY" in run.err
    assert boto3.client("secretsmanager").list_secrets()["SecretList"] == []


def test_a_closed_standard_input_is_an_empty_one() -> None:
    for arguments in ("secret", "validate x --original-file -"):
        command = f"{sys.executable} -m chunkproof_cli {arguments} <&-"
        run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert run.returncode == 2
        assert "Traceback" not in run.stderr


def test_without_a_region_the_setting_is_named(chunkproof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    typed(monkeypatch, json.dumps(KEYS))
    run = chunkproof("secret")
    assert run.code == 3
    assert "AWS_DEFAULT_REGION" in run.err


class StackApi:
    """A deployed API's answers, by path."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, dict[str, Any]]] = {}
        self.url = ""


@pytest.fixture
def stack_api() -> Iterator[StackApi]:
    api = StackApi()

    def answer(request: RecordedRequest) -> CannedResponse:
        status, body = api.answers.get(request.path, (404, {"message": "Not Found"}))
        return CannedResponse(status, json.dumps(body).encode())

    with recording_server(answer) as server:
        api.url = server.url
        yield api


def deploy(outputs: dict[str, str]) -> None:
    template = {
        "Resources": {"Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "/x"}}},
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }
    boto3.client("cloudformation").create_stack(StackName="chunkproof", TemplateBody=json.dumps(template))


OK = {"status": "ok", "latency_ms": 12.0, "message": None}
INFO = {
    "name": "docs",
    "vector_size": 1024,
    "distance_metric": "Cosine",
    "points_count": 312,
    "indexed_vectors_count": 312,
    "indexed": True,
    "status": "green",
    "vectors": [{"name": "", "size": 1024, "distance_metric": "Cosine"}],
    "payload_fields": [],
    "payload_map": {"text": "content"},
}


def healthy(**changed: Any) -> dict[str, Any]:
    return {"status": "ok", "contract_version": "1.0", "qdrant": OK, "embedder": OK, **changed}


@pytest.mark.usefixtures("aws")
def test_a_healthy_stack_is_ready(chunkproof: Command, stack_api: StackApi) -> None:
    deploy({"ApiUrl": stack_api.url, "Collection": "docs", "Authorization": "AWS_IAM"})
    stack_api.answers = {"/health/deep": (200, healthy()), "/collections/docs": (200, INFO)}
    run = chunkproof("doctor", "--stack", "chunkproof")
    assert run.code == 0, run.err
    assert "chunkproof is CREATE_COMPLETE" in run.out
    assert "docs has 312 points" in run.out
    assert "Verdict: collection docs is ready." in run.out


@pytest.mark.usefixtures("aws")
def test_failed_dependencies_come_with_a_remedy(chunkproof: Command, stack_api: StackApi) -> None:
    deploy({"ApiUrl": stack_api.url, "Collection": "docs", "Authorization": "JWT"})
    down = {
        "status": "down",
        "latency_ms": 2000.0,
        "message": "Failed to embed query: api.cohere.com refused the key",
    }
    stack_api.answers = {"/health/deep": (503, healthy(status="down", embedder=down))}
    run = chunkproof("doctor", "--stack", "chunkproof", "--json")
    assert run.code == 1
    failed = {f["check"]: f["remedy"] for f in run.json["findings"] if f["level"] == "FAIL"}
    assert set(failed) == {"embedder", "collection"}
    assert failed["embedder"] == "Check the key in the secret, and CHUNKPROOF_MODEL"


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (
            404,
            "COLLECTION_NOT_FOUND",
            NAME_ANOTHER,
        ),
        (403, "FORBIDDEN", NAME_ANOTHER),
        (
            503,
            "QDRANT_UNAVAILABLE",
            "Check QdrantUrl, the key in the secret, and that the functions' network reaches it",
        ),
        (
            504,
            "QDRANT_TIMEOUT",
            "Check QdrantUrl, the key in the secret, and that the functions' network reaches it",
        ),
        (500, "INTERNAL", None),
    ],
)
@pytest.mark.usefixtures("aws")
def test_the_remedy_for_a_collection_depends_on_the_error(
    chunkproof: Command, stack_api: StackApi, status: int, code: str, remedy: str | None
) -> None:
    deploy({"ApiUrl": stack_api.url, "Collection": "docs", "Authorization": "AWS_IAM"})
    said = {"error": {"code": code, "message": "so"}, "errors": ["so"]}
    stack_api.answers = {"/health/deep": (200, healthy()), "/collections/docs": (status, said)}
    run = chunkproof("doctor", "--stack", "chunkproof", "--json")
    (failed,) = (f for f in run.json["findings"] if f["level"] == "FAIL")
    assert (failed["check"], failed["message"], failed["remedy"]) == ("collection", "so", remedy)


@pytest.mark.usefixtures("aws")
def test_an_unknown_stack_and_a_stack_of_another_project_have_different_messages(chunkproof: Command) -> None:
    unknown = chunkproof("doctor", "--stack", "nothing")
    assert unknown.code == 2
    assert unknown.err == "--stack nothing: there is no such stack in this AWS account and region\n"
    deploy({"Other": "x"})
    for empty in ("", " "):
        assert chunkproof("doctor", "--stack", empty).err == "--stack is empty; name a stack\n"
    other = chunkproof("doctor", "--stack", "chunkproof")
    assert other.code == 2
    assert "not a Chunkproof stack" in other.err


def test_an_api_is_checked_without_its_stack(chunkproof: Command, stack_api: StackApi) -> None:
    stack_api.answers = {"/health/deep": (200, healthy()), "/collections/docs": (200, INFO)}
    run = chunkproof("doctor", "--api", stack_api.url, "--collection", "docs", "--json")
    assert (run.code, run.json["fits"]) == (0, True)
    assert {f["check"] for f in run.json["findings"]} == {"Qdrant", "embedder", "collection"}


@pytest.mark.usefixtures("aws")
def test_a_key_that_is_not_entered_is_kept(chunkproof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for keys in (KEYS, {"COHERE_API_KEY": "rotated"}):
        typed(monkeypatch, json.dumps(keys))
        assert chunkproof("secret", "--name", "the-keys").code == 0
    stored = boto3.client("secretsmanager").get_secret_value(SecretId="the-keys")["SecretString"]
    assert json.loads(stored) == {**KEYS, "COHERE_API_KEY": "rotated"}


@pytest.mark.usefixtures("aws")
def test_an_invalid_key_is_refused_before_it_is_stored(chunkproof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, json.dumps({"COHERE_API_KEY": "two words"}))
    run = chunkproof("secret")
    assert run.code != 0
    assert "two words" not in run.err
    assert boto3.client("secretsmanager").list_secrets()["SecretList"] == []
