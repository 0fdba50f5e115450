"""Relays whose far ends are processes on this machine, joined by pipes as they would be by SSH sessions."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from chaos.engine.hosts import Here, Hosts
from chaos.engine.hosts.relays import Relays
from chaos.model.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable


class FarEnd:
    """A process as a byte pipe."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-m", "chaos.outpost.relay"], stdin=theirs, stdout=theirs, start_new_session=True
            )
        self._pipe = ours
        self.recv, self.sendall = ours.recv, ours.sendall

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._pipe.shutdown(socket.SHUT_RDWR)
        self._pipe.close()
        self.process.wait(30)


class Elsewhere(Here):
    """This machine in the place of another."""

    remote = True
    label = "elsewhere"

    def __init__(self) -> None:
        self.ends: list[FarEnd] = []

    def dial(self) -> tuple[FarEnd, bytes]:
        """Start another far end."""
        self.ends.append(FarEnd())
        return self.ends[-1], b""

    def cut(self) -> None:
        """The connection breaks."""
        os.kill(self.ends[-1].process.pid, signal.SIGKILL)


def target_at(via: str, router: str, prefill: str, decode: str, **prefill_spec: Any) -> Target:
    """A target with one server of each role."""
    return Target.model_validate(
        {
            "version": 1,
            "name": "far",
            "via": via,
            "router": {"url": router},
            "prefill": [{"url": prefill, **prefill_spec}],
            "decode": [{"url": decode}],
        }
    )


def open_relays(target: Target, elsewhere: Elsewhere, *, at: tuple[str, ...] = ()) -> Relays:
    """Relays of a target whose servers (or those named) are elsewhere."""
    here = Here()
    named = at or tuple(server.id for server in target.servers)
    by_server = {server.id: elsewhere if server.id in named else here for server in target.servers}
    return Relays.open(target, Hosts(by_server, here), run="t", dial=lambda _host: elsewhere.dial)


def until(done: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)
