"""One TCP or TLS connection for one request, on a raw socket: with stamps, and hung up by RST, by FIN or as clients do.

An HTTP library gives neither the moment the last byte went to the kernel nor a choice of how a connection dies.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import enum
import errno
import fcntl
import socket
import struct
import termios
from time import monotonic_ns
from typing import TYPE_CHECKING, Callable, Protocol, cast

from . import blackhole, door
from .reach import ConnectError, reach

if TYPE_CHECKING:
    from .reach import Remote

_LINGER_0 = struct.pack("ii", 1, 0)
_DRAIN_READS = 256  # a server that sends faster than we drain must not keep us here
_CLOSE_GRACE_S = 2.0  # for the peer's half of a TLS farewell


class Listener(Protocol):
    """Who owns a connection."""

    def sent(self, now_ns: int, local_port: int) -> None:
        """The last byte of the request was handed to the kernel."""

    def received(self, data: bytes, now_ns: int) -> None:
        """Bytes arrived."""

    def lost(self, error: Exception | None) -> None:
        """The connection ended, and not by `hang_up` or `close`; None for a regular end of file."""


class Stage(enum.Enum):
    """How far a connection is."""

    NEW = enum.auto()
    CONNECTING = enum.auto()
    ATTACHING = enum.auto()  # the loop's transport takes over; with TLS that includes the handshake
    OPEN = enum.auto()
    CLOSED = enum.auto()


class Farewell:
    """How one connection was hung up, as measured: `kind` is `rst` or `fin`, `at_ns` when (None: not yet)."""

    __slots__ = ("at_ns", "kind", "on_closed")

    def __init__(self) -> None:
        self.at_ns: int | None = None
        self.kind = ""
        self.on_closed: Callable[[], None] | None = None


class Wire(asyncio.Protocol):
    """One connection. Use `open` once; then the listener hears of it until `close` or `hang_up`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, listener: Listener) -> None:
        self._loop = loop
        self._held = ""  # "stall" or "blackhole"
        self._buffer_bytes = 0  # of the kernel for what arrives, before a stall made it small
        self._listener = listener
        self._sock: socket.socket | None = None
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[object] | None = None
        self._farewell: Farewell | None = None
        self._how = ""
        self._no_reset = False  # a relay could not be asked for one
        self._tls = False
        self._port = 0  # of our end of the connection, wherever that is
        self.stage = Stage.NEW

    async def open(self, remote: Remote, data: bytes) -> None:
        """Connect and send; ConnectError or OSError when that fails, CancelledError when hung up meanwhile."""
        self._task = asyncio.current_task()
        self._tls = remote.tls is not None
        self.stage = Stage.CONNECTING
        try:
            self._sock, self._port = await reach(self._loop, remote)
        except BaseException:
            self.stage = Stage.CLOSED
            raise
        sock = self._sock
        try:
            if remote.tls is None:
                # Straight to the socket: a transport may keep bytes until the loop's next turn, and the stamp lie.
                await self._loop.sock_sendall(sock, data)
                self._listener.sent(monotonic_ns(), self._port)
            self.stage = Stage.ATTACHING
        finally:
            if self.stage is not Stage.ATTACHING:
                self._close_socket(sock)
        self._task = None
        name = remote.name if remote.tls is not None else None
        try:
            if remote.unix_socket:
                await self._loop.create_unix_connection(lambda: self, sock=sock, ssl=remote.tls, server_hostname=name)
            else:
                await self._loop.create_connection(lambda: self, sock=sock, ssl=remote.tls, server_hostname=name)
        except (OSError, asyncio.CancelledError) as error:  # ssl.SSLError is an OSError
            self._closed()
            if isinstance(error, OSError):
                raise ConnectError(f"TLS handshake: {error}") from error
            raise
        if remote.tls is not None and self._transport is not None and not self._how:
            self._transport.write(data)
            self._listener.sent(monotonic_ns(), self._port)

    # ------------------------------------------------------------------------------------------ asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport, and hang up at once when that was ordered meanwhile."""
        self._transport = cast("asyncio.Transport", transport)
        self.stage = Stage.OPEN
        if self._held == "stall":
            self._transport.pause_reading()
        if self._how:
            self._hang_up_open(self._transport)

    def data_received(self, data: bytes) -> None:
        """Stamp and pass on."""
        if not self._how:
            self._listener.received(data, monotonic_ns())

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the listener, or note how our own farewell went."""
        told = bool(self._how)
        self._closed()
        if not told:
            self._listener.lost(exc)

    # ------------------------------------------------------------------------------------------ holding

    def hold(self, how: str) -> None:
        """Keep the connection and take nothing from it: do not read (`stall`), or let nothing arrive (`blackhole`).

        OSError where the system cannot do it. Of a stall the kernel's buffer is made small, so that the window closes
        after a few kilobytes.
        """
        sock = self._sock
        if sock is None or self._held:
            return
        if how == "blackhole" and sock.family == socket.AF_UNIX:
            raise OSError(errno.EOPNOTSUPP, "a relay connects in our place: there is no TCP connection to mute here")
        if how == "blackhole":
            blackhole.attach(sock)
        else:
            self._buffer_bytes = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            if self._transport is not None:
                self._transport.pause_reading()
        self._held = how

    def release(self) -> None:
        """Undo `hold`."""
        how, self._held = self._held, ""
        sock = self._sock
        if sock is None or not how:
            return
        if how == "blackhole":
            blackhole.detach(sock)
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer_bytes // 2)  # the kernel doubles it
        if self._transport is not None:
            self._transport.resume_reading()

    @property
    def held(self) -> bool:
        """Whether nothing is taken from it."""
        return bool(self._held)

    def arrived(self) -> tuple[bool, int, int]:
        """Whether it is held; bytes received and not read; segments that were dropped."""
        sock = self._sock
        if sock is None:
            return False, 0, 0
        return bool(self._held), unread_bytes(sock), blackhole.drops(sock)

    # ------------------------------------------------------------------------------------------ endings

    def close(self) -> None:
        """Close after a complete response: no hang-up."""
        if self._how:
            return
        self._how = "close"
        if self._transport is not None:
            self._close_gently(self._transport)

    def hang_up(self, how: str) -> Farewell | None:
        """End the connection now, as `rst`, `fin` or `cancel`; None when there is no open socket to end.

        `fin` takes what was received out of the socket before it closes, since the kernel answers a close with unread
        data by RST. `cancel` is what an ordinary client does: whether the wire sees FIN or RST is up to that rule.
        """
        if self._how or self.stage in (Stage.NEW, Stage.CLOSED):
            return None
        self.release()
        self._how = how
        sock = self._sock
        if sock is not None:
            self._farewell = Farewell()
            if how == "rst" and sock.family == socket.AF_UNIX:
                self._no_reset = not door.ask_for_reset(sock)
            elif how == "rst":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
        if self._task is not None:  # connecting, or a large body is still being sent
            self._task.cancel()
        elif self._transport is not None:
            self._hang_up_open(self._transport)
        elif self._tls and sock is not None:
            # The transport is not ours before the handshake is over; an end of file makes it fail now. (Without TLS
            # it becomes ours within this turn of the loop, and `connection_made` hangs up.)
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RD if how == "rst" else socket.SHUT_RDWR)
        return self._farewell

    def _hang_up_open(self, transport: asyncio.Transport) -> None:
        if self._how == "cancel":
            self._close_gently(transport)
            return
        if self._how == "fin" and self._sock is not None:
            # The FIN leaves now; what still arrives until the close is drained there.
            with contextlib.suppress(OSError):  # the peer was faster
                self._sock.shutdown(socket.SHUT_WR)
        transport.abort()

    def _close_gently(self, transport: asyncio.Transport) -> None:
        transport.close()
        if self._tls:
            self._loop.call_later(_CLOSE_GRACE_S, transport.abort)

    def _drain(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for _ in range(_DRAIN_READS):
                if not sock.recv(65536):
                    break

    def _close_socket(self, sock: socket.socket) -> None:
        """Close a socket that the loop has no transport for."""
        self._note_farewell(sock)
        sock.close()
        self._sock = None
        self.stage = Stage.CLOSED

    def _closed(self) -> None:
        self._note_farewell(self._sock)
        self._sock = None
        self._transport = None
        self.stage = Stage.CLOSED

    def _note_farewell(self, sock: socket.socket | None) -> None:
        """Stamp the end just before the close that makes it final, and look what the kernel is going to send."""
        farewell = self._farewell
        if farewell is None or farewell.at_ns is not None:
            return
        if self._how == "fin" and sock is not None:
            self._drain(sock)
        reset = self._how == "rst" and not self._no_reset
        farewell.kind = "rst" if reset or (sock is not None and unread_bytes(sock)) else "fin"
        farewell.at_ns = monotonic_ns()
        if farewell.on_closed is not None:
            farewell.on_closed()


def unread_bytes(sock: socket.socket) -> int:
    """Bytes that were received and not read: with any, a close sends RST."""
    count = array.array("i", [0])
    try:
        fcntl.ioctl(sock.fileno(), termios.FIONREAD, count)
    except (OSError, ValueError):  # closed already: nothing is known, nothing is left
        return 0
    return count[0]
