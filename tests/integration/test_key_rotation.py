"""Keys that change while a process runs: when the secret is read again, and what is logged."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from moto import mock_aws

from chunkproof.net import secrets

from support.api import Reply, get, invoke, new_process, post
from support.clock import Clock, replace_clock
from support.log_lines import CapturedOutput, capture_stdout
from support.recording_server import CannedResponse, RecordedRequest, RecordingServer, recording_server

NAME = "chunkproof/keys"
OLD = {"QDRANT_API_KEY": "qdrant-old-s3cr3t", "COHERE_API_KEY": "cohere-old-s3cr3t"}
NEW = {"QDRANT_API_KEY": "qdrant-new-s3cr3t", "COHERE_API_KEY": "cohere-new-s3cr3t"}
KEPT_LINE = "the secret could not be read again; the old one is used"


@dataclass
class Services:
    """Qdrant and Cohere in one server, each with the key that it accepts."""

    accepted: dict[str, str] = field(default_factory=lambda: dict(OLD))
    server: RecordingServer | None = None

    def __call__(self, request: RecordedRequest) -> CannedResponse:
        is_cohere = request.path == "/v2/embed"
        given = request.headers.get("authorization" if is_cohere else "api-key", "").removeprefix("Bearer ")
        if given != self.accepted["COHERE_API_KEY" if is_cohere else "QDRANT_API_KEY"]:
            return CannedResponse(401, b'{"message": "invalid"}', {"content-type": "application/json"})
        body: Any = {"result": {"collections": []}, "status": "ok", "time": 0}
        if is_cohere:
            embeddings = {"float": [[1.0, 0.0]]}
            body = {
                "id": "1",
                "embeddings": embeddings,
                "texts": ["ping"],
                "response_type": "embeddings_by_type",
            }
        return CannedResponse(body=json.dumps(body).encode(), headers={"content-type": "application/json"})

    def calls(self) -> dict[str, int]:
        """The number of requests to each service since the last call of this method."""
        assert self.server is not None
        paths = [request.path for request in self.server.requests]
        self.server.requests.clear()
        return {"qdrant": paths.count("/collections"), "cohere": paths.count("/v2/embed")}


@dataclass
class Secret:
    """The deployment's secret, and how often it was read."""

    client: Any
    arn: str = f"arn:aws:secretsmanager:eu-central-1:123456789012:secret:{NAME}-none"
    reads: int = 0

    def create(self, content: Any) -> None:
        made = self.client.create_secret(Name=NAME, SecretString=_text(content))
        self.arn = str(made["ARN"])

    def change(self, content: Any) -> None:
        self.client.put_secret_value(SecretId=self.arn, SecretString=_text(content))


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content)


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    made = Services()
    with recording_server(made) as made.server:
        monkeypatch.setenv("QDRANT_URL", made.server.url)
        monkeypatch.setenv("COHERE_BASE_URL", made.server.url)
        monkeypatch.setenv("CHUNKPROOF_DEADLINE_MS", "20000")
        yield made


@pytest.fixture
def secret(services: Services, monkeypatch: pytest.MonkeyPatch) -> Iterator[Secret]:
    """Secrets Manager with the old keys, and a process that has read nothing yet."""
    for variable, value in {
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    }.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    read = secrets._read_from_aws

    def counted(arn: str, seconds: float) -> str | bytes:
        made.reads += 1
        return read(arn, seconds)

    monkeypatch.setattr(secrets, "_read_from_aws", counted)
    with mock_aws(), new_process():
        made = Secret(boto3.client("secretsmanager"))
        made.create(OLD)
        monkeypatch.setenv("CHUNKPROOF_SECRET_ARN", made.arn)
        yield made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the secret's cache."""
    return replace_clock(secrets, monkeypatch)


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Iterator[CapturedOutput]:
    with capture_stdout(capsys) as made:
        yield made


def ask() -> Reply:
    """Send a request that calls both services through the real handler."""
    return invoke(get("/health", deep="true"))


# a changed key


@pytest.mark.parametrize(
    ("changed", "asked_twice"),
    [(NEW, "qdrant"), ({**OLD, "COHERE_API_KEY": "cohere-new-s3cr3t"}, "cohere")],
    ids=["both keys", "Cohere's key"],
)
def test_the_first_request_after_a_rotation_succeeds_with_one_more_read(
    services: Services, secret: Secret, clock: Clock, changed: dict[str, str], asked_twice: str
) -> None:
    assert ask().status == 200
    assert (secret.reads, services.calls()) == (1, {"qdrant": 1, "cohere": 1})
    clock.now += 60
    secret.change(changed)
    services.accepted = changed
    assert ask().status == 200
    assert secret.reads == 2
    # Qdrant is called first: after its key was refused the secret is read again, so Cohere gets the new key.
    assert services.calls() == {"qdrant": 1, "cohere": 1} | {asked_twice: 2}
    assert ask().status == 200
    assert (secret.reads, services.calls()) == (2, {"qdrant": 1, "cohere": 1})


def test_without_a_refused_key_the_secret_is_read_every_five_minutes(
    services: Services, secret: Secret, clock: Clock
) -> None:
    reads = []
    for passed in (0, 299.9, 0.1):
        clock.now += passed
        assert ask().status == 200
        reads.append(secret.reads)
    assert reads == [1, 1, 2]


def test_a_rotation_right_after_the_secret_was_read_is_seen_fifteen_seconds_later(
    services: Services, secret: Secret, clock: Clock
) -> None:
    ask()
    secret.change(NEW)
    services.accepted = NEW
    clock.now += 14.9
    assert (ask().status, secret.reads) == (503, 1)
    clock.now += 0.1
    assert (ask().status, secret.reads) == (200, 2)


# a wrong key


def test_a_wrong_key_is_read_again_once_in_fifteen_seconds_and_sent_once_per_call(
    services: Services, secret: Secret, clock: Clock
) -> None:
    ask()
    services.calls()
    services.accepted = {**OLD, "COHERE_API_KEY": "another-key"}
    seen = []
    for passed in (60, 0, 14.9, 0.1, 0):
        clock.now += passed
        reply = ask()
        assert (reply.status, reply.json["qdrant"]["status"]) == (503, "ok")
        assert "refused the key; check COHERE_API_KEY" in reply.json["embedder"]["message"]
        assert services.calls() == {"qdrant": 1, "cohere": 1}
        seen.append(secret.reads)
    assert seen == [2, 2, 2, 3, 3]


def test_a_refused_key_does_not_open_the_circuit(services: Services, secret: Secret, clock: Clock) -> None:
    services.accepted = {**OLD, "COHERE_API_KEY": "another-key"}
    for _ in range(6):
        assert ask().json["embedder"]["circuit"] == "closed"
    assert services.calls()["cohere"] == 6


def test_no_log_line_holds_a_key(services: Services, secret: Secret, clock: Clock, written: CapturedOutput) -> None:
    ask()
    clock.now += 60
    services.accepted = NEW
    ask()
    invoke(get("/collections/docs"))
    invoke(post("/search", {"query_text": "backups"}))
    assert [line["status"] for line in written.requests] == [200, 503, 503, 503]
    for key in (*OLD.values(), *NEW.values()):
        assert key not in written.text


def test_after_a_refused_key_of_the_environment_aws_is_not_called(
    services: Services, secret: Secret, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in OLD.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("CHUNKPROOF_SECRET_ARN")
    services.accepted = NEW
    clock.now += 60
    assert ask().status == 503
    assert (secret.reads, services.calls()) == (0, {"qdrant": 1, "cohere": 1})


# a malformed secret


def test_while_a_secret_is_malformed_the_old_keys_are_used(
    services: Services, secret: Secret, clock: Clock, written: CapturedOutput
) -> None:
    ask()
    clock.now += 300
    secret.change("s3cr3t-not-json")
    written.clear()
    assert (ask().status, secret.reads) == (200, 2)
    (line,) = written.saying(KEPT_LINE)
    assert line["level"] == "WARNING"
    assert line["secret_arn"] == secret.arn
    for hidden in ("s3cr3t", *OLD.values()):
        assert hidden not in written.text
    clock.now += 14.9
    assert (ask().status, secret.reads) == (200, 2), "not read at every call"
    secret.change(NEW)
    services.accepted = NEW
    clock.now += 0.1
    assert (ask().status, secret.reads) == (200, 3), "well again"


def test_a_refused_key_whose_secret_became_malformed_is_sent_once_and_reported_as_refused(
    services: Services, secret: Secret, clock: Clock, written: CapturedOutput
) -> None:
    ask()
    services.calls()
    clock.now += 60
    secret.change("s3cr3t-not-json")
    services.accepted = NEW
    reply = ask()
    assert reply.status == 503
    assert "refused the key" in reply.json["qdrant"]["message"]
    assert "refused the key" in reply.json["embedder"]["message"]
    assert (secret.reads, services.calls()) == (2, {"qdrant": 1, "cohere": 1})
    assert [line["secret_arn"] == secret.arn for line in written.saying(KEPT_LINE)] == [True]
    assert "s3cr3t" not in written.text + reply.text


def test_after_a_secret_was_deleted_the_old_keys_are_used(
    services: Services, secret: Secret, clock: Clock, written: CapturedOutput
) -> None:
    ask()
    clock.now += 300
    secret.client.delete_secret(SecretId=secret.arn, ForceDeleteWithoutRecovery=True)
    assert ask().status == 200
    (line,) = written.saying(KEPT_LINE)
    assert line["secret_arn"] == secret.arn


# the first read


def test_a_missing_secret_is_an_error_that_only_the_log_names_it_in(
    secret: Secret, services: Services, written: CapturedOutput
) -> None:
    secret.client.delete_secret(SecretId=secret.arn, ForceDeleteWithoutRecovery=True)
    reply = invoke(get("/collections/docs"))
    assert (reply.status, reply.code) == (503, "NOT_CONFIGURED")
    reason = "The secret of CHUNKPROOF_SECRET_ARN could not be read (ResourceNotFoundException)"
    assert reply.errors == [reason]
    (line,) = written.requests
    assert (line["level"], line["code"], line["reasons"]) == ("ERROR", "NOT_CONFIGURED", [reason])
    (warning,) = written.saying("the secret could not be read")
    assert (warning["secret_arn"], warning["reason"]) == (secret.arn, reason)
    assert secret.arn not in reply.text
    assert services.calls() == {"qdrant": 0, "cohere": 0}


@pytest.mark.parametrize("content", ["s3cr3t-not-json", '{"COHERE_API_KEY": ["s3cr3t"]}'])
def test_a_malformed_secret_is_named_and_not_shown(secret: Secret, written: CapturedOutput, content: str) -> None:
    secret.change(content)
    reply = invoke(get("/collections/docs"))
    assert (reply.status, reply.code) == (503, "NOT_CONFIGURED")
    (line,) = written.requests
    assert line["reasons"] == reply.errors
    assert reply.errors[0].startswith("The secret of CHUNKPROOF_SECRET_ARN is not ")
    assert "s3cr3t" not in written.text + reply.text


def test_a_failed_read_is_not_cached(secret: Secret, services: Services, clock: Clock) -> None:
    secret.change("not yet")
    assert invoke(get("/collections/docs")).code == "NOT_CONFIGURED"
    secret.change(OLD)
    assert ask().status == 200
