"""A PostgreSQL server of its own for tests: Debian's programs, a new database folder, nothing kept."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ADDRESS = "127.0.0.1"
INITDB = ("--pwfile=password", "--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C")


@contextmanager
def postgres_server() -> Iterator[str]:
    """Start a server and yield its SQLAlchemy URL, with a password; skip, or fail in CI, where none is installed."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = next((str(folder / "postgres") for folder in programs), None) or shutil.which("postgres")
    if found is None:
        reason = "PostgreSQL is not installed: apt-get install postgresql"
        if os.environ.get("CHUNKPROOF_REQUIRE_POSTGRES"):
            pytest.fail(reason)
        pytest.skip(reason)
    # The server refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as folder, socket.socket() as free:
        if user:
            shutil.chown(folder, user)
        Path(folder, "password").write_text("s3cret-of-tests\n")
        free.bind((ADDRESS, 0))
        port = free.getsockname()[1]
        free.close()
        data, binaries = Path(folder, "data"), Path(found).parent
        subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "tester", "-A", "scram-sha-256", *INITDB],
            user=user,
            cwd=folder,
            check=True,
            capture_output=True,
        )
        options = ("-c", "fsync=off", "-c", f"listen_addresses={ADDRESS}", "-p", str(port), "-k", folder)
        process = subprocess.Popen(
            [found, "-D", data, *options], user=user, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait(process, port)
            yield f"postgresql://tester:s3cret-of-tests@{ADDRESS}:{port}/postgres"
        finally:
            process.terminate()
            process.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    import psycopg

    for _ in range(300):
        assert process.poll() is None, "the server ended at once"
        try:
            psycopg.connect(f"host={ADDRESS} port={port} user=tester password=s3cret-of-tests dbname=postgres").close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server did not start in 30 s")
