"""Real processes to be found, looked at and signalled; nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from chaos.outpost import proc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Says it is there and stays until its stdin ends.
STAYS = "import sys; print('up', flush=True); sys.stdin.read()"
# Listens, shares that with as many forked children as it is told, says its port.
LISTENS = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), reuse_port=True)
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        break
else:
    print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def running(*words: str, first: str = sys.executable, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen]:
    """A process in a session of its own, with all it forks, while inside; its first line has been said."""
    process = subprocess.Popen(
        [first, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, env=env
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@contextmanager
def staying(*more: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen]:
    """A process that stays."""
    with running("-c", STAYS, *more, env=env) as process:
        assert process.stdout.readline() == "up\n"
        yield process


@contextmanager
def listening(port: int = 0, children: int = 0) -> Iterator[tuple[subprocess.Popen, int]]:
    """A process that listens, and its port."""
    with running("-c", LISTENS, str(port), str(children)) as process:
        yield process, int(process.stdout.readline())


def named(pid: int) -> list[int]:
    """A process as operations want it named."""
    found = proc.stat(pid)
    assert found is not None
    return [pid, found.start_ticks]


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for another process."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def tool(folder: Path, name: str, script: str) -> Path:
    """A program for the path that says what its script says."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
