"""Both ends of a relay as processes, joined by plain pipes; and servers at its far end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.outpost.pipe import HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST_END = [sys.executable, "-m", "chaos.outpost.relay"]
LOCAL_END = [sys.executable, "-m", "chaos.outpost.entrance"]


@dataclass
class Relayed:
    """A relay that runs."""

    here: subprocess.Popen[bytes]
    there: subprocess.Popen[bytes]
    folder: Path
    open: contextlib.ExitStack

    def accept(self, server: socket.socket) -> socket.socket:
        """The far end of the connection that came next."""
        there, _ = server.accept()
        there.settimeout(10)
        return self.open.enter_context(there)

    def connect(self, door: str = "door", timeout_s: float = 10.0) -> socket.socket:
        """A connection through it, still unanswered."""
        client = self.open.enter_context(socket.socket(socket.AF_UNIX))
        client.settimeout(timeout_s)
        client.connect(str(self.folder / door))
        return client

    def through(self, door: str = "door") -> socket.socket:
        """A connection that is there."""
        client = self.connect(door)
        assert client.recv(3)[:1] == b"+"
        return client


@contextlib.contextmanager
def local_end(
    folder: Path, doors: dict[str, tuple[str, int]], *, window: int = 65536
) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """Start the end on this machine; the other side of its pipe is the caller's."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(20)
    with theirs:
        with ours:
            here = subprocess.Popen(
                [*LOCAL_END, str(ours.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[ours.fileno()],
            )
        try:
            told = [
                {"path": str(folder / name), "host": host, "port": port, "window": window}
                for name, (host, port) in doors.items()
            ]
            assert here.stdin is not None
            assert here.stdout is not None
            here.stdin.write(json.dumps(told).encode() + b"\n")
            here.stdin.flush()
            assert json.loads(here.stdout.readline()) == {"ready": 1}
            yield theirs, here
        finally:
            _end(here)


@contextlib.contextmanager
def relayed(folder: Path, doors: dict[str, tuple[str, int]], *, window: int = 65536) -> Iterator[Relayed]:
    """Start both ends."""
    with local_end(folder, doors, window=window) as (pipe, here):
        pipe.settimeout(None)
        there = subprocess.Popen(HOST_END, stdin=pipe, stdout=pipe)
        pipe.close()
        try:
            with contextlib.ExitStack() as stack:
                yield Relayed(here, there, folder, stack)
        finally:
            _end(there)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(10)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def frames(data: bytes) -> list[tuple[int, int, bytes]]:
    """Whole frames."""
    found = []
    while data:
        kind, ident, length = HEADER.unpack_from(data)
        end = HEADER.size + length
        found.append((kind, ident, data[HEADER.size : end]))
        data = data[end:]
    return found


@contextlib.contextmanager
def listening(backlog: int = 512) -> Iterator[socket.socket]:
    """A server's socket."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(backlog)
        server.settimeout(10)
        yield server


def port_of(server: socket.socket) -> int:
    """Its port."""
    return int(server.getsockname()[1])


def ending(connection: socket.socket) -> str:
    """How the peer ends a connection: `fin` or `rst`; whatever it still sends is taken."""
    connection.settimeout(10)
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        return "rst"
    return "fin"


def killed(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL, and gone."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)


def flooding(connection: socket.socket) -> tuple[threading.Thread, list[int]]:
    """Send without end in a thread; the list grows by what the kernel takes."""
    took: list[int] = []
    connection.settimeout(2)

    def flood() -> None:
        with contextlib.suppress(OSError):
            while True:
                took.append(connection.send(bytes(4096)))

    thread = threading.Thread(target=flood)
    thread.start()
    return thread, took
