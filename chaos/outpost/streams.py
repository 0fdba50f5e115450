"""Many streams over one pipe of bytes: what both ends of the relay have in common.

A stream ends as its connection does: an end of file is passed on as one, a close as a close, a reset as a reset. Each
direction of each stream has a window, so that whoever stops reading stalls nobody else and no buffer grows without
bound.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections import deque

from .pipe import CLOSE, DATA, FAILED, FIN, IN, MORE, OPEN, OPENED, OUT, PING, PONG, RESET, Pipe

_U32 = struct.Struct(">I")
TAKEN = struct.Struct(">Q")
OPENING = struct.Struct(">HI")  # port and window; then the host
SOCKET_READ = 1 << 16
GONE = select.EPOLLHUP | select.EPOLLERR
_LINGER_0 = struct.pack("ii", 1, 0)


class Stream:
    """One connection and its half of the way. `credit` is what may still be sent to the other end."""

    __slots__ = (
        "addresses", "closing", "connecting", "credit", "delivered", "events", "fin_got", "fin_sent", "gone", "ident",
        "owed", "pending", "reset", "sock", "taken", "window",
    )  # fmt: skip

    def __init__(self, ident: int, window: int) -> None:
        self.ident = ident
        self.window = window
        self.credit = window
        self.sock: socket.socket | None = None
        self.addresses: list[tuple[int, object]] = []  # still to be tried
        self.connecting = True
        self.pending: deque[bytes] = deque()  # for the socket
        self.owed = 0  # delivered, and not told to the other end yet
        self.taken = 0  # bytes that we read from the socket
        self.delivered = 0  # bytes that we wrote to the socket
        self.fin_sent = self.fin_got = False
        self.closing = False  # the other end has closed: close once everything is delivered
        self.gone = False  # our own side has closed, and some of what it sent waits for credit
        self.reset = False  # our own side asked for its end to be a reset
        self.events = 0


class Relay:
    """What both ends have in common: the pipe, the streams, who may send how much."""

    def __init__(self, pipe_in: int, pipe_out: int) -> None:
        self._main, self._sockets = select.epoll(), select.epoll()
        self.pipe = Pipe(self._main, pipe_in, pipe_out)
        self.say = self.pipe.say
        self.streams: dict[int, Stream] = {}
        self._by_fd: dict[int, Stream] = {}
        self._main.register(self._sockets.fileno(), IN)
        self._paused = False  # nothing is read from sockets

    # ------------------------------------------------------------------------------------ the loop

    def turn(self, timeout_s: float) -> None:
        """Look once at everything, do what is to be done, and write what came of it."""
        for fd, _ in self._main.poll(timeout_s):
            if fd == self.pipe.incoming:
                self._take_pipe()
            elif fd == self._sockets.fileno():
                for sock_fd, events in self._sockets.poll(0):
                    self.on_socket(sock_fd, events)
            elif fd != self.pipe.outgoing:
                self.on_other(fd)
        self.pipe.flush()
        if self.pipe.congested != self._paused:
            self._paused = self.pipe.congested
            self._main.modify(self._sockets.fileno(), 0 if self._paused else IN)

    def watch(self, fd: int) -> None:
        """Have `on_other` called when it can be read."""
        self._main.register(fd, IN)

    def on_other(self, fd: int) -> None:
        """Something else can be read."""

    def on_socket(self, fd: int, events: int) -> None:
        """Something happened at a connection."""
        stream = self._by_fd.get(fd)
        if stream is None or stream.sock is None:
            return  # ended in this very turn
        if stream.connecting:
            self.on_connecting(stream, events)
            return
        if events & OUT:
            self.deliver(stream)
        if stream.sock is not None and stream.events & IN and events & (IN | GONE):
            self._read(stream, gone=bool(events & GONE))
        elif stream.sock is not None and events & GONE:
            self._gone(stream)

    def on_connecting(self, stream: Stream, events: int) -> None:
        """A connection is there, or is not."""

    def on_opened(self, stream: Stream, body: bytes) -> None:
        """The other end is connected."""

    def on_failed(self, stream: Stream, body: bytes) -> None:
        """The other end could not connect."""

    def on_open(self, ident: int, body: bytes) -> None:
        """Somebody wants a connection."""

    def on_pong(self, body: bytes) -> None:
        """The other end is there."""

    # ------------------------------------------------------------------------------------ frames

    def _take_pipe(self) -> None:
        for kind, ident, body in self.pipe.frames():
            if kind != DATA:
                self._on_frame(kind, ident, bytes(body))
            elif ident in self.streams:
                self._on_data(self.streams[ident], body)

    def _on_frame(self, kind: int, ident: int, body: bytes) -> None:
        stream = self.streams.get(ident)
        if kind == PING:
            self.say(PONG, 0, body)
        elif kind == PONG:
            self.on_pong(body)
        elif kind == OPEN:
            self.on_open(ident, body)
        elif stream is not None:  # of one that has ended here, what the other end still had to say is late
            self._on_stream(stream, kind, body)

    def _on_stream(self, stream: Stream, kind: int, body: bytes) -> None:
        if kind == OPENED:
            self.on_opened(stream, body)
        elif kind == FAILED:
            self.on_failed(stream, body)
        elif kind == MORE:
            stream.credit += _U32.unpack(body)[0]
            self._credited(stream)
        elif kind == FIN:
            stream.fin_got = True
            self._delivered_all(stream)
        elif kind == CLOSE:
            # Whoever closes with bytes on their way to it answers them by a reset.
            if TAKEN.unpack(body)[0] < stream.taken:
                self.forget(stream, reset=True)
            else:
                stream.closing = True
                self._delivered_all(stream)
        elif kind == RESET:
            self.forget(stream, reset=True)

    # ------------------------------------------------------------------------------------ a stream

    def attach(self, stream: Stream, sock: socket.socket, events: int) -> None:
        """Look at a socket from now on."""
        stream.sock, stream.events = sock, events
        self._by_fd[sock.fileno()] = stream
        self._sockets.register(sock.fileno(), events)

    def detach(self, stream: Stream) -> socket.socket | None:
        """Look at it no more."""
        sock, stream.sock = stream.sock, None
        if sock is not None:
            self._by_fd.pop(sock.fileno(), None)
            if not stream.gone:
                self._sockets.unregister(sock.fileno())
        return sock

    def forget(self, stream: Stream, *, reset: bool = False) -> None:
        """Close the connection and know no more of the stream."""
        self.streams.pop(stream.ident, None)
        sock = self.detach(stream)
        if sock is None:
            return
        if reset:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
        sock.close()

    def hung_up(self, stream: Stream, kind: int, body: bytes = b"") -> None:
        """Our own side has ended, and this is how."""
        self.say(kind, stream.ident, body)

    def receive(self, sock: socket.socket, stream: Stream, size: int) -> bytes:  # noqa: ARG002 - others look closer
        """Read from a connection."""
        return sock.recv(size)

    def _on_data(self, stream: Stream, data: memoryview) -> None:
        sock = stream.sock
        if sock is None or stream.connecting or stream.pending:
            stream.pending.append(bytes(data))  # a view would keep all that was read with it
            return
        try:
            sent = sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # the reading side tells how it ended
            return
        self._count(stream, sent)
        if sent < len(data):
            stream.pending.append(bytes(data[sent:]))
            self.interest(stream)

    def deliver(self, stream: Stream) -> None:
        """Give the socket what waits for it, as far as it takes it."""
        sock = stream.sock
        assert sock is not None  # noqa: S101
        try:
            while stream.pending:
                data = stream.pending[0]
                sent = sock.send(data)
                self._count(stream, sent)
                if sent < len(data):
                    stream.pending[0] = data[sent:]
                    return
                stream.pending.popleft()
        except BlockingIOError:
            return
        except OSError:
            stream.pending.clear()
        self.interest(stream)
        self._delivered_all(stream)

    def _count(self, stream: Stream, sent: int) -> None:
        stream.delivered += sent
        stream.owed += sent
        if stream.owed * 2 >= stream.window and not stream.closing:
            self.say(MORE, stream.ident, _U32.pack(stream.owed))
            stream.owed = 0

    def _delivered_all(self, stream: Stream) -> None:
        """Pass on the other side's end once everything before it is delivered."""
        if stream.pending or stream.connecting:
            return
        if stream.closing:
            self.forget(stream)
        elif stream.fin_got and stream.sock is not None:
            if stream.fin_sent:
                self.forget(stream)
                return
            with contextlib.suppress(OSError):
                stream.sock.shutdown(socket.SHUT_WR)

    def _credited(self, stream: Stream) -> None:
        if stream.sock is None or stream.connecting:
            return
        if stream.gone:
            self._read(stream, gone=True)
        else:
            self.interest(stream)

    def interest(self, stream: Stream) -> None:
        """Look for what is of use now."""
        if stream.sock is None or stream.gone:
            return
        wanted = (IN if stream.credit > 0 and not stream.fin_sent else 0) | (OUT if stream.pending else 0)
        if wanted != stream.events:
            stream.events = wanted
            self._sockets.modify(stream.sock.fileno(), wanted)

    def _read(self, stream: Stream, *, gone: bool) -> None:
        """Take what is there, as far as it may be sent on; of one that is gone everything."""
        sock = stream.sock
        assert sock is not None  # noqa: S101
        while stream.credit > 0:
            try:
                data = self.receive(sock, stream, min(stream.credit, SOCKET_READ))
            except BlockingIOError:
                break
            except OSError:
                self.hung_up(stream, RESET)
                self.forget(stream, reset=True)
                return
            if not data:
                self._ended(stream, gone=gone)
                return
            stream.taken += len(data)
            if not self.pipe.over:
                stream.credit -= len(data)
                self.say(DATA, stream.ident, data)
            if not gone:
                break
        if gone and not stream.gone and stream.credit <= 0:
            self._gone(stream)
        self.interest(stream)

    def _ended(self, stream: Stream, *, gone: bool) -> None:
        """Our side has said everything. `gone`: it takes nothing any more, either."""
        if self.pipe.over:  # nobody is there to be told, and nobody to end the other direction
            self.forget(stream)
        elif stream.reset:
            self.hung_up(stream, RESET)
            self.forget(stream, reset=True)
        elif gone and not stream.fin_got:
            self.hung_up(stream, CLOSE, TAKEN.pack(stream.delivered))
            self.forget(stream)
        else:
            stream.fin_sent = True
            self.hung_up(stream, FIN)
            if stream.fin_got and not stream.pending:
                self.forget(stream)
            else:
                self.interest(stream)

    def _gone(self, stream: Stream) -> None:
        """Our side has closed while nothing may be read from it: look no more, or it would be told again and again."""
        if stream.fin_sent:
            self.hung_up(stream, CLOSE, TAKEN.pack(stream.delivered))
            self.forget(stream)
        elif stream.sock is not None and not stream.gone:
            self._sockets.unregister(stream.sock.fileno())
            stream.gone = True
            stream.pending.clear()
            if stream.credit > 0:
                self._read(stream, gone=True)
