"""A socket that is connected to the server: by ourselves, or by a relay in our place."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, NamedTuple

from . import door

if TYPE_CHECKING:
    import asyncio
    import ssl

Address = tuple[socket.AddressFamily, tuple[object, ...]]


class Remote(NamedTuple):
    """Where to connect. Names were resolved once: a lookup per request would be part of what is measured.

    With `unix_socket` a relay behind it connects, in our place.
    """

    addresses: list[Address]
    tls: ssl.SSLContext | None
    name: str
    unix_socket: str = ""


class ConnectError(Exception):
    """No connection came about."""


class WayLost(ConnectError):
    """The relay that would connect in our place is not there: whatever it leads to is not to blame."""


async def reach(loop: asyncio.AbstractEventLoop, remote: Remote) -> tuple[socket.socket, int]:
    """A connected socket, and the port of the connection's local end; ConnectError or OSError when there is none."""
    if remote.unix_socket:
        return await _enter(loop, remote.unix_socket)
    return await _connect(loop, remote.addresses)


async def _connect(loop: asyncio.AbstractEventLoop, addresses: list[Address]) -> tuple[socket.socket, int]:
    failure: OSError | None = None
    for family, address in addresses:
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:  # too many open files; or no IPv6 here
            failure = error
            continue
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
            return sock, sock.getsockname()[1]
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise ConnectError(str(failure)) from failure


async def _enter(loop: asyncio.AbstractEventLoop, path: str) -> tuple[socket.socket, int]:
    """Have the relay connect; it tells how that went before anything else."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        return sock, await door.enter(loop, sock, path)
    except BaseException as error:
        sock.close()
        if isinstance(error, door.NoWay):
            raise WayLost(str(error)) from error
        if isinstance(error, OSError):
            raise ConnectError(str(error)) from error
        raise
