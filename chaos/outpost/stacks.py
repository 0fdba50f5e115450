"""Thread names and stacks of Python processes, read from outside by py-spy without stopping them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

from chaos.outpost import proc
from chaos.outpost.insides import tree
from chaos.outpost.trouble import Trouble

STACKS_S = 10.0
"""A process with hundreds of megabytes of libraries takes a second; a starved machine several."""
ATTEMPTS = 3
MOST_FRAMES = 200
_PERMISSION = re.compile(r"permission denied|operation not permitted", re.IGNORECASE)
_NOT_PYTHON = "failed to find python version"


def stacks(pid: int, start_ticks: int, limit_s: float) -> dict[str, Any]:
    """Threads and stacks of a process and of what lives below it, read by py-spy without stopping any.

    `threads` by pid as py-spy gives them, `failed` by pid why they could not be read; what runs no Python is in
    neither, and `alive` is how many there are at all. Raises Trouble `no-py-spy` where there is none. Takes some 20 ms
    for each process; after `limit_s` no other is begun.
    """
    program = py_spy()
    if program is None:
        raise Trouble("no-py-spy", "py-spy is not installed")
    read: dict[str, Any] = {}
    failed: dict[str, str] = {}
    until = time.monotonic() + limit_s
    alive = tree(pid, start_ticks)
    for one in alive:
        threads, why = _tried(program, one) if time.monotonic() < until else (None, "its time was up")
        if threads is not None:
            read[str(one.pid)] = threads
        elif why:
            failed[str(one.pid)] = why
    return {"alive": len(alive), "threads": read, "failed": failed}


def _tried(program: str, one: proc.Stat) -> tuple[list[dict[str, Any]] | None, str]:
    """Its threads; else why there are none, empty where nothing is missed."""
    try:
        return stacks_of(program, one.pid), ""
    except Trouble as trouble:
        missed = trouble.kind != "not-python" and proc.same(one.pid, one.start_ticks) is not None
        return None, trouble.text if missed else ""


def py_spy() -> str | None:
    """py-spy beside our interpreter, else on the path; None when there is none."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def stacks_of(program: str, pid: int) -> list[dict[str, Any]]:
    """Every thread of one process; Trouble `not-python` or `no-stacks`. At most three times STACKS_S.

    py-spy reads the other process's memory while that goes on running, so a stack may change under its eyes; then it is
    read again.
    """
    said = ""
    for _ in range(ATTEMPTS):
        try:
            done = subprocess.run(
                [program, "dump", "--json", "--nonblocking", "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=STACKS_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Trouble("no-stacks", f"py-spy did not answer within {STACKS_S:g} s") from None
        except OSError as error:
            raise Trouble("no-stacks", f"py-spy cannot be run: {error.strerror}") from None
        if done.returncode == 0:
            return _threads(done.stdout)
        said = done.stderr.decode(errors="replace").strip()
        if _PERMISSION.search(said):
            raise Trouble("no-stacks", "py-spy is not permitted to look at it")
        if _NOT_PYTHON in said.lower():
            raise Trouble("not-python", "not a Python process")
    raise Trouble("no-stacks", f"py-spy failed: {said.splitlines()[0][:200] if said else 'it said nothing'}")


def _threads(out: bytes) -> list[dict[str, Any]]:
    try:
        told_threads = json.loads(out)
    except ValueError as error:
        raise Trouble("no-stacks", f"py-spy said something else than expected: {error}") from None
    if not isinstance(told_threads, list):
        raise Trouble("no-stacks", "py-spy said something else than expected: no list of threads")
    for thread in told_threads:
        del thread["frames"][MOST_FRAMES:]
    return sorted(told_threads, key=lambda thread: thread.get("os_thread_id") or 0)


OPS: dict[str, Callable[..., object]] = {"stacks": stacks}
