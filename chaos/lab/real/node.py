"""One node of a real engine: started under a warden, looked at, ended to its last child."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from chaos.lab.kinds import log_tail
from chaos.lab.real import warden
from chaos.model.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Order:
    """What a node runs."""

    name: str  # `prefill-0`
    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    folder: Path = Path()  # working directory
    log: Path = Path()  # both streams
    pidfile: Path = Path()


class Node:
    """A node that was started."""

    def __init__(self, order: Order) -> None:
        """Start it; LabError when its program cannot be run."""
        self.order = order
        self.log_start = order.log.stat().st_size if order.log.exists() else 0
        """Where this start's lines begin: a restarted node appends to the same file."""
        self._exit: int | None = None
        self._left: list[int] = []
        self._pending = b""
        self._warden = subprocess.Popen(
            [sys.executable, "-P", warden.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # ctrl-C is for the owner
        )
        try:
            self.pid = self._give_order()
        except BaseException:
            self._warden.kill()
            self._warden.communicate()  # closes the pipes, too
            raise
        self.start_time = self._start_time()
        order.pidfile.write_text(f"{self.pid}\n")

    def _give_order(self) -> int:
        order = self.order
        line = json.dumps(
            {
                "command": list(order.command),
                "environment": dict(order.environment),
                "log": str(order.log),
                "folder": str(order.folder),
            }
        )
        assert self._warden.stdin is not None  # noqa: S101, for mypy: it was asked for
        with contextlib.suppress(BrokenPipeError):  # it died at once; reading says so
            self._warden.stdin.write(line.encode() + b"\n")
            self._warden.stdin.flush()
        deadline = time.monotonic() + _START_TIMEOUT_S
        while (left := deadline - time.monotonic()) > 0:
            for told in self._read(left):
                if "pid" in told:
                    return int(str(told["pid"]))
                raise LabError(f"{order.name} could not be started: {told.get('error', 'its warden failed')}")
            if self._warden.poll() is not None:
                break
        raise LabError(f"{order.name} could not be started: its warden said nothing")

    def _start_time(self) -> float:
        try:
            return psutil.Process(self.pid).create_time()
        except psutil.NoSuchProcess:
            return 0.0  # it has ended already; `exit_status` says so

    @property
    def exit_status(self) -> int | None:
        """None while the main process runs; negative for a signal."""
        for told in self._read(0):
            if "exit" in told:
                self._exit = int(str(told["exit"]))
        if self._exit is None and self._warden.poll() is not None:
            self._exit = self._warden.returncode
        return self._exit

    def check(self) -> None:
        """LabError with the log's tail when the main process has ended."""
        status = self.exit_status
        if status is not None:
            how = f"signal {-status}" if status < 0 else f"exit code {status}"
            raise self.error(f"died ({how})")

    def error(self, what: str) -> LabError:
        """What went wrong with this node, with the tail of its log."""
        return LabError(f"{self.order.name} {what}\n{log_tail(self.order.log)}", hint=f"whole log: {self.order.log}")

    def said(self, text: bytes) -> bool:
        """Whether the log has this since the present start."""
        try:
            with self.order.log.open("rb") as log:
                log.seek(self.log_start)
                return text in log.read()
        except OSError:
            return False

    def let_go(self) -> None:
        """Ask for everything of this node to be killed, without waiting; `stop` waits."""
        if self._warden.stdin is not None:
            with contextlib.suppress(OSError):
                self._warden.stdin.close()

    def stop(self) -> list[int]:
        """Kill everything of this node; the ids of what would not die. May be called twice."""
        self.let_go()
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while self._warden.poll() is None and time.monotonic() < deadline:
            for told in self._read(0.1):
                self._left = list(told.get("left", []))  # type: ignore[call-overload]
        if self._warden.poll() is None:
            self._warden.kill()  # the engine's main process dies with it
            self._warden.wait()
            self._left = [self.pid]
        for told in self._read(0):
            self._left = list(told.get("left", []))  # type: ignore[call-overload]
        if self._warden.stdout is not None:
            self._warden.stdout.close()
        return self._left

    def _read(self, timeout_s: float) -> list[dict[str, object]]:
        """What the warden has told since the last call; waits at most this long for something."""
        out = self._warden.stdout
        if out is None or out.closed:
            return []
        while select.select([out], [], [], timeout_s)[0]:
            timeout_s = 0
            got = os.read(out.fileno(), 65536)
            if not got:
                break
            self._pending += got
        *whole, self._pending = self._pending.split(b"\n")
        return [json.loads(line) for line in whole]
