"""Bytes that are hardly HTTP, sent to `chunkproof serve` and cut off anywhere.

The server answers with a status or closes the connection, answers the next request, and prints no traceback; Ctrl-C
ends it although requests are half sent.
"""

import json
import random
import signal
import socket
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from support.qdrant_server import free_port
from tools.checks.attack.attack import Attack
from tools.checks.attack.commands import Process, start

GOOD = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
READY_SECONDS = 60.0
PATIENCE = 0.15
ENDS_WITHIN = 8.0  # the server waits three seconds for requests that are being served
SLOWEST = 5.0
METHODS = (b"GET", b"POST", b"PUT", b"OPTIONS", b"G\x00T", b"get", b"", b"PRI", b"POST" * 500, b"\xff\xfe")
TARGETS = (
    b"/", b"/search", b"/validate-chunk", b"/validate-chunks", b"/collections/x", b"/health?deep=true", b"*", b"//",
    b"http://evil.example/search", b"/%ff%00", b"/../../etc/passwd", b"/" + b"a" * 20_000, b"/\x1b[2J", b"/mcp",
    b"/docs",
)  # fmt: skip
VERSIONS = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b"", b"XTTP/1.1")
HEADERS = (
    b"Host: localhost", b"Host: evil.example", b"Host:", b"Host: localhost\r\nHost: evil.example",
    b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 99999999999999999999",
    b"Content-Length: 5\r\nContent-Length: 6", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: 3", b"Transfer-Encoding: gzip, chunked",
    b"Connection: upgrade\r\nUpgrade: websocket", b"Expect: 100-continue", b"Content-Encoding: gzip",
    b"X: " + b"y" * 70_000, b"X\x00: y", b" folded", b"Cookie: " + b"a=b;" * 500, b"X-Forwarded-For: \x1b[31m",
    b"\xff: \xff", b"NoColon",
)  # fmt: skip
BODIES = (
    b"", b"{", b'{"query_text":"a"}', b"5\r\nabcde\r\n0\r\n\r\n", b"zz\r\nabc\r\n", b"FFFFFFFFFFFFFFFFFF\r\n",
    b"0\r\n\r\n", b"\x1f\x8b\x08", b"\x00" * 1_000, b"5;ext=" + b"x" * 5_000 + b"\r\nabcde\r\n", GOOD, b"-1\r\n",
    b'{"query_vector":[' * 1_000,
)  # fmt: skip


def run(attack: Attack) -> None:
    """Send one request after the other, with a good one after each."""
    with tempfile.TemporaryDirectory() as name:
        port = free_port()
        process = start(Path(name), "serve", "serve", "--port", port, "--data", Path(name) / "data")
        try:
            _wait_until_ready(port)
            while attack.goes_on():
                sent = make_request(attack.rng)
                started = time.monotonic()
                wrong = _send(port, sent) or _check_good(port) or _find_traceback(process)
                attack.note(time.monotonic() - started, f"{wrong}: {sent[:300]!r}" if wrong else None)
            attack.note(*_interrupt(process, port))
        finally:
            with suppress(ProcessLookupError, ChildProcessError):
                process.kill(signal.SIGKILL)
                process.wait()


def make_request(rng: random.Random) -> bytes:
    """Put a request together from parts that are odd or not, and cut it off somewhere, or not."""
    line = b" ".join(
        (rng.choice(METHODS[:4] if rng.random() < 0.7 else METHODS), rng.choice(TARGETS), rng.choice(VERSIONS))
    )
    headers = [b"Host: localhost"] if rng.random() < 0.5 else []
    headers += rng.choices(HEADERS, k=rng.randrange(4))
    end = rng.choice((b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"))
    whole = end.join((line, *headers, b"", rng.choice(BODIES)))
    if rng.random() < 0.2:
        at = rng.randrange(len(whole))
        whole = whole[:at] + rng.randbytes(rng.randrange(1, 30)) + whole[at:]
    return whole[: rng.randrange(1, len(whole) + 1)] if rng.random() < 0.4 else whole


def _send(port: int, content: bytes) -> str | None:
    """Send it, wait a moment for an answer, and go; what is answered must be HTTP."""
    with socket.create_connection(("127.0.0.1", port), timeout=SLOWEST) as client:
        client.settimeout(PATIENCE)
        with suppress(OSError):
            client.sendall(content)
            answer = client.recv(12)
            if answer and not answer.startswith(b"HTTP/1.1 "):
                return f"answered {answer!r}"
            if answer.startswith(b"HTTP/1.1 500"):
                return "answered 500"
    return None


def _check_good(port: int) -> str | None:
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=SLOWEST) as client:
        client.sendall(GOOD)
        answer = b""
        try:
            while part := client.recv(4_096):
                answer += part
        except OSError as error:
            return f"the next request: {error}"
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200") or json.loads(body)["status"] != "ok":
        return f"the next request got {head[:40]!r}"
    return None if time.monotonic() - started < SLOWEST else "the next request took seconds"


def _find_traceback(process: Process) -> str | None:
    written = (process.folder / f"{process.name}.err").read_text("utf-8", "replace")
    if "Traceback" in written:
        return "traceback"
    active = [char for char in written if char < " " and char != "\n"]
    return f"{active[0]!r} on the terminal" if active else None


def _interrupt(process: Process, port: int) -> tuple[float, str | None]:
    """Press Ctrl-C while some clients have sent half of a request."""
    with ExitStack() as clients:
        for half in (b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", b"POST /se", b""):
            clients.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(half)
        time.sleep(PATIENCE)
        started = time.monotonic()
        process.kill(signal.SIGINT)
        ended = process.wait()
    spent = time.monotonic() - started
    traceback = "Traceback" in ended.err
    return spent, f"Ctrl-C: exit {ended.code} after {spent:.1f} s" if traceback or spent > ENDS_WITHIN else None


def _wait_until_ready(port: int) -> None:
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        with suppress(OSError):
            if _check_good(port) is None:
                return
        time.sleep(0.1)
    raise TimeoutError("chunkproof serve was not ready")
