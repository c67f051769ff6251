"""Distance in front of services: proxies that delay every byte both ways, with TLS, in a process of their own.

Each service is reached at a new port. A round trip takes the milliseconds that are given for it, a little more or less
by a seeded random factor. Opening a connection takes one too: what a client sends at first leaves only after it.
Run as `python -m bench.far_process HOST CERTIFICATE SEED host:port=MS ...`; prints the ports in that order.
"""

import asyncio
import socket
import ssl
import sys
from collections.abc import Callable
from random import Random
from typing import Any

# Each way takes between 0.95 and 1.05 of half a round trip.
JITTER = 0.05
QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)

Delay = Callable[[], float]


class Side(asyncio.Protocol):
    """One side of a connection; hands what it receives to the other one, later."""

    def __init__(self, delay: Delay, opening: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._delay = delay
        self._open_at = self._loop.time() + opening
        self._last = 0.0
        self._transport: Any = None
        self._waiting: list[bytes] = []
        self.other: Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.acknowledge()
        for data in self._waiting:
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self.acknowledge()
        self._later("write", data)

    def connection_lost(self, _reason: Exception | None) -> None:
        self._later("close")

    def acknowledge(self) -> None:
        """Acknowledge at once: Qdrant holds back the second part of a response until the first is acknowledged."""
        own = self._transport.get_extra_info("socket")
        if QUICK_ACK is not None and own is not None:
            own.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)

    def write(self, data: bytes) -> None:
        if self._transport is None:
            self._waiting.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)
            self.acknowledge()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _later(self, action: str, *given: bytes) -> None:
        assert self.other is not None
        call, delay = getattr(self.other, action), self._delay()
        if delay <= 0:
            call(*given)
            return
        # In the order of sending, whatever the jitter; of two calls for the same moment, any may come first.
        self._last = max(self._last + 1e-6, max(self._loop.time(), self._open_at) + delay)
        self._loop.call_at(self._last, call, *given)


async def listen(host: str, upstream: tuple[str, int], delay: Delay, opening: float, tls: Any = None) -> int:
    """Pass every connection on to the upstream; return the port."""
    loop = asyncio.get_running_loop()
    opened = set()

    def accept() -> Side:
        near, far = Side(delay, opening), Side(delay)
        near.other, far.other = far, near
        task = loop.create_task(loop.create_connection(lambda: far, *upstream))
        opened.add(task)
        task.add_done_callback(opened.discard)
        return near

    server = await loop.create_server(accept, host, 0, ssl=tls)
    return int(server.sockets[0].getsockname()[1])


async def main(host: str, certificate: str, seed: int, services: list[str]) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    ports = []
    for number, service in enumerate(services):
        address, _, ms = service.partition("=")
        name, _, port = address.rpartition(":")
        seconds, draw = float(ms) / 1000, Random(f"{seed} {number}").uniform

        def delay(half: float = seconds / 2, draw: Callable[[float, float], float] = draw) -> float:
            return half * draw(1 - JITTER, 1 + JITTER)

        # TLS is behind the distance, so that its handshake takes a round trip as well.
        inner = await listen(host, (name, int(port)), lambda: 0.0, 0.0, tls)
        ports.append(await listen(host, (host, inner), delay, seconds))
    print(*ports, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
