"""The relay's end on a host: it connects where the end at ours says, and passes on what comes.

When the pipe ends the connections are not hung up on at once, which would be a fault of its own: what the servers still
send is dropped until they end the connections themselves, or the grace is over.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque

from .pipe import FAILED, OPENED, OUT
from .streams import OPENING, SOCKET_READ, Relay, Stream

SILENCE_S = 60.0
"""Whoever is at the other end says something every second; then it is gone."""
ORPHAN_S = 20.0
"""How long servers may take to end the answers that nobody takes any more."""
_WORDS = {
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "timeout",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
}


class HostEnd(Relay):
    """Connects where the other end says."""

    def __init__(self, pipe_in: int, pipe_out: int) -> None:
        super().__init__(pipe_in, pipe_out)
        self._resolved, wake = os.pipe()
        self._wake = wake
        self._answers: deque[tuple[Stream, list[tuple[int, object]], str]] = deque()
        self._names: dict[tuple[str, int], list[tuple[int, object]]] = {}
        os.set_blocking(self._resolved, False)
        self.watch(self._resolved)

    def serve(self) -> None:
        """Until the pipe ends; then until the servers have ended what is open, for a while."""
        while not self.pipe.over:
            self.turn(SILENCE_S / 4)
            if time.monotonic() - self.pipe.heard > SILENCE_S:
                self.pipe.end()
        until = time.monotonic() + ORPHAN_S
        for stream in list(self.streams.values()):
            if stream.connecting:
                self.forget(stream)
            elif not stream.gone:
                stream.credit = SOCKET_READ
                self.interest(stream)
        while self.streams and time.monotonic() < until:
            self.turn(0.5)

    def on_open(self, ident: int, body: bytes) -> None:
        """Look the name up, then connect."""
        port, window = OPENING.unpack_from(body)
        host = body[OPENING.size :].decode()
        stream = self.streams[ident] = Stream(ident, window)
        known = self._names.get((host, port))
        if known is None and (numeric := _numeric(host, port)):
            known = self._names[host, port] = numeric
        if known is not None:
            stream.addresses = list(known)
            self._connect(stream, None)
            return

        def look_up() -> None:
            why = ""
            found: list[tuple[int, object]] = []
            try:
                for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                    if (family, address) not in found:
                        found.append((family, address))
            except (OSError, UnicodeError) as error:
                why = str(error)
            self._answers.append((stream, found, why))
            os.write(self._wake, b"!")

        threading.Thread(target=look_up, daemon=True, name="names").start()

    def on_other(self, fd: int) -> None:
        """Names were looked up."""
        with contextlib.suppress(BlockingIOError):
            os.read(fd, 4096)
        while self._answers:
            stream, found, why = self._answers.popleft()
            if stream.ident not in self.streams:
                continue  # nobody waits for it any more
            if found:
                stream.addresses = found
                self._connect(stream, None)
            else:
                self._fail(stream, "unresolved", why)

    def on_connecting(self, stream: Stream, events: int) -> None:  # noqa: ARG002 - the socket tells more
        """Tell the other end that the connection is there, or try the next address."""
        sock = stream.sock
        assert sock is not None  # noqa: S101
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            failed = OSError(number, os.strerror(number))
            self.detach(stream)
            sock.close()
            self._connect(stream, failed)
            return
        stream.connecting = False
        self.say(OPENED, stream.ident, struct.pack(">H", sock.getsockname()[1]))
        self.deliver(stream)

    def _connect(self, stream: Stream, failed: OSError | None) -> None:
        while stream.addresses:
            family, address = stream.addresses.pop(0)
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                failed = error
                continue
            sock.setblocking(False)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # What a client does not take must be felt by the server, not be kept here.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, max(stream.window // 2, 4096))
                sock.connect(address)  # type: ignore[arg-type]
            except BlockingIOError:
                pass
            except OSError as error:
                sock.close()
                failed = error
                continue
            self.attach(stream, sock, OUT)
            return
        number = failed.errno if failed is not None and failed.errno is not None else 0
        self._fail(stream, _WORDS.get(number, "failed"), str(failed))

    def _fail(self, stream: Stream, word: str, text: str) -> None:
        self.say(FAILED, stream.ident, f"{word} {text}".encode())
        self.streams.pop(stream.ident, None)


def _numeric(host: str, port: int) -> list[tuple[int, object]]:
    try:
        told = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []
    return [(family, address) for family, _, _, _, address in told]


def main() -> int:
    """The end on a host: frames come in on stdin and go out on stdout."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the end of the connection is told by the pipe
    HostEnd(sys.stdin.fileno(), sys.stdout.fileno()).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
