"""What the system knows of an engine's processes: command line, state, a filtered environment, sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import psutil

from chaos.engine.forensics.sockets import sockets_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.engine.forensics.redact import Redactor
    from chaos.engine.probes.locate import Located

MOST_PROCESSES = 64
MOST_SOCKETS = 2000
SAME_START_S = 2.0


class Seen(msgspec.Struct, omit_defaults=True):
    """One process, as it is written down; what could not be read is only named."""

    pid: int
    name: str = ""
    state: str = ""
    started: float = 0.0  # seconds since the epoch
    environment: dict[str, str] = {}
    command: list[str] = []
    memory_bytes: int = 0
    cpu_s: float = 0.0
    os_threads: int = 0
    open_files: int = 0
    sockets: list[str] = []
    sockets_left_out: int = 0
    unreadable: list[str] = []


def tree(root: Located) -> list[psutil.Process]:
    """A process and all that came of it, oldest first; empty when it is gone."""
    try:
        process = psutil.Process(root.pid)
        if abs(process.create_time() - root.start_time) >= SAME_START_S:
            return []
        alive = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
    return [one for one in alive if _lives(one)][:MOST_PROCESSES]


def look(process: psutil.Process, redactor: Redactor) -> Seen:
    """Everything about one process that may be written down."""
    seen = Seen(pid=process.pid, unreadable=[])
    readers: dict[str, Callable[[], object]] = {
        "name": process.name,
        "state": process.status,
        "started": process.create_time,
        # before the command line: it teaches the redactor what must not stand there either
        "environment": lambda: redactor.environment(process.environ()),
        "command": lambda: redactor.arguments([word for word in process.cmdline() if word]),
        "memory_bytes": lambda: process.memory_info().rss,
        "cpu_s": lambda: round(process.cpu_times().user + process.cpu_times().system, 2),
        "os_threads": process.num_threads,
        "open_files": process.num_fds,
        "sockets": lambda: sockets_of(process.pid),
    }
    for name, read in readers.items():
        try:
            setattr(seen, name, read())
        except (psutil.Error, OSError):
            seen.unreadable.append(name)
    if not seen.environment and "environment" not in seen.unreadable:
        seen.unreadable.append("environment")  # a process that sets its own title overwrites it
    seen.sockets_left_out = max(len(seen.sockets) - MOST_SOCKETS, 0)
    seen.sockets = seen.sockets[:MOST_SOCKETS]
    return seen


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
