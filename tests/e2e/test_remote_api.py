"""`--api URL`: the same commands, answered by a stack instead of this process."""

import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import trustme
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from chunkproof.base.errors import NotConfiguredError
from chunkproof.net.transport import tls_context
from chunkproof_cli.api_client import _sign
from chunkproof_cli.main import SUMMARIES, cli

from support.api import committed_event, invoke
from support.commands import Command
from support.listeners import refusing_address, silent_server, web_server
from support.recording_server import CannedResponse, RecordingServer, recording_server
from support.serving import Serving, serving

QUESTION = "composed and decomposed accents"
CHUNK = "vectordb-text-hygiene-00"
JSON = {"content-type": "application/json"}
HANDBOOK = ("--collection", "handbook")


@pytest.fixture(scope="module")
def server(loaded_handbook: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(loaded_handbook, tmp_path_factory.mktemp("remote")) as running:
        yield running


PASSING = {"latency_ms", "query_embedded_at", "embedding_time_ms", "qdrant_query_time_ms", "embedding_cached"}
PASSING |= {"query_id", "retrieval_time_ms"}


def lasting(answer: Any) -> Any:
    """An answer without what differs from run to run, its numbers to four places."""
    if isinstance(answer, dict):
        kept = {key: lasting(value) for key, value in answer.items() if key not in PASSING}
        if "result_count" in kept:
            kept.pop("timestamp")
        return kept
    if isinstance(answer, list):
        return [lasting(value) for value in answer]
    return round(answer, 4) if isinstance(answer, float) else answer


# the same as here


@pytest.mark.parametrize(
    "arguments",
    [
        ("search", QUESTION, "-k", 3),
        ("search", "text", "-k", 7, "--threshold", 0.2, "--filter", 'position={"lt": 3}'),
        ("search", "text", "--filter", "document_id=none"),
        ("validate", CHUNK),
        ("validate", CHUNK, "--original", "something else"),
        ("validate", CHUNK, "--sha256", "0" * 64),
        ("collection",),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:3])),
)
def test_the_api_returns_what_the_local_backend_returns(
    handbook: Command, server: Serving, arguments: tuple[object, ...]
) -> None:
    local = handbook(*arguments, *HANDBOOK, "--json")
    remote = handbook(*arguments, *HANDBOOK, "--json", "--api", server.url)
    assert (remote.code, remote.err) == (local.code, local.err)
    assert lasting(remote.json) == lasting(local.json)


def test_tables_are_printed_for_a_stack_too(handbook: Command, server: Serving) -> None:
    run = handbook("search", QUESTION, *HANDBOOK, "--api", server.url)
    assert (run.code, CHUNK in run.out) == (0, True)


def test_the_address_may_come_from_the_environment_and_end_with_a_slash(
    chunkproof: Command, server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKPROOF_API", f"{server.url}/")
    assert chunkproof("search", QUESTION, "--json").json["results"][0]["metadata"]["chunk_id"] == CHUNK


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("validate", "unknown", "--original", "x"), 1, "Chunk unknown not found"),
        (("search", " "), 2, "TEXT cannot be empty"),
        (("search", "a", "-k", 0), 2, "--top-k must be between 1 and 1000"),
        (("validate", CHUNK, "--sha256", "abc"), 2, "--sha256 must be 64 hexadecimal digits"),
        (("search", "a", "--collection", "handbok"), 2, "Collection handbok not found"),
        (("collection", "handbok"), 2, "Collection handbok not found"),
        (("collection", "../handbok"), 2, "Collection ../handbok not found"),
        (("search", "a", "--filter", 'x={"gte": NaN}'), 2, "--filter x.gte must be a finite number, not NaN"),
        (("search", "a", "--filter", 'x={"gte": 1, "gte": 2}'), 2, "--filter x.gte is given twice"),
        (("search", "robot " * 300), 2, "TEXT is too long: 302 tokens, all-MiniLM-L6-v2 reads 256"),
    ],
)
def test_errors_have_the_same_message_and_exit_code_with_and_without_api(
    handbook: Command, server: Serving, arguments: tuple[object, ...], code: int, message: str
) -> None:
    where = () if "handbok" in str(arguments) else HANDBOOK
    local = handbook(*arguments, *where)
    remote = handbook(*arguments, *where, "--api", server.url)
    assert remote.err.splitlines()[0] == local.err.splitlines()[0] == message
    assert remote.code == local.code == code
    if "handbok" not in str(arguments):  # of a store of its own, a command knows the names and suggests one
        assert remote.err == local.err
    assert remote.out == ""


def test_a_threshold_that_is_not_a_number_is_wrong_input(handbook: Command, server: Serving) -> None:
    run = handbook("search", "a", "--threshold", "nan", *HANDBOOK, "--api", server.url)
    assert (run.code, run.err) == (2, "--threshold must be a finite number, not NaN\n")


def test_a_failure_as_json_has_its_code(handbook: Command, server: Serving) -> None:
    run = handbook("validate", "unknown", "--original", "x", "--json", "--api", server.url)
    assert run.json["error"] == {"code": "CHUNK_NOT_FOUND", "message": "Chunk unknown not found"}


def test_the_collection_command_needs_a_name_with_api(chunkproof: Command, server: Serving) -> None:
    run = chunkproof("collection", "--api", server.url)
    assert (run.code, run.err) == (2, "With --api, name the collection: --collection NAME\n")


@pytest.mark.parametrize(
    "name",
    [
        "my docs",
        "büro",
        "a+b&c=d;e",
        pytest.param(
            "c#",
        ),
        pytest.param(
            "🤖",
        ),
        pytest.param(
            "100%25",
        ),
    ],
)
def test_any_collection_name_can_be_requested(chunkproof: Command, server: Serving, name: str) -> None:
    run = chunkproof("collection", name, "--api", server.url)
    assert run.err.splitlines()[0] == f"Collection {name} not found"


def test_an_argument_that_is_not_unicode_is_refused_with_and_without_api(handbook: Command, server: Serving) -> None:
    local = handbook("search", "a\udcff", *HANDBOOK)
    assert (local.code, local.err) == (2, "TEXT has a lone surrogate, which is not valid Unicode\n")
    remote = handbook("search", "a\udcff", *HANDBOOK, "--api", server.url)
    assert (remote.code, remote.err) == (local.code, local.err)


# who is calling


@pytest.fixture
def stack() -> Iterator[RecordingServer]:
    """Answers every search like a stack with nothing to find, and keeps what it was asked."""
    body = {
        "query": "a",
        "query_id": "q",
        "status": "success",
        "results": [],
        "execution": {
            "latency_ms": 1,
            "result_count": 0,
            "threshold_applied": 0.0,
            "timestamp": "2026-01-15T09:00:00Z",
        },
    }
    with recording_server(lambda _: CannedResponse(body=json.dumps(body).encode(), headers=JSON)) as server:
        yield server


def test_a_token_is_sent_as_a_bearer(
    chunkproof: Command, stack: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKPROOF_TOKEN", "t0ken")
    run = chunkproof("search", "é\u0301 🤖", "-k", 2, *HANDBOOK, "--api", f"{stack.url}/stage/")
    assert run.code == 0
    (request,) = stack.requests
    assert (request.method, request.path) == ("POST", "/stage/search")
    assert request.headers["authorization"] == "Bearer t0ken"
    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.body) == {
        "query_text": "é\u0301 🤖",
        "top_k": 2,
        "similarity_threshold": 0.0,
        "filters": {},
        "collection": "handbook",
    }


def test_without_a_token_a_plain_address_gets_no_authorization(chunkproof: Command, stack: RecordingServer) -> None:
    assert chunkproof("search", "a", "--api", stack.url).code == 0
    assert "authorization" not in stack.requests[0].headers


def test_the_token_does_not_follow_a_redirect(
    chunkproof: Command, stack: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKPROOF_TOKEN", "t0ken")
    with web_server(307, b"", {"location": stack.url}) as url:
        run = chunkproof("search", "a", "--api", url)
    assert (run.code, stack.requests) == (3, [])
    assert f"{url} answered 307" in run.err


def test_a_token_that_is_not_ascii_is_wrong_input(
    chunkproof: Command, stack: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKPROOF_TOKEN", "t0ken-é")
    run = chunkproof("search", "a", "--api", stack.url)
    assert (run.code, "CHUNKPROOF_TOKEN" in run.err) == (2, True)


# signatures


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> Credentials:
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session")
    return Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI", "session")


@pytest.fixture
def no_credentials(credentials: Credentials, monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials anywhere."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


STACK = "https://a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com"


def authorization(headers: dict[str, str]) -> dict[str, str]:
    algorithm, _, rest = headers["Authorization"].partition(" ")
    return {"algorithm": algorithm, **dict(re.findall(r"(\w+)=([^,]+)", rest))}


@pytest.mark.parametrize(
    ("method", "path", "content", "headers"),
    [
        ("POST", "/search", '{"query_text": "é"}'.encode(), JSON),
        ("GET", "/health/deep", b"", {}),
        ("GET", "/collections/my%20docs", b"", {}),
    ],
)
def test_a_request_is_signed_as_botocore_signs_it(
    credentials: Credentials, method: str, path: str, content: bytes, headers: dict[str, str]
) -> None:
    signed = _sign(method, STACK + path, content, headers)
    again = AWSRequest(method=method, url=STACK + path, data=content, headers=headers)
    SigV4Auth(credentials, "execute-api", "eu-central-1").add_auth(again)
    ours, theirs = authorization(signed), authorization(dict(again.headers))
    assert ours["algorithm"] == "AWS4-HMAC-SHA256"
    day = signed["X-Amz-Date"][:8]
    assert ours["Credential"] == f"AKIDEXAMPLE/{day}/eu-central-1/execute-api/aws4_request"
    assert ours["SignedHeaders"] == theirs["SignedHeaders"]
    assert re.fullmatch("[0-9a-f]{64}", ours["Signature"])
    if signed["X-Amz-Date"] == again.headers["X-Amz-Date"]:
        assert ours["Signature"] == theirs["Signature"]
    assert signed["X-Amz-Security-Token"] == "session"
    assert {name: signed[name] for name in headers} == headers


def test_another_body_has_another_signature(credentials: Credentials) -> None:
    one, other = (authorization(_sign("POST", f"{STACK}/search", body, JSON)) for body in (b"{}", b"{ }"))
    assert one["Signature"] != other["Signature"]


def test_a_custom_domain_is_signed_for_the_configured_region(
    credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    signed = _sign("GET", "https://search.example.com/health", b"", {})
    assert "/us-west-2/execute-api/" in authorization(signed)["Credential"]
    of_stack = _sign("GET", f"{STACK}/health", b"", {})
    assert "/eu-central-1/execute-api/" in authorization(of_stack)["Credential"], "the host's own comes first"


def test_a_custom_domain_without_a_region_says_what_to_set(credentials: Credentials) -> None:
    with pytest.raises(NotConfiguredError, match="AWS_DEFAULT_REGION"):
        _sign("GET", "https://search.example.com/health", b"", {})


@pytest.mark.usefixtures("no_credentials")
def test_without_credentials_the_message_names_both_ways_to_authorize(chunkproof: Command) -> None:
    run = chunkproof("search", "a", "--json", "--api", STACK)
    assert (run.code, run.json["error"]["code"]) == (3, "NOT_CONFIGURED")
    assert "aws configure" in run.err
    assert "CHUNKPROOF_TOKEN" in run.err


# what else may answer


@pytest.mark.parametrize(
    ("status", "token", "hint"),
    [
        (403, "", "check your AWS credentials and their permission execute-api:Invoke"),
        (401, "t0ken", "check the token in CHUNKPROOF_TOKEN"),
        (403, "t0ken", "check the token in CHUNKPROOF_TOKEN"),
    ],
)
def test_a_refusal_of_api_gateway_says_what_to_check(
    chunkproof: Command, monkeypatch: pytest.MonkeyPatch, status: int, token: str, hint: str
) -> None:
    monkeypatch.setenv("CHUNKPROOF_TOKEN", token)
    with web_server(status, b'{"message":"Forbidden"}', JSON) as url:
        run = chunkproof("search", "a", "--api", url)
    assert (run.code, run.err) == (2, f"{url} refused the request ({status} Forbidden); {hint}\n")
    assert "t0ken" not in run.err


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>hello</html>"),
        (200, b"{}"),
        (200, b""),
        (200, b"[1, 2]"),
        (200, b"[" * 100_000),
        (500, b"[" * 100_000 + b"]" * 100_000),
        (200, b"\xff\xfe"),
        (200, b'{"message": "ok"}'),
        (404, b'{"message":"Not Found"}'),
        (429, b'{"message":"Too Many Requests"}'),
        (500, b'{"message":"Internal Server Error"}'),
        (502, b"<html>Bad Gateway</html>"),
        (503, b'{"message":"Service Unavailable"}'),
        pytest.param(
            400,
            b'{"error": {"code": "X"}, "errors": 5}',
        ),
    ],
)
def test_a_response_of_another_service_could_not_be_judged(chunkproof: Command, status: int, body: bytes) -> None:
    with web_server(status, body, JSON) as url:
        run = chunkproof("search", "a", "--api", url)
    assert run.code == 3
    assert run.err.startswith(f"{url} answered {status}")
    assert run.out == ""


def test_a_request_over_the_limit_of_api_gateway_is_wrong_input(chunkproof: Command) -> None:
    with web_server(413, b'{"message":"Request Entity Too Large"}', JSON) as url:
        run = chunkproof("validate", "a", "--original", "x", "--api", url)
    assert (run.code, run.err) == (2, f"{url} answered 413 Request Entity Too Large\n")


def test_the_envelope_of_a_failure_keeps_its_class(chunkproof: Command) -> None:
    reply = invoke(committed_event("search.404-unknown-collection.json"))
    assert reply.status == 503, "nothing is configured here"
    with web_server(503, reply.text.encode(), JSON) as url:
        run = chunkproof("search", "a", "--json", "--api", url)
    assert (run.code, run.json["error"]["code"]) == (3, "NOT_CONFIGURED")


def test_a_response_that_cannot_be_decoded_could_not_be_judged(chunkproof: Command) -> None:
    with web_server(200, b"not gzip", {**JSON, "content-encoding": "gzip"}) as url:
        run = chunkproof("search", "a", "--api", url)
    assert run.code == 3


def test_an_unreachable_address_could_not_be_judged(chunkproof: Command) -> None:
    url = refusing_address()
    run = chunkproof("search", "a", "--api", url)
    assert (run.code, run.err) == (3, f"{url} could not be reached (Connection refused); check --api\n")


@pytest.mark.parametrize(
    "proxy", ["http://me:k3y4stays5here", "ftp://me:k3y4stays5here@x", "http://me:k3y4stays5here@x:p"]
)
def test_a_proxy_that_no_retriever_can_use_is_named_without_its_password(
    chunkproof: Command, monkeypatch: pytest.MonkeyPatch, proxy: str, tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    (tmp_path / "suite.json").write_text('{"name": "s", "cases": [{"name": "a", "query_text": "b"}]}')
    run = chunkproof("suite", "run", str(tmp_path / "suite.json"), "--retriever", refusing_address())
    assert run.code in (2, 3), run.err
    assert "k3y4stays5here" not in run.err + run.out


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize("proxy", ["nonsense://", "http://x:port", "socks5://127.0.0.1:1"])
def test_a_proxy_that_cannot_be_used_is_named(
    chunkproof: Command, monkeypatch: pytest.MonkeyPatch, variable: str, proxy: str
) -> None:
    monkeypatch.setenv(variable, proxy)
    run = chunkproof("search", "a", "--api", refusing_address())
    assert run.code == 3
    assert "HTTPS_PROXY, HTTP_PROXY or ALL_PROXY cannot be used" in run.err


def test_certificates_that_cannot_be_read_are_named(chunkproof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    tls_context.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", "/nothing/here")
    expected = "The certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: No such file or directory\n"
    for arguments in (["--api", refusing_address()], []):
        monkeypatch.setenv("QDRANT_URL", "https://127.0.0.1:1")
        run = chunkproof("search", "a query", *arguments)
        assert (run.code, run.err) == (3, expected)


def test_an_untrusted_certificate_is_reported(chunkproof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKPROOF_TOKEN", "a-token")
    stranger = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(stranger)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listening = stranger.wrap_socket(listener, server_side=True)

        def accept() -> None:
            with pytest.raises(ssl.SSLError):
                listening.accept()

        threading.Thread(target=accept, daemon=True).start()
        run = chunkproof("search", "a", "--api", f"https://127.0.0.1:{listening.getsockname()[1]}")
        listening.close()
    assert run.code == 3
    assert "could not be reached (certificate verify failed" in run.err


def test_a_timeout_could_not_be_judged(chunkproof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKPROOF_DEADLINE_MS", "300")
    with silent_server() as url:
        run = chunkproof("search", "a", "--api", url)
    assert (run.code, run.err) == (3, f"{url} did not answer in time\n")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8080",
        "ftp://a.example",
        "http://",
        "https:///path",
        "http://a..b",
        "http://a b",
        pytest.param(
            "http://[::1",
        ),
        pytest.param(
            "http://localhost:port",
        ),
    ],
)
def test_an_invalid_url_is_wrong_input(chunkproof: Command, url: str) -> None:
    run = chunkproof("search", "a", "--api", url)
    assert (run.code, run.err) == (2, f"--api {url}: not an http or https URL\n")


# commands that no stack can answer


WITHOUT = {
    ("demo",): "the demo always uses the embedded store",
    ("load", "chunks.jsonl"): "the API is read-only; load writes to QDRANT_URL, or to the embedded store",
    ("serve",): "serve is itself an API, for QDRANT_URL or the embedded store",
    ("suite", "lint", "suite.yaml"): "it reads the store itself",
    ("suite", "init"): "it reads the store itself",
    ("report", "report.json"): "a report is a file",
    ("secret",): "keys are stored in Secrets Manager, not in a stack",
}


@pytest.mark.parametrize(("arguments", "why"), WITHOUT.items(), ids=map("-".join, WITHOUT))
def test_commands_without_api_support_say_why(chunkproof: Command, arguments: tuple[str, ...], why: str) -> None:
    run = chunkproof(*arguments, "--api", "https://stack.example")
    assert run.code == 2
    assert why in run.err


@pytest.mark.parametrize("name", SUMMARIES)
def test_every_command_has_the_api_option(name: str) -> None:
    context = click.Context(cli)
    command = cli.get_command(context, name)
    names = command.list_commands(context) if isinstance(command, click.Group) else []
    for one in [command.get_command(context, inner) for inner in names] or [command]:
        assert any("--api" in option.opts for option in one.params), one.name
