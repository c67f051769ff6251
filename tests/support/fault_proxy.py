"""A loopback proxy between an HTTP client and a real server that fails on purpose.

It speaks plain HTTP/1.1 and keeps connections alive on both sides. Without a fault, bytes pass unchanged. The kinds
of fault are in `support.faults`.
"""

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import responses
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")

JSON = (("content-type", "application/json"),)
BLANK_LINE = b"\r\n\r\n"
READ_SIZE = 262_144
OF_ONE_HOP = {"connection", "content-length", "keep-alive", "transfer-encoding"}
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Message:
    """A request or response as it arrived; `framed` is the body with the frames of its chunks, if any."""

    head: bytes
    framed: bytes
    body: bytes
    is_last: bool = False

    @property
    def raw(self) -> bytes:
        return self.head + self.framed

    @property
    def start(self) -> list[str]:
        """The words of the first line."""
        return self.head.partition(b"\r\n")[0].decode("latin-1").split(" ")

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Names in lower case."""
        return _headers(self.head)


@dataclass(frozen=True)
class Response:
    """A response to send in one piece, with a content-length."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = JSON

    @property
    def head(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} {responses.get(self.status, '')}"]
        lines += [f"{name}: {value}" for name, value in (*self.headers, ("content-length", len(self.body)))]
        return "\r\n".join(lines).encode("latin-1") + BLANK_LINE


class Wire:
    """One connection that is read no further than requested; asyncio's streams read ahead."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # send every byte at once
        self._sock = sock
        self._ahead = bytearray()
        self._loop = asyncio.get_running_loop()

    @property
    def is_usable(self) -> bool:
        """Whether an idle connection is still open and has no data."""
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    async def connect(self, address: tuple[str, int]) -> None:
        await self._loop.sock_connect(self._sock, address)

    async def has_more(self) -> bool:
        """Wait for the next byte without reading it; False at the end of the connection."""
        if self._sock.fileno() == -1:
            return False
        if self._ahead:
            return True
        arrived = asyncio.Event()
        self._loop.add_reader(self._sock, arrived.set)
        try:
            await arrived.wait()
        finally:
            self._loop.remove_reader(self._sock)
        return bool(self._sock.recv(1, socket.MSG_PEEK))

    async def head(self) -> bytes:
        """Read up to the first blank line."""
        return await self._until(BLANK_LINE)

    async def request(self, head: bytes) -> Message:
        """Read the rest of the request with this head."""
        return Message(head, *(await self._body(head) or (b"", b"")))

    async def response(self, method: str) -> Message:
        """Read the response to a request of this method; `is_last` if the connection ends with it."""
        head = await self.head()
        is_last = dict(_headers(head)).get("connection", "").lower() == "close"
        if method == "HEAD" or head.split(b" ", 2)[1] in (b"204", b"304"):
            return Message(head, b"", b"", is_last)
        if bodies := await self._body(head):
            return Message(head, *bodies, is_last)
        body = await self.rest()
        return Message(head, body, body, is_last=True)

    async def rest(self) -> bytes:
        """Read until the other side closes."""
        try:
            while True:
                await self._read()
        except EOFError:
            return self._take(len(self._ahead))

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, data)

    def close(self, *, reset: bool = False) -> None:
        """Close normally (FIN) or with a reset (RST)."""
        if reset:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._sock.close()

    async def _body(self, head: bytes) -> tuple[bytes, bytes] | None:
        """Read the body, as it arrived and unchunked; None if the head does not state its length."""
        headers = dict(_headers(head))
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await self._chunks()
        if "content-length" not in headers:
            return None
        body = await self._exactly(int(headers["content-length"]))
        return body, body

    async def _chunks(self) -> tuple[bytes, bytes]:
        framed, body, size = bytearray(), bytearray(), -1
        while size != 0:  # trailers, which neither service sends, are not read
            line = await self._until(b"\r\n")
            size = int(line.partition(b";")[0], 16)
            chunk = await self._exactly(size + 2)
            framed += line + chunk
            body += chunk[:size]
        return bytes(framed), bytes(body)

    async def _until(self, end: bytes) -> bytes:
        while (found := self._ahead.find(end)) < 0:
            await self._read()
        return self._take(found + len(end))

    async def _exactly(self, size: int) -> bytes:
        while len(self._ahead) < size:
            await self._read()
        return self._take(size)

    async def _read(self) -> None:
        data = await self._loop.sock_recv(self._sock, READ_SIZE)
        if not data:
            raise EOFError
        self._ahead += data

    def _take(self, size: int) -> bytes:
        taken = bytes(self._ahead[:size])
        del self._ahead[:size]
        return taken


class Upstream:
    """The server behind one client's connection, reached over one connection that is opened when first needed."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._wire: Wire | None = None

    async def send(self, request: bytes, method: str) -> Message:
        wire = await self._connected()
        await wire.send(request)
        response = await wire.response(method)
        if response.is_last:
            self.close()
        return response

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()

    async def _connected(self) -> Wire:
        if self._wire is None or not self._wire.is_usable:  # Qdrant closes after five idle seconds
            self.close()
            self._wire = Wire(socket.socket())
            await self._wire.connect(self._address)
        return self._wire


@dataclass(frozen=True)
class Call:
    """One request, as a fault handles it."""

    request: Message
    client: Wire
    upstream: Upstream

    async def pass_on(self) -> None:
        """Forward the request, and return the server's response unchanged."""
        response = await self.upstream.send(self.request.raw, self.request.start[0])
        await self.client.send(response.raw)
        if response.is_last:
            self.client.close()

    async def plain_response(self) -> Response:
        """Forward the request, and return the response unchunked and uncompressed."""
        head = re.sub(rb"\r\naccept-encoding:[^\r]*", b"", self.request.head, flags=re.I)
        got = await self.upstream.send(head + self.request.framed, self.request.start[0])
        kept = tuple(pair for pair in got.headers if pair[0] not in OF_ONE_HOP)
        return Response(int(got.start[1]), got.body, kept)


class Fault:
    """What happens to a request; the base class forwards it unchanged."""

    listens: ClassVar[bool] = True
    reads: ClassVar[bool] = True

    def applies(self, *, is_reused: bool) -> bool:
        """Whether it applies to a request on a new connection, or on one with an earlier request."""
        return True

    async def handle(self, call: Call) -> None:
        """Respond or not; the connection stays open unless this closes it."""
        await call.pass_on()


@dataclass(frozen=True)
class Exchange:
    """A request that reached the proxy, the number of its connection from 1, and the fault that applied.

    Method and path are empty if the request was not read.
    """

    method: str
    path: str
    connection: int
    fault: Fault | None


class FaultProxy:
    """Created by `fault_proxy`. `url` stays the same as long as it runs."""

    def __init__(self, upstream: str, loop: asyncio.AbstractEventLoop) -> None:
        parts = urlsplit(upstream)
        if parts.scheme != "http" or not parts.hostname or not parts.port or parts.path not in ("", "/"):
            raise ValueError(f"{upstream} is not of the form http://host:port")
        self._upstream = (parts.hostname, parts.port)
        self._loop = loop
        self._fault: Fault | None = None
        self._left: int | None = None
        self._log: list[Exchange] = []
        self._connections = 0
        self._serving: set[asyncio.Task[None]] = set()
        self._broken: list[BaseException] = []
        self._listener: socket.socket | None = None
        # Keeps the port while nothing listens: otherwise another process could get it, or a client that
        # connects from this port would reach itself.
        self._port_holder = _bound(0)
        self._port = int(self._port_holder.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}"

    @property
    def log(self) -> list[Exchange]:
        """All requests so far, in order; each is logged before it is read in full."""
        return list(self._log)

    @property
    def connections(self) -> int:
        """Connections accepted so far; refused ones do not reach the proxy."""
        return self._connections

    def inject(self, fault: Fault | None, *, times: int | None = None) -> None:
        """Apply this fault to all following requests, or to the next `times`; None removes the fault.

        It is in force when this returns. A request under way keeps its own fault, unless the new fault closes all
        connections.
        """
        if times is not None and (times < 1 or fault is None or not fault.listens):
            raise ValueError("times is at least 1, and only for a fault whose requests can be counted")
        self._run(self._inject(fault, times))

    def _run(self, task: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(task, self._loop).result()

    async def _inject(self, fault: Fault | None, times: int | None) -> None:
        self._fault, self._left = fault, times
        if fault is not None and not fault.listens:
            await self._shut()
        elif self._listener is None:
            self._listener = _bound(self._port)
            self._listener.setblocking(False)
            self._listener.listen(128)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _shut(self) -> None:
        """Stop listening and close every connection, as when a server's process ends."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except (BlockingIOError, ConnectionError):  # the client has disconnected
            return
        self._connections += 1
        client = Wire(sock)
        task = self._loop.create_task(self._serve(client, self._connections))
        self._serving.add(task)
        task.add_done_callback(partial(self._served, client))

    def _served(self, client: Wire, task: asyncio.Task[None]) -> None:
        client.close()  # here, because a task that is cancelled before it begins closes nothing
        self._serving.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._broken.append(error)

    async def _serve(self, client: Wire, number: int) -> None:
        with closing(Upstream(*self._upstream)) as upstream:
            is_reused = False
            try:
                while await client.has_more():
                    fault = self._next_fault(is_reused)
                    await self._handle(fault, number, client, upstream)
                    is_reused = True
            except (OSError, EOFError):  # the client disconnected, or the server is down
                return

    async def _handle(self, fault: Fault | None, number: int, client: Wire, upstream: Upstream) -> None:
        is_read = fault is None or fault.reads
        head = await client.head() if is_read else b""
        method, path = head.decode("latin-1").split(" ", 2)[:2] if is_read else ("", "")
        self._log.append(Exchange(method, path, number, fault))
        request = await client.request(head) if is_read else Message(b"", b"", b"")
        await (fault or Fault()).handle(Call(request, client, upstream))

    def _next_fault(self, is_reused: bool) -> Fault | None:
        fault = self._fault
        if fault is None or not fault.applies(is_reused=is_reused):
            return None
        if self._left is not None:
            self._left -= 1
            self._fault = fault if self._left else None
        return fault

    async def _stop(self) -> None:
        await self._shut()
        self._port_holder.close()
        if self._broken:  # an error in a fault's own code must fail the test
            raise self._broken[0]


@contextmanager
def fault_proxy(upstream: str) -> Iterator[FaultProxy]:
    """Run a proxy to the server at `http://host:port`, without a fault at first.

    If the server cannot be reached, the client's connection is closed without a response. Errors in a fault's own
    code are raised at the end.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fault-proxy", daemon=True)
    thread.start()
    try:
        proxy = FaultProxy(upstream, loop)
        try:
            proxy.inject(None)
            yield proxy
        finally:
            proxy._run(proxy._stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _bound(port: int) -> socket.socket:
    sock = socket.socket()
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
    sock.bind(("127.0.0.1", port))
    return sock


def _headers(head: bytes) -> tuple[tuple[str, str], ...]:
    lines = head.decode("latin-1").split("\r\n")[1:-2]
    pairs = (line.partition(":") for line in lines)
    return tuple((name.lower(), value.strip()) for name, _, value in pairs)
