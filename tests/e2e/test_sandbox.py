"""`chunkproof sandbox`: real services for functions in containers, which stop cleanly."""

import json
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from chunkproof_cli.local.sandbox_services import EMBED_PORT, QDRANT_PORT, Sandbox

from support.commands import Command, readme_commands
from support.qdrant_server import free_port

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.server


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own for temporary files, which a server can use that runs as another user."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@contextmanager
def running(*options: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "chunkproof_cli", "sandbox", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_sandbox_is_searched_and_stops_cleanly(
    chunkproof: Command, temporary: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    ports = free_port(), free_port()
    options = ["--host", "127.0.0.1", "--qdrant-port", str(ports[0]), "--embed-port", str(ports[1]), "--json"]
    with running(*options) as process:
        assert process.stdout is not None
        variables = json.loads(process.stdout.readline())["Parameters"]
        assert variables["QDRANT_URL"] == f"http://host.docker.internal:{ports[0]}"
        for name, value in variables.items():
            monkeypatch.setenv(name, value.replace("host.docker.internal", "127.0.0.1"))
        found = chunkproof("search", "How many neighbours should each node of the graph have?", "-k", 1, "--json").json
        assert found["results"][0]["metadata"]["chunk_id"] == "vectordb-hnsw-01"
        assert httpx.get(
            f"{variables['QDRANT_URL']}/collections".replace("host.docker.internal", "127.0.0.1")
        ).is_success
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err.splitlines()[-1]) == (0, "Stopped")
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()
    assert list(temporary.glob("chunkproof-*")) == []


def test_a_port_in_use_is_named_with_the_option_that_sets_another(chunkproof: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = chunkproof("sandbox", "--host", "127.0.0.1", "--embed-port", port, "--qdrant-port", free_port())
    assert (run.code, f"127.0.0.1:{port}" in run.err, "--embed-port" in run.err) == (2, True, True)


def test_env_json_and_samconfig_name_the_ports_of_the_sandbox() -> None:
    sandbox = Sandbox(f"http://x:{QDRANT_PORT}", f"http://x:{EMBED_PORT}", 0)
    variables = json.loads((ROOT / "env.json").read_text("utf-8"))["Parameters"]
    assert variables == sandbox.variables("host.docker.internal")
    config = tomllib.loads((ROOT / "samconfig.toml").read_text("utf-8"))
    for environment, processor in (("default", "x86_64"), ("arm64", "arm64")):
        for command in ("local_invoke", "local_start_api"):
            given = config[environment][command]["parameters"]
            assert given["env_vars"] == "env.json"
            assert given["parameter_overrides"] == [f"Architecture={processor}", f"QdrantUrl={variables['QDRANT_URL']}"]


def test_the_readme_uses_no_flag_but_the_event() -> None:
    for command in readme_commands():
        flags = [word for word in shlex.split(command) if word.startswith("-")]
        assert flags in ([], ["-e"]) or command.startswith("curl ")
