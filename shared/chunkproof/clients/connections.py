"""Connections on which nothing outlives the deadline: looking up a host, connecting, reading and writing."""

import socket
import ssl
from collections.abc import Iterable
from functools import partial
from typing import Any

import httpcore

from chunkproof import deadline

WRITE_SLICE = 65_536
# Qdrant sends an answer in two parts and waits for the first one's acknowledgement, which Linux delays by 40 ms.
QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)


BROKEN = (OSError, httpcore.NetworkError)


class DeadlineBackend(httpcore.SyncBackend):
    """Opens connections whose every operation is bounded by the deadline in force."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """A connection to the first address of the host that takes one."""
        addresses = _addresses(host, port, _left(timeout, httpcore.ConnectTimeout))
        for index, address in enumerate(addresses):
            left = _left(timeout, httpcore.ConnectTimeout)
            share = left and left / (
                len(addresses) - index
            )  # one silent address must not cost the others theirs
            try:
                stream = super().connect_tcp(address, port, share, local_address, socket_options)
                return _DeadlineStream(stream)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if index == len(addresses) - 1:
                    raise
        raise httpcore.ConnectError(f"{host} has no address")


def _addresses(host: str, port: int, left: float | None) -> list[str]:
    # The system's resolver takes no timeout; with a name server that is silent it waits ten seconds and more.
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = look_up() if left is None else deadline.run_with_timeout(look_up, left)
    except TimeoutError:
        raise httpcore.ConnectTimeout(f"{host} was not looked up in time") from None
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(str(error)) from None
    return [str(address[4][0]) for address in found]


class EvictedError(httpcore.NetworkError):
    """The connection was closed on this side while it was in use."""


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._socket: socket.socket | None = stream.get_extra_info("socket")
        self._is_closed = False
        self._unsent = b""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._flush(timeout)
        left = _left(timeout, httpcore.ReadTimeout)
        try:
            if QUICK_ACK is not None and self._socket is not None:
                self._socket.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
            return self._stream.read(max_bytes, left)
        except BROKEN as error:
            raise self._broken(error) from None

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Kept until there is enough or an answer is wanted: head and body go out, and come in, as one."""
        self._unsent += buffer
        if len(self._unsent) >= WRITE_SLICE:
            self._flush(timeout)

    def _flush(self, timeout: float | None) -> None:
        buffer, self._unsent = self._unsent, b""
        try:
            for start in range(0, len(buffer), WRITE_SLICE):  # a timeout holds for each send, not for all
                self._stream.write(buffer[start : start + WRITE_SLICE], _left(timeout, httpcore.WriteTimeout))
        except BROKEN as error:
            raise self._broken(error) from None

    def _broken(self, error: Exception) -> httpcore.NetworkError:
        """With several threads, httpcore may take a connection for idle, and close it, that another just took."""
        return (EvictedError if self._is_closed else httpcore.ReadError)(str(error))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._is_closed = True
        self._stream.close()


def _left(timeout: float | None, late: type[httpcore.TimeoutException]) -> float | None:
    budget = deadline.current()
    if budget is None:
        return timeout
    left = budget.remaining_ms() / 1000
    if left <= 0:
        raise late("no time left")
    return left
