"""Connections that never outlast the deadline: DNS lookup, connect, TLS handshake, read and write."""

import socket
import ssl
from collections.abc import Iterable
from functools import partial
from typing import Any

import httpcore

from chunkproof import deadline

WRITE_SLICE = 65_536
# Qdrant sends a response in two parts and waits for the ACK of the first, which Linux delays by 40 ms.
QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)

BROKEN = (OSError, httpcore.NetworkError)


class DeadlineBackend(httpcore.SyncBackend):
    """Opens connections, each operation of which is limited by the deadline that is enforced."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of the host that accepts."""
        addresses = _look_up(host, port, _seconds_left(timeout, httpcore.ConnectTimeout))
        for index, address in enumerate(addresses):
            left = _seconds_left(timeout, httpcore.ConnectTimeout)
            # A silent address must not use up the time of the others.
            share = left and left / (len(addresses) - index)
            try:
                stream = super().connect_tcp(address, port, share, local_address, socket_options)
                return _DeadlineStream(stream)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if index == len(addresses) - 1:
                    raise
        raise httpcore.ConnectError(f"{host} has no address")


def _look_up(host: str, port: int, seconds: float | None) -> list[str]:
    # The system's resolver takes no timeout; it waits ten seconds and more for a silent name server.
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = look_up() if seconds is None else deadline.run_with_timeout(look_up, seconds)
    except TimeoutError:
        raise httpcore.ConnectTimeout(f"the DNS lookup of {host} timed out") from None
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(str(error)) from None
    return [str(address[4][0]) for address in found]


class EvictedError(httpcore.NetworkError):
    """The connection pool closed the connection while a request was using it."""


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._socket: socket.socket | None = stream.get_extra_info("socket")
        self._is_closed = False
        self._unsent = b""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._flush(timeout)
        left = _seconds_left(timeout, httpcore.ReadTimeout)
        try:
            if QUICK_ACK is not None and self._socket is not None:
                self._socket.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
            return self._stream.read(max_bytes, left)
        except BROKEN as error:
            raise self._network_error(error) from None

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Collect what is written until the first read, so that head and body leave in one packet."""
        self._unsent += buffer
        if len(self._unsent) >= WRITE_SLICE:
            self._flush(timeout)

    def _flush(self, timeout: float | None) -> None:
        buffer, self._unsent = self._unsent, b""
        try:
            for start in range(0, len(buffer), WRITE_SLICE):  # the timeout applies to each send, not to all
                left = _seconds_left(timeout, httpcore.WriteTimeout)
                self._stream.write(buffer[start : start + WRITE_SLICE], left)
        except BROKEN as error:
            raise self._network_error(error) from None

    def _network_error(self, error: Exception) -> httpcore.NetworkError:
        """An `EvictedError` if this side closed the connection.

        With several threads, httpcore may close a connection as idle that another thread has just taken.
        """
        return (EvictedError if self._is_closed else httpcore.ReadError)(str(error))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _seconds_left(timeout, httpcore.ConnectTimeout)
        return _DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._is_closed = True
        self._stream.close()


def _seconds_left(timeout: float | None, expired: type[httpcore.TimeoutException]) -> float | None:
    """Return the seconds until the deadline, or the timeout where none is enforced."""
    budget = deadline.current()
    if budget is None:
        return timeout
    left = budget.remaining_ms() / 1000
    if left <= 0:
        raise expired("no time left")
    return left
