"""The program that stands between pdchaos and one node of a real engine, so that no process of it is ever left behind.

It is started with a lifeline, its standard input: the first line is the order (command, environment, log file), and
when the line ends, because pdchaos let go or died (SIGKILL included), everything below it is killed. It is a
*subreaper*: whatever the engine starts, daemons and orphans too, stays below it. A node's main process that ends
takes nothing along by our doing, for what its children do then is the engine's own behaviour.

On standard output it tells, one JSON object a line: `pid`, or `error`; `exit` (negative: a signal) when the main
process has ended; `left` (pids that would not die) at the end.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LOOK_EVERY_S = 0.1
_KILL_TIMEOUT_S = 10.0
_LIBC = ctypes.CDLL(None, use_errno=True)


def _tell(**what: object) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody is there to read, which is why we end
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


def die_with_parent() -> None:
    """Between fork and exec: have the kernel kill this process when the thread that forked it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _start(order: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    # appended to: a log that is truncated while the engine runs does not get a hole
    with Path(str(order["log"])).open("ab") as log:
        return subprocess.Popen(
            [str(word) for word in order["command"]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=order["environment"],
            cwd=str(order["folder"]),
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509, this process has one thread
        )


def _watch(child: subprocess.Popen[bytes], lifeline: int) -> None:
    """Until the lifeline ends: reap orphans, and say when the main process has ended."""
    told = False
    while not select.select([lifeline], [], [], _LOOK_EVERY_S)[0] or os.read(lifeline, 4096):
        if child.poll() is not None and not told:
            told = True
            _tell(exit=child.returncode)
        if told:
            _reap()


def _reap() -> None:
    """Bury orphans; only once the main process, whose status `Popen` wants, is gone."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _kill_all() -> list[int]:
    """SIGKILL everything below us until nothing is left; the pids of what stays."""
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while True:
        below = [each for each in psutil.Process().children(recursive=True) if _lives(each)]
        if not below or time.monotonic() > deadline:
            return [each.pid for each in below]
        for each in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(below, timeout=1.0)
        _reap()


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def main() -> int:
    """Run one order."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # it ends when its owner lets go, never before
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    with os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0) as unbuffered:
        order = json.loads(unbuffered.readline())
    try:
        child = _start(order)
    except OSError as error:
        _tell(error=f"{error.filename}: {error.strerror}")
        return 1
    try:
        _tell(pid=child.pid)
        _watch(child, sys.stdin.fileno())
    finally:
        left = _kill_all()
        _tell(left=left)
    return 0


if __name__ == "__main__":
    sys.exit(main())
