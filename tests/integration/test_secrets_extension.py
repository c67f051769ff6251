"""Keys from the AWS Parameters and Secrets extension, with Secrets Manager as the fallback."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from chunkproof.base import request as deadline
from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.net import secrets
from chunkproof.net.secrets import Keys, SecretsExtension, clear_secret_cache

from support.clock import replace_clock
from support.qdrant_server import free_port
from support.recording_server import CannedResponse, RecordedRequest, recording_server

ARN = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:chunkproof/keys-a1b2c3"
TOKEN = "a-session-token-5f1e"
NEAR, FAR = {"COHERE_API_KEY": "near-key-91c4"}, {"COHERE_API_KEY": "far-key-77d0"}


def secret(value: object) -> CannedResponse:
    """The extension's response, which is that of Secrets Manager."""
    return CannedResponse(body=json.dumps({"ARN": ARN, "Name": "chunkproof/keys", "SecretString": value}).encode())


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The secrets that were read from Secrets Manager itself."""
    request: list[str] = []

    def read(arn: str, _seconds: float) -> str:
        request.append(arn)
        return json.dumps(FAR)

    monkeypatch.setattr(secrets, "_read_from_aws", read)
    return request


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    clear_secret_cache()
    yield
    clear_secret_cache()


def keys_at(url: str | int) -> Keys:
    port = url if isinstance(url, int) else urlsplit(url).port
    return Keys(
        Settings.from_env(
            {
                "CHUNKPROOF_SECRET_ARN": ARN,
                "CHUNKPROOF_SECRETS_PORT": str(port),
                "AWS_SESSION_TOKEN": TOKEN,
            }
        )
    )


def serving(response: CannedResponse) -> Callable[[RecordedRequest], CannedResponse]:
    return lambda _: response


def test_a_key_is_read_from_the_extension_with_the_session_token(far: list[str]) -> None:
    with recording_server(serving(secret(json.dumps(NEAR)))) as extension:
        assert keys_at(extension.url).for_cohere() == {"authorization": "Bearer near-key-91c4"}
    [request] = extension.requests
    assert urlsplit(request.path).path == "/secretsmanager/get"
    assert parse_qs(urlsplit(request.path).query) == {"secretId": [ARN]}
    assert request.headers["x-aws-parameters-secrets-token"] == TOKEN
    assert far == []


def test_reading_from_the_extension_does_not_import_boto3() -> None:
    with recording_server(serving(secret(json.dumps(NEAR)))) as extension:
        code = f"""
            import sys
            from chunkproof.net.secrets import Keys
            from chunkproof.base.settings import Settings
            keys = Keys(Settings.from_env({{
                "CHUNKPROOF_SECRET_ARN": "{ARN}", "AWS_SESSION_TOKEN": "{TOKEN}",
                "CHUNKPROOF_SECRETS_PORT": "{urlsplit(extension.url).port}",
            }}))
            assert keys.for_cohere()
            assert not {{"boto3", "botocore"}} & set(sys.modules)
        """
        run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "response",
    [
        CannedResponse(400, b"not ready to serve traffic, please wait"),
        CannedResponse(403),
        CannedResponse(200, b"<html>"),
        CannedResponse(200, b"{}"),
        CannedResponse(200, b"null"),
    ],
    ids=["not ready", "refused", "no JSON", "no secret", "null"],
)
def test_an_extension_without_the_secret_falls_back_to_secrets_manager(
    response: CannedResponse, far: list[str]
) -> None:
    with recording_server(serving(response)) as extension:
        assert keys_at(extension.url).for_cohere() == {"authorization": "Bearer far-key-77d0"}
    assert far == [ARN]


def test_a_missing_extension_falls_back_to_secrets_manager(far: list[str]) -> None:
    assert keys_at(free_port()).for_cohere() == {"authorization": "Bearer far-key-77d0"}
    assert far == [ARN]


def test_without_a_session_token_the_extension_is_not_used(far: list[str]) -> None:
    with recording_server(serving(secret(json.dumps(NEAR)))) as extension:
        port = str(urlsplit(extension.url).port)
        given = {"CHUNKPROOF_SECRET_ARN": ARN, "CHUNKPROOF_SECRETS_PORT": port}
        assert Keys(Settings.from_env(given)).for_cohere() == {"authorization": "Bearer far-key-77d0"}
    assert extension.requests == []


def test_a_secret_that_is_not_an_object_of_strings_is_an_error(far: list[str]) -> None:
    for value in ("nothing", "[]", '{"COHERE_API_KEY": 5}'):
        clear_secret_cache()
        with recording_server(serving(secret(value))) as extension:
            with pytest.raises(secrets.NotConfiguredError, match="is not") as caught:
                keys_at(extension.url).for_cohere()
            assert caught.value.message.startswith("The secret of CHUNKPROOF_SECRET_ARN is not")
    assert far == []


def test_after_a_refused_key_secrets_manager_is_read_instead_of_the_extension(
    far: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = replace_clock(secrets, monkeypatch)
    with recording_server(serving(secret(json.dumps(NEAR)))) as extension:
        keys = keys_at(extension.url)
        keys.for_cohere()
        clock.now += 20
        keys.expire()
        assert keys.for_cohere() == {"authorization": "Bearer far-key-77d0"}
        clock.now += secrets.MAX_AGE_S + 1
        assert keys.for_cohere() == {"authorization": "Bearer near-key-91c4"}
    assert (len(extension.requests), far) == (2, [ARN])


def test_the_extension_gets_no_more_than_half_of_the_time_left(far: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def read(_self: SecretsExtension, _arn: str, seconds: float) -> None:
        given.append(seconds)

    monkeypatch.setattr(SecretsExtension, "read", read)
    with Deadline(1_000).enforced():
        keys_at(2773).for_cohere()
        assert deadline.current() is not None
    assert 0.4 < given[0] <= 0.5
    assert far == [ARN]
