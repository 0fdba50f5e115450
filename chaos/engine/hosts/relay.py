"""The relay to one host: a process of its own on this machine, one there, and the connection between them.

The local end listens on Unix sockets in a private directory and owns nothing of the connection: bytes are carried
between it and the connection by two threads, far from any event loop. When the way breaks, all connections over it are
gone, which is noted before anybody can notice it; then a new one is tried for until it is there or we are closed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

from chaos.engine.hosts.host import HostLost, HostTrouble
from chaos.outpost.marks import marked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

READY_S = 20.0
"""A Python that has not opened its doors by then will not (these machines starve for seconds now and then)."""
SILENT_S = 15.0
"""Asked every second, whoever said nothing for so long is lost."""
STALL_S = 2.0
"""Of a way that answers every second, silence that is worth telling."""
AGAIN_S = 0.5
CLOSING_S = 3.0
SHORT = 40
_CHUNK = 1 << 17


class Far(Protocol):
    """The way's end at the host, as bytes."""

    def recv(self, size: int, /) -> bytes:
        """What has come; empty at the end. Raises OSError."""

    def sendall(self, data: bytes, /) -> object:
        """Send. Raises OSError."""

    def close(self) -> object:
        """Let go of it; whoever waits in `recv` or `sendall` comes back."""


@dataclass(frozen=True, slots=True)
class Door:
    """A Unix socket, where it leads as seen from the host, and what may be on its way in a connection (bytes)."""

    path: str
    host: str
    port: int
    window: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Nothing came through between two moments; `broke`: what went over it was cut, else it was late."""

    from_ns: int
    to_ns: int
    broke: bool


class Relay:
    """The way to what only one host can reach. `dial` starts the far end; it gives bytes that came with it, too."""

    def __init__(self, label: str, dial: Callable[[], tuple[Far, bytes]], doors: Sequence[Door], *, run: str) -> None:
        self.label = label
        self._dial = dial
        self._doors = tuple(doors)
        self._run = run
        self._lock = threading.Lock()
        self._breaks_ns: list[int] = []
        self._gaps: list[Gap] = []
        self._heard_ns = 0
        self._broken = threading.Event()
        self._closing = threading.Event()
        self._way: _Way | None = None
        self._keeper = threading.Thread(target=self._keep, name="relay-keep", daemon=True)

    def open(self) -> None:
        """Be there; blocks. Raises HostLost or HostTrouble."""
        self._connect()
        self._keeper.start()

    def broke(self, from_ns: int, to_ns: int) -> bool:
        """Whether connections that were open between two moments of our clock were cut by us."""
        with self._lock:
            return any(from_ns <= at_ns <= to_ns for at_ns in self._breaks_ns)

    def gaps(self, *, last: bool = False) -> list[Gap]:
        """When nothing came through, since this was last asked.

        One that lasts is told of now and then, and what is left of it when this is asked for the `last` time.
        """
        with self._lock:
            now_ns = time.monotonic_ns()
            away, silent_s = self._broken.is_set(), (now_ns - self._heard_ns) / 1e9
            if self._heard_ns and silent_s > (STALL_S if last else SILENT_S if away else math.inf):
                self._gap(now_ns, broke=away)
            told, self._gaps = self._gaps, []
        return told

    @property
    def up(self) -> bool:
        """Whether it is there, as far as we know."""
        return self._way is not None and not self._broken.is_set()

    def close(self) -> None:
        """End both processes; blocks for a few seconds at most. May be called twice."""
        self._closing.set()
        self._broken.set()
        if self._keeper.ident is not None:
            self._keeper.join(CLOSING_S)
        way, self._way = self._way, None
        if way is not None:
            way.close()

    # ------------------------------------------------------------------------------------ inside

    def _connect(self) -> None:
        far, rest = self._dial()
        try:
            way = _Way(far, rest, self._doors, self._run, self._heard, self._break)
        except BaseException:
            far.close()
            raise
        with self._lock:
            now_ns = time.monotonic_ns()
            if self._breaks_ns:
                self._gap(now_ns, broke=True)
            self._heard_ns = now_ns
        self._way = way
        self._broken.clear()
        if self._closing.is_set():
            self._broken.set()
        way.start()

    def _heard(self) -> None:
        now_ns = time.monotonic_ns()
        with self._lock:
            if now_ns - self._heard_ns > STALL_S * 1e9:
                self._gap(now_ns, broke=False)
            self._heard_ns = now_ns

    def _break(self) -> None:
        """What goes over it now is lost: known before its ends are closed."""
        if not self._closing.is_set():
            with self._lock:
                now_ns = time.monotonic_ns()
                self._breaks_ns.append(now_ns)
                self._gap(now_ns, broke=True)
        self._broken.set()

    def _gap(self, now_ns: int, *, broke: bool) -> None:
        self._gaps.append(Gap(self._heard_ns, now_ns, broke))
        self._heard_ns = now_ns

    def _keep(self) -> None:
        while not self._closing.is_set():
            self._broken.wait(AGAIN_S)
            way = self._way
            if way is not None and not self._broken.is_set():
                if time.monotonic_ns() - way.heard_ns > SILENT_S * 1e9:
                    way.cut()
                continue
            if way is not None:
                self._way = None
                way.close(again=True)
            if self._closing.wait(AGAIN_S):
                return
            with contextlib.suppress(HostLost, HostTrouble, OSError):
                self._connect()


class _Way:
    """One life of it: the local process, the far end, and the threads between them."""

    def __init__(
        self,
        far: Far,
        rest: bytes,
        doors: Sequence[Door],
        run: str,
        on_heard: Callable[[], None],
        on_broken: Callable[[], None],
    ) -> None:
        self._far = far
        self._on_heard, self._on_broken = on_heard, on_broken
        self._once = threading.Lock()
        self._over = False
        self.heard_ns = time.monotonic_ns()
        self._near, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-m", "chaos.outpost.entrance", str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=marked(run),
            )
        self._threads = [
            threading.Thread(target=self._carry_down, args=(rest,), name="relay-down", daemon=True),
            threading.Thread(target=self._carry_up, name="relay-up", daemon=True),
            threading.Thread(target=self._hear, name="relay-hear", daemon=True),
        ]
        self._ready = threading.Event()
        assert self._process.stdin is not None  # noqa: S101
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([asdict(door) for door in doors]).encode() + b"\n")
            self._process.stdin.flush()
        self._threads[-1].start()
        if not self._ready.wait(READY_S) or self._over:
            self.close()
            raise HostTrouble("not-started", "the relay's end on this machine did not start")

    def start(self) -> None:
        """Carry."""
        for thread in self._threads[:-1]:
            thread.start()

    def cut(self) -> None:
        """Take it for broken."""
        with self._once:
            if self._over:
                return
            self._over = True
        self._on_broken()
        for let_go in (lambda: self._near.shutdown(socket.SHUT_RDWR), self._far.close):
            with contextlib.suppress(OSError, EOFError):
                let_go()
        self._ready.set()

    def close(self, *, again: bool = False) -> None:
        """End the local process and let go of everything; `again`: the same doors are going to be opened again."""
        with self._once:
            self._over = True
        assert self._process.stdin is not None  # noqa: S101
        with contextlib.suppress(OSError):
            if again:
                self._process.stdin.write(b"again\n")
                self._process.stdin.flush()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(CLOSING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(OSError, EOFError):
            self._far.close()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(CLOSING_S)
        self._near.close()

    # ------------------------------------------------------------------------------------ threads

    def _carry_down(self, data: bytes) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                if data:
                    self._near.sendall(data)
                data = self._far.recv(_CHUNK)
                if not data:
                    break
        self.cut()

    def _carry_up(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while data := self._near.recv(_CHUNK):
                self._far.sendall(data)
        self.cut()

    def _hear(self) -> None:
        assert self._process.stdout is not None  # noqa: S101
        with self._process.stdout as said:
            for line in said:
                if b"ready" in line:
                    self._ready.set()
                else:
                    self.heard_ns = time.monotonic_ns()
                    self._on_heard()
        self.cut()


def private_folder() -> str:
    """A directory for the doors that nobody else may look into; its name is short, as names of Unix sockets must be."""
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp"):  # noqa: S108 - mkdtemp gives it mode 0700
        if base and len(base) < SHORT and os.access(base, os.W_OK | os.X_OK):
            return tempfile.mkdtemp(prefix="pdchaos-", dir=base)
    return tempfile.mkdtemp(prefix="pdchaos-")
