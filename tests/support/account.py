"""An AWS account on this machine, over HTTP: moto's services, CloudFormation, and the APIs that stacks make.

`variables` has what commands need to use it: the address of AWS's services and credentials. The APIs have host names
of their own, which commands reach through a proxy and with a certificate authority.
"""

import io
import json
import os
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import boto3
from werkzeug.serving import WSGIRequestHandler, make_server

from support.artefacts import Container, link_runtime_packages
from support.http_api import HttpApis, http_apis
from support.resources import REGION
from support.stacks import CloudFormation

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "ASIAREHEARSAL",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret-but-signed-with",
    "AWS_SESSION_TOKEN": "a-session-token",
}


class Account:
    """The services of one account; functions run as processes, with nothing but what was uploaded."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.cloudformation = CloudFormation(self._template, self._bucket, self._check_release)
        self.deleted_versions: set[tuple[str, int]] = set()
        self.printed: list[str] = []  # by functions: log lines and metrics
        self.hook_statuses: list[str] = []  # as CodeDeploy received them
        self._folder = folder
        self._runtime = link_runtime_packages(folder / "runtime")

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables with the address of AWS's services and the credentials."""
        return {**CREDENTIALS, "AWS_DEFAULT_REGION": REGION, "AWS_ENDPOINT_URL": self.url}

    def client(self, service: str) -> Any:
        """Create boto3's client for this account."""
        names = {name.lower(): value for name, value in CREDENTIALS.items()}
        return boto3.client(service, endpoint_url=self.url, region_name=REGION, **names)

    def api(self, id_: str) -> dict[str, Any] | None:
        """Return the definition of an API."""
        made = self.cloudformation.resources("AWS::ApiGatewayV2::Api")
        return next((api.properties["Body"] for api in made if api.name == id_), None)

    def invoke(self, arn: str, event: dict[str, Any]) -> dict[str, Any]:
        """Invoke the version of a function that the alias in the ARN points to."""
        return self._run(self.published(arn), event)

    def invoke_step(self, name: str, event: dict[str, Any]) -> dict[str, Any]:
        """Invoke a function that has no alias, as a state machine does."""
        functions = self.cloudformation.resources("AWS::Lambda::Function")
        (function,) = (found for found in functions if found.name == name)
        return self._run(function.properties, event, name)

    def start_container(self, name: str, **variables: str) -> Container:
        """Start a container of a function, which stays for several events."""
        functions = self.cloudformation.resources("AWS::Lambda::Function")
        (function,) = (found for found in functions if found.name == name)
        return Container({**self._environment(function.properties, name), **variables})

    def _run(self, function: dict[str, Any], event: dict[str, Any], name: str = "f") -> dict[str, Any]:
        with Container(self._environment(function, name), self.printed) as container:
            return container.call(event)

    def _environment(self, function: dict[str, Any], name: str) -> dict[str, str]:
        code = self._unpacked(function["Code"]["S3Bucket"], function["Code"]["S3Key"])
        layers = [self.cloudformation.layers[layer] for layer in function["Layers"]]
        folders = [self._unpacked(layer["S3Bucket"], layer["S3Key"]) / "python" for layer in layers]
        path = os.pathsep.join(map(str, (code, *folders, self._runtime)))
        own = {"PYTHONPATH": path, "AWS_LAMBDA_FUNCTION_NAME": name}
        return {**self.variables, **function["Environment"]["Variables"], **own}

    def published(self, arn: str) -> dict[str, Any]:
        """Return the properties of a version, or of the version that an alias points to."""
        if arn in self.cloudformation.versions:
            return self.cloudformation.versions[arn]
        function, _, alias = arn.rpartition(":")
        wanted = [function.rpartition(":")[2], alias]
        found = (made.properties for made in self.cloudformation.resources("AWS::Lambda::Alias"))
        (number,) = (a["FunctionVersion"] for a in found if [a["FunctionName"], a["Name"]] == wanted)
        return self.cloudformation.versions[f"{function}:{number}"]

    def answer_codedeploy(self, reported: dict[str, str]) -> dict[str, Any]:
        """CodeDeploy's API, as far as the check of a release calls it."""
        self.hook_statuses.append(reported["status"])
        return {}

    def _check_release(self, hook: dict[str, Any]) -> bool:
        self._run(hook, {"DeploymentId": "d-1", "LifecycleEventHookExecutionId": "e-1"})
        return self.hook_statuses[-1] == "Succeeded"

    def answer_lambda(self, method: str, path: str, query: dict[str, str], body: bytes) -> dict[str, Any]:
        """Lambda's API, as far as versions and aliases are asked for, or called."""
        name, _, part = path.removeprefix("/2015-03-31/functions/").partition("/")
        aliases = self.cloudformation.resources("AWS::Lambda::Alias")
        if part == "invocations":
            return self.invoke(name, json.loads(body))
        if part.startswith("aliases/"):
            (alias,) = (alias.properties for alias in aliases if alias.properties["FunctionName"] == name)
            return {"FunctionVersion": alias["FunctionVersion"]}
        if method == "DELETE":
            self.deleted_versions.add((name, int(query["Qualifier"])))
            return {}
        numbers = range(1, self.cloudformation.last_number(name) + 1)
        kept = [str(number) for number in numbers if (name, number) not in self.deleted_versions]
        return {"Versions": [{"Version": number} for number in ("$LATEST", *kept)]}

    def _unpacked(self, bucket: str, key: str) -> Path:
        folder = self._folder / "unpacked" / bucket / key
        if not folder.exists():
            content = self.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                archive.extractall(folder)
        return folder

    def _template(self, url: str) -> str:
        bucket, _, key = urlsplit(url).path.lstrip("/").partition("/")
        text = self.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode("utf-8")
        # Nested templates have an address here; `sam delete` knows only S3's own.
        return str(text).replace(self.url, f"https://s3.{REGION}.amazonaws.com")

    def _bucket(self, name: str, wanted: bool) -> None:
        s3 = self.client("s3")
        s3.create_bucket(Bucket=name) if wanted else s3.delete_bucket(Bucket=name)


@contextmanager
def account() -> Iterator[tuple[Account, HttpApis]]:
    """Run the account and its APIs until the block ends."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    moto = DomainDispatcherApplication(create_backend_app)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        signed = environ.get("HTTP_AUTHORIZATION", "")
        if "/lambda/aws4_request" in signed or "/codedeploy/aws4_request" in signed:
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
            document = (
                made.answer_codedeploy(json.loads(body))
                if "/codedeploy/" in signed
                else made.answer_lambda(environ["REQUEST_METHOD"], environ["PATH_INFO"], query, body)
            )
            start_response("200 -", [("content-type", "application/json")])
            return [json.dumps(document).encode()]
        if "/cloudformation/aws4_request" not in signed:
            return moto(environ, start_response)
        form = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])).decode()
        status, answer = made.cloudformation.answer(dict(parse_qsl(form, keep_blank_values=True)))
        start_response(f"{status} -", [("content-type", "text/xml")])
        return [answer.encode()]

    class Quiet(WSGIRequestHandler):
        def log(self, *_: object) -> None:
            """Nothing."""

    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Account(f"http://127.0.0.1:{server.server_port}", Path(folder))
        thread.start()
        try:
            with http_apis(made, CREDENTIALS, Path(folder)) as apis:
                yield made, apis
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
