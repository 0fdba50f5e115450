"""Sends one multipart message by a ZMQ PUSH socket and measures how far the kernel saw it go."""

from __future__ import annotations

import os
import socket
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zmq
from zmq.utils.monitor import parse_monitor_message

if TYPE_CHECKING:
    from collections.abc import Sequence

CONNECT_S = 10.0
ACKNOWLEDGE_S = 5.0
_POLL_S = 0.01
_TCP_INFO_BYTES = 192
_BYTES_ACKED = struct.Struct("=120xQ")  # tcpi_bytes_acked, Linux 4.1 and later
_PART_OVERHEAD = 2  # flags and length of a short ZMTP frame


class NotDelivered(Exception):
    """Nothing was sent; the text says why."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Bytes of the message, framing included, and how many of them the peer's kernel acknowledged."""

    sent: int
    acknowledged: int

    @property
    def complete(self) -> bool:
        """Whether the peer's kernel has all of it."""
        return self.acknowledged >= self.sent


def push(address: str, frames: Sequence[bytes]) -> Delivery:
    """Connect, shake hands, send one message, and wait until the peer's kernel has it. Raises NotDelivered."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    out = context.socket(zmq.PUSH)
    out.setsockopt(zmq.LINGER, int(ACKNOWLEDGE_S * 1000))
    monitor = out.get_monitor_socket(zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
    try:
        out.connect(address)
        connection = _handshake(monitor)
        try:
            before = _quiet(connection)
            out.send_multipart(frames, zmq.NOBLOCK)
            sent = sum(len(frame) + _PART_OVERHEAD for frame in frames)
            return Delivery(sent, min(_acknowledged(connection, before + sent) - before, sent))
        finally:
            connection.close()
    except zmq.ZMQError as error:
        raise NotDelivered(f"the control socket cannot be written to ({error})") from error
    finally:
        out.disable_monitor()
        monitor.close()
        out.close()
        context.term()


def _handshake(monitor: zmq.Socket[bytes]) -> socket.socket:
    """The connection once both sides speak ZMQ; the monitor tells its file descriptor."""
    deadline = time.monotonic() + CONNECT_S
    connection: socket.socket | None = None
    try:
        while (left := deadline - time.monotonic()) > 0 and monitor.poll(int(left * 1000)):
            event = parse_monitor_message(monitor.recv_multipart())
            if event["event"] == zmq.EVENT_CONNECTED:
                if connection is not None:
                    connection.close()
                connection = socket.socket(fileno=os.dup(event["value"]))
            elif connection is not None:
                done, connection = connection, None
                return done
    finally:
        if connection is not None:
            connection.close()
    raise NotDelivered(f"no ZMQ peer answered at the control socket within {CONNECT_S:g} s")


def _quiet(connection: socket.socket) -> int:
    """Bytes acknowledged so far, once the handshake's own are through."""
    deadline = time.monotonic() + ACKNOWLEDGE_S
    last, seen = _acked(connection), 0
    while seen < 3 and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        now = _acked(connection)
        last, seen = (last, seen + 1) if now == last else (now, 0)
    return last


def _acknowledged(connection: socket.socket, wanted: int) -> int:
    deadline = time.monotonic() + ACKNOWLEDGE_S
    while (acked := _acked(connection)) < wanted and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return acked


def _acked(connection: socket.socket) -> int:
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    return int(_BYTES_ACKED.unpack_from(info)[0]) if len(info) >= _BYTES_ACKED.size else 0
