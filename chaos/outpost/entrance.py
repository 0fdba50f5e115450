"""The relay's end on this machine: Unix sockets in a private directory, one for each place that is to be reached.

Whoever connects is told first whether the connection there came about: `+` and the two bytes of its local port at the
host, or `-`, a word (`refused`, `timeout`, `unreachable`, `unresolved`, `failed`) and a text. An end without either
means that the way itself is gone. From then on it is the connection. A client that wants its end to be a reset says so
by a file descriptor that it passes along with one more byte, because a Unix socket knows no reset of its own.

A process of its own: it passes on each token of each stream, which would keep the event loop of a run busy. On stdin
comes one line of JSON with the doors to open; the end of stdin ends it. Whoever will open the same doors again says
anything more before that; otherwise nobody needs the directory any more, and it goes, too. On stdout it tells, one line
of JSON each, that it is ready and, every second, that the other end answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import sys
import time

from .pipe import CLOSE, OPEN, PING
from .streams import OPENING, TAKEN, Relay, Stream

PING_S = 1.0
GATHER_S, GATHER_MOST_S = 0.002, 0.01
"""Connections that end within so short a time of each other (and not longer in all) end together on the other side."""
BACKLOG = 4096
LAST_ORDERS_S = 0.5
_STAMP = struct.Struct(">Q")


class Door:
    """A Unix socket and where it leads. `window` bounds what is on its way in each direction of a connection."""

    def __init__(self, path: str, host: str, port: int, window: int) -> None:
        self.path, self.host, self.port, self.window = path, host, port, window
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(OSError):  # what a killed process left
            os.unlink(path)  # noqa: PTH108 - a string, as it came
        self.sock.bind(path)
        self.sock.listen(BACKLOG)
        self.sock.setblocking(False)


class LocalEnd(Relay):
    """Takes connections and has the other end make their counterparts."""

    def __init__(self, pipe: int, orders: int, doors: list[Door]) -> None:
        super().__init__(pipe, pipe)
        self._orders = orders
        self._doors = {door.sock.fileno(): door for door in doors}
        for fd in (orders, *self._doors):
            self.watch(fd)
        self._next = 0
        self._ends: list[tuple[int, int, bytes]] = []
        self._ends_since = self._tell_ends_at = 0.0
        self.told_off = False
        self.again = False  # somebody will open these doors again

    def serve(self) -> None:
        """Until the pipe ends, or nobody wants us any more."""
        ping_at = 0.0
        while not self.pipe.over and not self.told_off:
            now = time.monotonic()
            if now >= ping_at:
                self.say(PING, 0, _STAMP.pack(time.monotonic_ns()))
                ping_at = now + PING_S
            if self._ends and now >= self._tell_ends_at:
                self.tell_ends()
            self.pipe.flush()
            until = min(ping_at, self._tell_ends_at) if self._ends else ping_at
            self.turn(max(until - time.monotonic(), 0.0))
        self.tell_ends()
        self.pipe.flush()

    def tell_ends(self) -> None:
        """Pass on all ends that were gathered, in one write."""
        for kind, ident, body in self._ends:
            self.say(kind, ident, body)
        self._ends = []

    def hung_up(self, stream: Stream, kind: int, body: bytes = b"") -> None:
        """Wait a moment for more of the kind."""
        now = time.monotonic()
        if not self._ends:
            self._ends_since = now
        self._tell_ends_at = min(now + GATHER_S, self._ends_since + GATHER_MOST_S)
        self._ends.append((kind, stream.ident, body))

    def on_other(self, fd: int) -> None:
        """Somebody connects, or the run is over."""
        if fd == self._orders:
            self.hear()
            return
        door = self._doors[fd]
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = door.sock.accept()
                self._let_in(door, sock)

    def hear(self) -> None:
        """Take note of the end of our orders, or that there will be others."""
        said = os.read(self._orders, 4096)
        self.told_off = not said
        self.again = self.again or bool(said)

    @property
    def wanted(self) -> bool:
        """Whether the directory is still needed, once it is over: as long as nobody says that all is."""
        while not self.told_off and select.select([self._orders], [], [], LAST_ORDERS_S)[0]:
            self.hear()
        return self.again or not self.told_off

    def _let_in(self, door: Door, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, max(door.window // 2, 4096))
        self._next += 1
        stream = self.streams[self._next] = Stream(self._next, door.window)
        self.attach(stream, sock, 0)
        self.say(OPEN, stream.ident, OPENING.pack(door.port, door.window) + door.host.encode())

    def on_connecting(self, stream: Stream, events: int) -> None:  # noqa: ARG002 - nothing is asked for but its end
        """The client has gone before the connection was there."""
        self.hung_up(stream, CLOSE, TAKEN.pack(0))
        self.forget(stream)

    def on_opened(self, stream: Stream, body: bytes) -> None:
        """Tell the client, and begin."""
        if self._answer(stream, b"+" + body):
            stream.connecting = False
            self.interest(stream)

    def on_failed(self, stream: Stream, body: bytes) -> None:
        """Tell the client why not."""
        self._answer(stream, b"-" + body)
        self.forget(stream)

    def _answer(self, stream: Stream, data: bytes) -> bool:
        assert stream.sock is not None  # noqa: S101
        try:
            return stream.sock.send(data) == len(data)
        except OSError:  # it has gone; its end is told next
            return False

    def on_pong(self, body: bytes) -> None:
        """Tell whoever started us."""
        rtt_ms = (time.monotonic_ns() - _STAMP.unpack(body)[0]) / 1e6
        tell(rtt_ms=round(rtt_ms, 3), streams=len(self.streams))

    def receive(self, sock: socket.socket, stream: Stream, size: int) -> bytes:
        """Read, and see whether a reset is asked for."""
        data, beside, _, _ = sock.recvmsg(size, 64)
        if not beside:
            return data
        for _, _, passed in beside:
            for (descriptor,) in struct.iter_unpack("i", passed):
                os.close(descriptor)
        stream.reset = True
        return data[:-1] or self.receive(sock, stream, size)


def tell(**facts: float) -> None:
    """One line to whoever started us."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(facts).encode() + b"\n")


def main() -> int:
    """Open the doors named on the first line of stdin and pass on until the pipe (a descriptor's number) ends."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return 0
        line += byte
    doors = [Door(**door) for door in json.loads(line)]
    end = LocalEnd(int(sys.argv[1]), 0, doors)
    try:
        tell(ready=1)
        end.serve()
    finally:
        for door in doors:
            with contextlib.suppress(OSError):
                os.unlink(door.path)  # noqa: PTH108 - a string, as it came
        if not end.wanted:
            for folder in {os.path.dirname(door.path) for door in doors}:  # noqa: PTH120 - as above
                with contextlib.suppress(OSError):  # another relay has doors there
                    os.rmdir(folder)  # noqa: PTH106 - as above
    return 0


if __name__ == "__main__":
    sys.exit(main())
