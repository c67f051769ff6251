"""The built artefacts behind `sam local start-api`: the same answers, and the same events as the local gateway's.

Needs Docker, a build in .aws-sam/local (`make invoke` leaves one) and `CHUNKPROOF_SAM` with the path of sam.
"""

import asyncio
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from chunkproof_cli.local.gateway import build_event
from chunkproof_cli.local.sandbox_services import EMBED_PORT

from support.cloud import Host, handbook_host
from support.commands import Command, readme_commands
from support.qdrant_server import free_port
from tools.checks.invoke import HOST_NAME, ROOT, differences, sam_options

SAM = os.environ.get("CHUNKPROOF_SAM")
BUILT = Path(__file__).resolve().parents[2] / ".aws-sam" / "local" / "template.yaml"
QUESTION = "How many neighbours should each node of the graph have?"

pytestmark = pytest.mark.skipif(not SAM, reason="CHUNKPROOF_SAM does not name the AWS SAM CLI")

ECHO_TEMPLATE = """
Transform: AWS::Serverless-2016-10-31
Resources:
  Echo:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: python3.13
      Handler: app.handler
      CodeUri: .
      Architectures: [ARCHITECTURE]
      Events:
        Search: { Type: HttpApi, Properties: { Path: /search, Method: POST } }
        Collection: { Type: HttpApi, Properties: { Path: "/collections/{name}", Method: GET } }
"""
ECHO = """
import json
def handler(event, context):
    return {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": json.dumps(event)}
"""


@contextmanager
def start_api(template: Path, *options: str) -> Iterator[str]:
    """The gateway of `sam local` on a free port."""
    port = free_port()
    command = [str(SAM), "local", "start-api", "--template", str(template), "--port", str(port), *options]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=template.parent)
        try:
            _wait(f"http://127.0.0.1:{port}", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up:
        assert process.poll() is None, "sam local start-api ended"
        try:
            httpx.get(f"{url}/nothing-here", timeout=5)
            return
        except httpx.TransportError:
            time.sleep(0.3)
    raise AssertionError("sam local start-api did not start")


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with handbook_host("0.0.0.0") as running:
        yield running


@pytest.fixture(scope="module")
def api(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    variables = tmp_path_factory.mktemp("sam") / "variables.json"
    variables.write_text(json.dumps({"Parameters": host.variables(HOST_NAME)}))
    options = [
        *sam_options(variables),
        "--warm-containers",
        "LAZY",  # EAGER starts nested functions too, whose layer is a parameter that sam local cannot resolve
        "--parameter-overrides",
        "QdrantUrl=http://unused",
    ]
    with start_api(BUILT, *options) as url:
        yield url


def ask(url: str) -> dict[str, Any]:
    answer = httpx.post(f"{url}/search", json={"query_text": QUESTION, "top_k": 3}, timeout=60)
    assert answer.status_code == 200
    assert answer.headers["x-request-id"]
    found: dict[str, Any] = answer.json()
    return found


def test_start_api_serve_and_command_line_find_the_same(
    api: str, host: Host, chunkproof: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in host.variables().items():
        monkeypatch.setenv(name, value)
    by_command = chunkproof("search", QUESTION, "-k", 3, "--json").json
    port = free_port()
    serve = subprocess.Popen([sys.executable, "-m", "chunkproof_cli", "serve", "--port", str(port)])
    try:
        _wait(f"http://127.0.0.1:{port}", serve)
        by_serve = ask(f"http://127.0.0.1:{port}")
    finally:
        serve.terminate()
        serve.wait(30)
    by_container = ask(api)
    assert by_command["results"][0]["metadata"]["chunk_id"] == "vectordb-hnsw-01"
    assert differences(by_serve, by_command) == []
    assert differences(by_container, by_command) == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/health", None, 200),
        ("GET", "/collections/handbook", None, 200),
        ("POST", "/search", {"query_text": " "}, 400),
        ("POST", "/validate-chunk", {"chunk_id": "nobody", "original_text": "x"}, 404),
    ],
)
def test_routes_reach_their_functions(api: str, method: str, path: str, body: Any, status: int) -> None:
    answer = httpx.request(method, api + path, json=body, timeout=60)
    assert answer.status_code == status
    assert answer.json()


# the commands of the README, word for word


@pytest.fixture(scope="module")
def shell() -> dict[str, str]:
    """The environment of a user's shell: sam and chunkproof on the path, and AWS's image."""
    path = os.pathsep.join((str(Path(str(SAM)).parent), str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path}
    if image := os.environ.get("LAMBDA_IMAGE"):  # this machine cannot pull AWS's: another image has its name
        subprocess.run(["docker", "tag", image, "public.ecr.aws/lambda/python:3.13-x86_64"], check=True)
        environment["SAM_SKIP_PULL_IMAGE"] = "1"
    return environment


@contextmanager
def in_background(command: str, environment: dict[str, str], url: str) -> Iterator[None]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(shlex.split(command), env=environment, cwd=ROOT, stdout=log, stderr=log)
        try:
            _wait(url, process)
            yield
        finally:
            process.terminate()
            process.wait(30)


def test_the_commands_of_the_readme_work_as_they_are_written(shell: dict[str, str]) -> None:
    sandbox, build, *invocations, start, curl = readme_commands()

    def run(command: str) -> str:
        done = subprocess.run(command, shell=True, env=shell, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()

    with in_background(sandbox, shell, f"http://127.0.0.1:{EMBED_PORT}"):
        run(build)
        answers = [json.loads(run(command).splitlines()[-1]) for command in invocations]
        assert [answer["statusCode"] for answer in answers] == [200, 200]
        found, validated = (json.loads(answer["body"]) for answer in answers)
        assert found["results"][0]["metadata"]["chunk_id"] == "vectordb-hnsw-01"
        assert validated["matches"] is True
        with in_background(start, shell, "http://127.0.0.1:3000"):
            assert json.loads(run(curl))["status"] == "success"


class Recorder:
    """Keeps what an ASGI server hands to the gateway."""

    def __init__(self) -> None:
        self.scope: Any = None
        self.body = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope, self.body = scope, (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


def from_gateway(request: dict[str, Any]) -> dict[str, Any]:
    """The event that the local gateway makes of a request."""
    recorder = Recorder()

    async def send() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(recorder), base_url="http://127.0.0.1") as client:
            await client.request(**request)

    asyncio.run(send())
    return build_event({"http_version": "1.1", **recorder.scope}, recorder.body)


REQUESTS = [
    {
        "method": "POST",
        "url": "/search?a=1&a=2&b=x%20y",
        "content": json.dumps({"query_text": "naïve 🤖"}, ensure_ascii=False).encode(),
        "headers": {"content-type": "application/json", "x-twice": "one", "cookie": "k=v; l=w"},
    },
    {"method": "GET", "url": "/collections/hand%20book"},
]
# What no two gateways agree on, or what says which one it was.
VARYING = {
    "authorizer",
    "requestId",
    "time",
    "timeEpoch",
    "domainName",
    "domainPrefix",
    "accountId",
    "apiId",
    "sourceIp",
    "userAgent",
}


def comparable(event: dict[str, Any]) -> dict[str, Any]:
    context = {k: v for k, v in event["requestContext"].items() if k not in VARYING}
    context["http"] = {k: v for k, v in context["http"].items() if k not in VARYING}
    wanted = {"content-type", "x-twice", "content-length"}
    headers = {k.lower(): v for k, v in event["headers"].items() if k.lower() in wanted}
    # SAM writes fields that have nothing in them; AWS, and the gateway here, leave them out.
    given = {name: value for name, value in event.items() if value not in (None, "", [], {})}
    return {**given, "requestContext": context, "headers": headers}


@pytest.mark.parametrize("request_", REQUESTS, ids=["text", "path"])
def test_the_gateways_event_is_the_one_that_sam_sends(request_: dict[str, Any], tmp_path: Path) -> None:
    architecture = "arm64" if os.uname().machine in ("arm64", "aarch64") else "x86_64"
    (tmp_path / "template.yaml").write_text(ECHO_TEMPLATE.replace("ARCHITECTURE", architecture))
    (tmp_path / "app.py").write_text(ECHO)
    image = os.environ.get("LAMBDA_IMAGE")
    with start_api(
        tmp_path / "template.yaml", *(["--invoke-image", image, "--skip-pull-image"] if image else [])
    ) as url:
        answer = httpx.request(**{**request_, "url": url + request_["url"]}, timeout=60)
    by_sam, by_gateway = comparable(answer.json()), comparable(from_gateway(request_))
    assert by_gateway == by_sam


def test_sam_finds_the_template_valid() -> None:
    root = BUILT.parents[2]
    command = [
        str(SAM),
        "validate",
        "--lint",
        "--template",
        str(root / "template.yaml"),
        "--region",
        "us-east-1",
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert run.returncode == 0, run.stdout + run.stderr
