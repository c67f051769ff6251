"""The layer as SAM builds it: small enough, compiled for good, and all that the handlers need."""

import json
import os
import platform
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chunkproof.base.request import Deadline
from chunkproof.stores.store_port import Point, WritableStore

from support.artefacts import call_handler, link_runtime_packages
from support.cohere_server import CohereServer, cohere_server, hashed
from support.listeners import silent_server
from support.python313 import python313
from support.qdrant_server import QdrantServer
from support.recording_server import CannedResponse, RecordedRequest, recording_server

ROOT = Path(__file__).resolve().parents[2]
HOST = "arm64" if platform.machine() in ("arm64", "aarch64") else "x86_64"
BUDGET = tomllib.loads((Path(__file__).parent / "budget.toml").read_text("utf-8"))


def build(folder: Path, architecture: str) -> Path:
    python = python313()
    if python is None:
        reason = "no Python 3.13, which Lambda runs and the layer is compiled with"
        (pytest.fail if os.environ.get("CHUNKPROOF_REQUIRE_SERVER") else pytest.skip)(reason)
    copy = folder / "shared"  # as SAM does
    shutil.copytree(ROOT / "shared", copy, ignore=shutil.ignore_patterns("__pycache__"))
    variables = {
        "ARTIFACTS_DIR": str(folder / "layer"),
        "ARCHITECTURE": architecture,
        "PYTHON313": str(python),
    }
    make = ["make", "--silent", "-C", str(copy), "build-SharedLayer"]
    subprocess.run(make, env={**os.environ, **variables}, check=True, capture_output=True)
    return folder / "layer"


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("host"), HOST)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return link_runtime_packages(tmp_path_factory.mktemp("runtime"))


@pytest.fixture(scope="module")
def cohere() -> Iterator[CohereServer]:
    with cohere_server(hashed(8)) as server:
        yield server


def megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def test_the_layer_is_within_its_size(layer: Path) -> None:
    assert megabytes(layer) <= BUDGET["layer"]["megabytes"]


def test_the_layer_for_the_other_processor_is_within_its_size_and_for_it(tmp_path: Path) -> None:
    other = "x86_64" if HOST == "arm64" else "arm64"
    built = build(tmp_path, other)
    assert megabytes(built) <= BUDGET["layer"]["megabytes"]
    machine = {"arm64": "aarch64", "x86_64": "x86_64"}[other]
    libraries = [file.name for file in built.rglob("*.cpython-313-*.so")]
    assert libraries
    assert all(machine in name for name in libraries)


def test_every_module_has_bytecode_that_zip_dates_do_not_make_stale(layer: Path) -> None:
    sources = [file for file in (layer / "python").rglob("*.py") if "site-packages" not in file.parts]
    for source in sources:
        compiled = source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc"
        assert compiled.is_file(), source
        assert compiled.read_bytes()[4:8] == b"\x01\x00\x00\x00", "hash-based, not checked"


def test_the_layer_holds_neither_tests_nor_what_the_runtime_brings(layer: Path) -> None:
    site = layer / "python"
    for name in (
        "boto3",
        "botocore",
        "huggingface_hub",
        "numpy",
        "grpc",
        "tokenizers",
        "chunkproof_cli",
        "pytest",
    ):
        assert not (site / name).exists()
    assert not [folder for folder in site.rglob("tests") if folder.is_dir()]
    assert (site / "chunkproof" / "search" / "single.py").is_file()


@pytest.mark.server
@pytest.mark.parametrize(
    ("function", "path", "body", "expected"),
    [
        ("search", "/search", {"query_text": "anything"}, lambda b: b["results"][0]["text"] == "proof"),
        ("search", "/health", None, lambda b: b == {"status": "ok", "contract_version": "1.0"}),
        (
            "validate_chunk",
            "/validate-chunk",
            {"chunk_id": "1", "original_text": "proof"},
            lambda b: b["matches"] is True,
        ),
        (
            "validate_chunk",
            "/validate-chunks",
            {"chunks": [{"chunk_id": "1", "original_text": "proof"}]},
            lambda b: b["passed"] == 1,
        ),
    ],
)
def test_a_handler_answers_with_nothing_but_artefacts_and_the_runtimes_boto3(
    layer: Path,
    runtime: Path,
    cohere: CohereServer,
    served_qdrant: QdrantServer,
    server_store: WritableStore,
    collection: str,
    function: str,
    path: str,
    body: dict[str, Any] | None,
    expected: Any,
) -> None:
    server_store.create(collection, 8, Deadline(10_000))
    vector = tuple(hashed(8)("anything"))
    payload = {"text": "proof", "url": "https://example.com"}
    server_store.upsert(collection, [Point(1, payload, vector=vector)], "", Deadline(10_000))
    method = "GET" if body is None else "POST"
    http = {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "::1", "userAgent": "test"}
    event = {
        "rawPath": path,
        "rawQueryString": "",
        "headers": {},
        "requestContext": {"http": http, "stage": "$default", "requestId": "r"},
        "body": json.dumps(body) if body else None,
    }
    answer = call_handler(
        event,
        {
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "functions" / function, layer / "python", runtime))),
            "QDRANT_URL": served_qdrant.url,
            "COHERE_API_KEY": cohere.key,
            "COHERE_BASE_URL": cohere.url,
            "CHUNKPROOF_COLLECTION": collection,
        },
    )
    assert answer["statusCode"] == 200
    assert expected(json.loads(answer["body"]))


@pytest.mark.server
def test_the_steps_of_a_suite_run_with_nothing_but_artefacts_and_the_runtimes_boto3(
    layer: Path,
    runtime: Path,
    cohere: CohereServer,
    served_qdrant: QdrantServer,
    server_store: WritableStore,
    collection: str,
) -> None:
    server_store.create(collection, 8, Deadline(10_000))
    point = Point(1, {"text": "proof"}, vector=tuple(hashed(8)("anything")))
    server_store.upsert(collection, [point], "", Deadline(10_000))
    cases = [{"name": "a", "query_text": "anything", "expected_doc_ids": ["1"]}]
    objects = {"/bucket/suite.json": json.dumps({"name": "s", "cases": cases}).encode()}

    def keep(asked: RecordedRequest) -> CannedResponse:
        """As S3 does, as far as a run needs it."""
        path = asked.path.partition("?")[0]
        if asked.method == "PUT":
            objects[path] = asked.body
            return CannedResponse(body=b"")
        if path not in objects:
            return CannedResponse(404, b"<Error><Code>NoSuchKey</Code></Error>")
        return CannedResponse(body=objects[path])

    with recording_server(keep) as s3:
        environment = {
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "functions" / "suite", layer / "python", runtime))),
            "QDRANT_URL": served_qdrant.url,
            "COHERE_API_KEY": cohere.key,
            "COHERE_BASE_URL": cohere.url,
            "CHUNKPROOF_COLLECTION": collection,
            "AWS_ENDPOINT_URL_S3": s3.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "eu-central-1",
        }
        run = {"bucket": "bucket", "run_id": "r", "collection": "", "source": "", "shard_cases": "5"}
        split = call_handler({**run, "step": "split", "suite": "s3://bucket/suite.json"}, environment)
        assert (split["cases"], split["shards"]) == (1, 1)
        shard = call_handler({**run, "step": "shard", "shard": 0}, environment)
        assert shard == {"shard": 0, "cases": 1, "finished": True}
        merged = call_handler({**run, "step": "merge"}, environment)
    assert merged == {
        "report": "s3://bucket/runs/r/report.json",
        "versions": None,
        "cases": 1,
        "passed": 1,
        "failed": 0,
        "errors": 0,
    }
    assert json.loads(objects["/bucket/runs/r/report.json"])["result"]["pass_rate"] == 100


def test_initialization_primes_the_clients_and_opens_no_socket(layer: Path, runtime: Path) -> None:
    script = """
        import os, sys
        import app
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        opened = [os.readlink(link) for link in links if os.path.lexists(link)]
        assert {"chunkproof.stores.server", "cohere.core.client_wrapper"} <= set(sys.modules)
        assert "boto3" in sys.modules, "a request has no time to import it"
        print(sum(name.startswith("socket:") for name in opened))
    """
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc to see open sockets in")
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "functions" / "search", layer / "python", runtime))),
        "QDRANT_URL": "https://nowhere.example.com:6333",
        "CHUNKPROOF_SECRET_ARN": "arn:aws:secretsmanager:us-east-1:123456789012:secret:keys",
    }
    command = [str(python313()), "-S", "-c", textwrap.dedent(script)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "0"), run.stderr[-2000:]


def first_request_with_a_secret(layer: Path, runtime: Path, aws: str, deadline_ms: int) -> tuple[str | None, float]:
    """The error code and the milliseconds of the first request of a process."""
    script = """
        import contextlib, io, json, sys, time
        import app
        class Context:
            def get_remaining_time_in_millis(self):
                return 30000
        started = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            response = app.lambda_handler(json.load(sys.stdin), Context())
        ms = (time.perf_counter() - started) * 1000
        error = json.loads(response["body"]).get("error", {})
        print("ANSWER" + json.dumps([error.get("code"), ms]))
    """
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "functions" / "search", layer / "python", runtime))),
        "QDRANT_URL": aws,
        "COHERE_BASE_URL": aws,
        "CHUNKPROOF_SECRET_ARN": "arn:aws:secretsmanager:us-east-1:123456789012:secret:keys",
        "CHUNKPROOF_COLLECTION": "docs",
        "CHUNKPROOF_DEADLINE_MS": str(deadline_ms),
        "AWS_ENDPOINT_URL_SECRETS_MANAGER": aws,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }
    event = (ROOT / "events" / "search.200.json").read_text("utf-8")
    command = [str(python313()), "-S", "-c", textwrap.dedent(script)]
    run = subprocess.run(command, env=environment, input=event, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    code, ms = json.loads(run.stdout.split("ANSWER")[1])
    return code, ms


def test_the_first_request_that_cannot_read_its_secret_keeps_to_the_deadline(layer: Path, runtime: Path) -> None:
    with silent_server() as aws:
        code, ms = first_request_with_a_secret(layer, runtime, aws, 300)
    assert code == "SECRET_TIMEOUT", "not NOT_CONFIGURED, for which a rollout goes back"
    assert 250 < ms < 450


def test_every_function_has_a_budget() -> None:
    assert set(BUDGET["functions"]) == {app.parent.name for app in (ROOT / "functions").glob("*/app.py")}


@pytest.mark.parametrize("function", BUDGET["functions"])
def test_a_function_imports_no_more_than_its_budget(layer: Path, runtime: Path, function: str) -> None:
    script = """
        import json, sys
        before = set(sys.modules)
        import app
        imported = set(sys.modules) - before
        packages = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names - {"app"}
        packages = {name for name in packages if not name.startswith("_")}
        print(json.dumps({"modules": len(imported), "packages": sorted(packages)}))
    """
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "functions" / function, layer / "python", runtime))),
        "QDRANT_URL": "https://nowhere.example.com:6333",
        "COHERE_API_KEY": "a-key",
    }
    command = [str(python313()), "-S", "-c", textwrap.dedent(script)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    imported = json.loads(run.stdout)
    budget = BUDGET["functions"][function]
    assert imported["packages"] == budget["packages"]
    assert imported["modules"] <= budget["modules"]


def test_every_module_on_the_layer_imports_without_what_the_layer_leaves_out(layer: Path, runtime: Path) -> None:
    script = """
        import importlib, pkgutil, sys
        import chunkproof
        import httpx
        from chunkproof.net.transport import DeadlineTransport, DirectClient
        for module in pkgutil.walk_packages(chunkproof.__path__, "chunkproof."):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                print("missing", error.name)
        try:
            DirectClient(DeadlineTransport()).request("GET", "https://127.0.0.1:9/")
        except httpx.ConnectError:
            print("no connection")
    """
    environment = {"PYTHONPATH": os.pathsep.join(map(str, (layer / "python", runtime)))}
    command = [str(python313()), "-S", "-c", textwrap.dedent(script)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    # The engine has a layer of its own, and a stack's suites are JSON.
    missing = {line.split()[1] for line in run.stdout.splitlines() if line.startswith("missing ")}
    assert missing == {"qdrant_edge", "yaml"}
    assert run.stdout.endswith("no connection\n")


def test_without_an_architecture_the_layer_runs_on_both_processors(tmp_path: Path) -> None:
    built = build(tmp_path, "x86_64 arm64")
    libraries = {file.name for file in built.rglob("*.so")}
    machines = ("x86_64", "aarch64")
    assert libraries == {f"_pydantic_core.cpython-313-{machine}-linux-gnu.so" for machine in machines}
    assert sorted(file.name for file in built.iterdir()) == ["python", "sbom.cdx.json"]
    makefile = (ROOT / "shared" / "Makefile").read_text("utf-8")
    assert "\nARCHITECTURE ?= x86_64 arm64\n" in makefile


def test_an_unknown_architecture_stops_the_build() -> None:
    make = ["make", "--silent", "-C", str(ROOT / "shared"), "build-SharedLayer"]
    environment = {**os.environ, "ARCHITECTURE": "riscv64", "PYTHON313": sys.executable}
    run = subprocess.run(make, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "ARCHITECTURE must be arm64 or x86_64, not 'riscv64'" in run.stderr


def test_without_python_313_a_build_stops_with_the_remedy() -> None:
    run = subprocess.run(
        ["make", "--silent", "python313", "PYTHON313="], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode != 0
    assert "pyenv install 3.13" in run.stderr
