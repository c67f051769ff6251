"""`chunkproof serve` as a process of its own, on a free port."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from chunkproof.stores.edge_folder import copy_folder

from support.qdrant_server import free_port


@dataclass
class Serving:
    """A running server and its standard error."""

    url: str
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def written(self) -> str:
        """Standard error so far."""
        return self.log.read_text("utf-8")


def start(*arguments: object, log: Path, env: Mapping[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """Start the command with its standard error in a file, by default in this process's environment."""
    command = [sys.executable, "-m", "chunkproof_cli", "serve", *map(str, arguments)]
    with log.open("wb") as errors:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=dict(env or os.environ))


@contextmanager
def serving(loaded: Path, folder: Path, *arguments: object) -> Iterator[Serving]:
    """Serve a copy of a loaded data folder until the block ends."""
    copy_folder(loaded, folder / "data")
    port, log = free_port(), folder / "stderr"
    process = start("--port", port, "--data", folder / "data", "--collection", "handbook", *arguments, log=log)
    server = Serving(f"http://127.0.0.1:{port}", process, log)
    try:
        wait_until_ready(server)
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_until_ready(server: Serving, seconds: float = 60) -> None:
    """Wait until the server responds; fail with its standard error if it does not."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        assert server.process.poll() is None, server.written
        try:
            httpx.get(f"{server.url}/health", timeout=5)
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError(f"not ready within {seconds:.0f} s: {server.written}")
