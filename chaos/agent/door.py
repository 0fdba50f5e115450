"""Connections through a relay: a Unix socket behind which somebody connects in our place, at the other end of a link.

It says first how that went: `+` and two bytes, its local port there, or `-`, a word and a text. An end before that
means that the relay itself is gone. A reset of the connection is asked for by a descriptor passed along with one byte
more: a Unix socket knows none of its own, except that a close with bytes unread reaches the relay as one.
"""

from __future__ import annotations

import array
import asyncio
import errno
import socket

_FULL_S = 0.01  # until the relay has taken some of the connections that wait for it
_NUMBERS = {"refused": errno.ECONNREFUSED, "timeout": errno.ETIMEDOUT, "unreachable": errno.EHOSTUNREACH}


class NoWay(Exception):
    """The relay is not there, or has gone."""


async def enter(loop: asyncio.AbstractEventLoop, sock: socket.socket, path: str) -> int:
    """Connect `sock` through the relay at `path`: the port of the connection's local end. Raises OSError or NoWay."""
    try:
        while True:
            try:
                sock.connect(path)
                break
            except BlockingIOError:  # its queue is full
                await asyncio.sleep(_FULL_S)
    except OSError as error:
        raise NoWay(f"our own way there is gone ({error.strerror})") from None
    said = b""
    while not said.startswith(b"+") or len(said) < 3:
        try:
            data = await loop.sock_recv(sock, 3 - len(said) if not said.startswith(b"-") else 1024)
        except ConnectionError:
            data = b""
        if not data and said.startswith(b"-"):
            word, _, text = said[1:].decode("utf-8", "replace").partition(" ")
            raise OSError(_NUMBERS.get(word, 0), text or word)
        if not data:
            raise NoWay("our own way there broke")
        said += data
    return int.from_bytes(said[1:], "big")


def ask_for_reset(sock: socket.socket) -> bool:
    """Have the close that follows become a reset at the other end; False when the relay takes nothing.

    Which descriptor is passed does not matter: the relay closes it at once.
    """
    try:
        sock.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
    except OSError:
        return False
    return True
