"""The line to one outpost: requests out, answers in, told apart by their numbers.

One thread reads and one writes, so that whoever asks is never held up by the network.
"""

from __future__ import annotations

import itertools
import json
import queue
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.engine.hosts.start import Started

_READ_BYTES = 1 << 17
_TOLD_BYTES = 2000


class Said(NamedTuple):
    """One thing that came back: a value (`ok`, `d`), a stream's `end`, a `trouble` (kind, text), or `lost` (text)."""

    what: Literal["ok", "d", "end", "trouble", "lost"]
    value: Any = None
    kind: str = ""
    read_ns: int = 0  # when it was read here


class Line:
    """An open line. `on_lost` is called once when it is down, with why."""

    def __init__(self, started: Started, on_lost: Callable[[str], None]) -> None:
        self.hello = started.hello
        self.heard_ns = time.monotonic_ns()  # when anything last arrived
        self._channel = started.channel
        self._on_lost = on_lost
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Callable[[Said], object]] = {}
        self._parts: dict[int, list[str]] = {}
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr = b""
        self._ended = threading.Event()
        self.lost = ""  # why it is down
        self._threads = [
            threading.Thread(target=self._read, args=(started.rest,), name="ssh-read", daemon=True),
            threading.Thread(target=self._write, name="ssh-write", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, request: dict[str, Any], answer: Callable[[Said], object]) -> int:
        """Send a request; `answer` is called, in a thread of ours, with all that comes of it. Its number."""
        number = next(self._numbers)
        with self._lock:
            if not self.lost:
                self._waiting[number] = answer
        if self.lost:
            answer(Said("lost", self.lost))
        else:
            self._out.put(json.dumps({"id": number, **request}).encode() + b"\n")
        return number

    def stop(self, number: int) -> None:
        """Ask a stream to end; that it did is still said."""
        self._out.put(b'{"id": %d, "stop": true}\n' % number)

    def forget(self, number: int) -> None:
        """Nobody waits for this one any more."""
        with self._lock:
            self._waiting.pop(number, None)

    def give_up(self, why: str) -> None:
        """Take it for lost: nothing that comes now is believed, and whoever waits is told."""
        self._down(why)

    def finish(self, timeout_s: float) -> None:
        """Tell the outpost that this was all, and wait for it to end."""
        self._out.put(None)
        self._ended.wait(timeout_s)

    def close(self, why: str) -> None:
        """It is down, for this reason. The connection under it is closed already, so its threads end."""
        self._down(why)
        self._out.put(None)
        for thread in self._threads:
            thread.join(1.0)
        with suppress(OSError, EOFError):
            self._channel.close()

    @property
    def complaints(self) -> str:
        """The last line that the outpost wrote to stderr."""
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    # ------------------------------------------------------------------------------------------ threads

    def _write(self) -> None:
        with suppress(OSError, EOFError):  # the reader notices, too
            while (line := self._out.get()) is not None:
                self._channel.sendall(line)
            self._channel.shutdown_write()

    def _read(self, rest: bytes) -> None:
        why = "the host ended our process"
        try:
            while True:
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    if line:
                        self._take(json.loads(line))
                data = self._channel.recv(_READ_BYTES)
                if not data:
                    break
                self.heard_ns = time.monotonic_ns()
                rest += data
                self._drain()
        except EOFError:  # what paramiko raises where it must send and cannot, also while it receives
            why = "the SSH connection is gone"
        except (OSError, ValueError, KeyError) as error:
            why = f"what came over the connection cannot be read: {error}"
        with suppress(OSError, EOFError):
            self._drain()
        transport = self._channel.get_transport()
        if not transport.is_active():
            why = "the SSH connection is gone"
        self._down(why)
        self._ended.set()
        self._out.put(None)

    def _drain(self) -> None:
        while self._channel.recv_stderr_ready():
            self._stderr = (self._stderr + self._channel.recv_stderr(_READ_BYTES))[-_TOLD_BYTES:]

    def _take(self, message: dict[str, Any]) -> None:
        number, read_ns = message["id"], time.monotonic_ns()
        if "part" in message:
            self._parts.setdefault(number, []).append(message["part"])
            return
        if "whole" in message:
            message[message["whole"]] = json.loads("".join(self._parts.pop(number)))
        with self._lock:
            answer = self._waiting.get(number) if "d" in message else self._waiting.pop(number, None)
        if answer is None:
            return
        if "kind" in message:
            answer(Said("trouble", message["err"], message["kind"]))
        elif "end" in message:
            answer(Said("end"))
        else:
            what: Literal["ok", "d"] = "ok" if "ok" in message else "d"
            answer(Said(what, message[what], read_ns=read_ns))

    def _down(self, why: str) -> None:
        with self._lock:
            if self.lost:
                return
            self.lost = why
            waiting, self._waiting = list(self._waiting.values()), {}
        for answer in waiting:
            answer(Said("lost", why))
        self._on_lost(why)
