"""Sends one message to a ZMQ socket as a PUSH peer would, and measures how far the kernel saw it go.

The protocol is ZMTP 3.0 without security (rfc.zeromq.org/spec/23): a greeting of 64 bytes each, a READY command each,
then frames. Hosts have no ZMQ library that we could count on.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
import termios
import time
from typing import TYPE_CHECKING, Callable

from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

CONNECT_S = 10.0
ACKNOWLEDGE_S = 5.0
_POLL_S = 0.01
_MORE, _LONG, _COMMAND = 1, 2, 4
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_NULL = b"NULL".ljust(20, b"\0")
_GREETING = _SIGNATURE + b"\x03\x00" + _NULL + bytes(32)
_SHORT = 255
_MOST_BYTES = 1 << 16


def push(host: str, port: int, frames: Sequence[str]) -> dict[str, int]:
    """Connect, shake hands, send the frames (in hex) as one message, and wait until the peer's kernel has it.

    Gives `sent`, bytes of the message with its framing, and `acknowledged` of them. Raises Trouble when nothing was
    sent.
    """
    message = b"".join(
        _frame(_MORE if number < len(frames) else 0, bytes.fromhex(frame)) for number, frame in enumerate(frames, 1)
    )
    deadline = time.monotonic() + CONNECT_S
    try:
        with socket.create_connection((host, port), timeout=CONNECT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _shake_hands(connection, deadline)
            connection.settimeout(ACKNOWLEDGE_S)
            connection.sendall(message)
            return {"sent": len(message), "acknowledged": max(len(message) - _unacknowledged(connection), 0)}
    except socket.timeout:
        raise Trouble("silent", f"no ZMQ peer answered at the control socket within {CONNECT_S:g} s") from None
    except OSError as error:
        raise Trouble("refused", f"the control socket cannot be written to ({error.strerror or error})") from None


def _frame(flags: int, body: bytes) -> bytes:
    if len(body) > _SHORT:
        return struct.pack(">BQ", flags | _LONG, len(body)) + body
    return struct.pack("BB", flags, len(body)) + body


def _shake_hands(connection: socket.socket, deadline: float) -> None:
    connection.sendall(_GREETING)
    greeting = _receive(connection, len(_GREETING), deadline)
    if greeting[0] != _SIGNATURE[0] or greeting[9] != _SIGNATURE[9] or greeting[10] < _GREETING[10]:
        raise Trouble("foreign", "what answers at the control socket does not speak ZMQ (ZMTP 3)")
    if greeting[12:32] != _NULL:
        wanted = greeting[12:32].rstrip(b"\0").decode("ascii", "replace")
        raise Trouble("denied", f"the control socket asks for {wanted} security")
    kind = b"Socket-Type"
    ready = b"\x05READY" + bytes([len(kind)]) + kind + struct.pack(">I", 4) + b"PUSH"
    connection.sendall(_frame(_COMMAND, ready))
    flags, size = struct.unpack("BB", _receive(connection, 2, deadline))
    if flags & _LONG:
        size = struct.unpack(">Q", bytes([size]) + _receive(connection, 7, deadline))[0]
    answer = _receive(connection, min(size, _MOST_BYTES), deadline)
    if not flags & _COMMAND or not answer.startswith(b"\x05READY"):
        raise Trouble("denied", "the control socket refuses the handshake of a PUSH peer")
    if b"PULL" not in answer:
        raise Trouble("foreign", "the control socket is no PULL socket")


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    got = b""
    while len(got) < size:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        data = connection.recv(size - len(got))
        if not data:
            raise Trouble("refused", "the control socket was closed during the handshake")
        got += data
    return got


def _unacknowledged(connection: socket.socket) -> int:
    """Bytes that the peer's kernel has not acknowledged, once all are or the patience is over."""
    deadline = time.monotonic() + ACKNOWLEDGE_S
    count = array.array("i", [0])
    while True:
        fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, count)
        if not count[0] or time.monotonic() >= deadline:
            return count[0]
        time.sleep(_POLL_S)


OPS: dict[str, Callable[..., object]] = {"zmq.push": push}
