"""What a host knows of a server's processes from inside, for people: command lines, environments, sockets.

Nothing is left out here for being secret: that is done where it arrives, before it is written down.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from chaos.outpost import proc
from chaos.outpost.processes import WORDS
from chaos.outpost.tables import LISTEN, STATES, rows, told

if TYPE_CHECKING:
    from chaos.outpost.tables import Row

MOST_PROCESSES = 64
MOST_SOCKETS = 2000
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def inspect(pid: int, start_ticks: int) -> list[dict[str, Any]]:
    """Everything about a process and what lives below it, itself first; empty when it is gone."""
    return [_seen(one) for one in tree(pid, start_ticks)]


def tree(pid: int, start_ticks: int) -> list[proc.Stat]:
    """A process and what lives below it, itself first; empty when it is gone."""
    try:
        root = proc.same(pid, start_ticks)
    except PermissionError:
        return []
    if root is None:
        return []
    alive = [one for one in (root, *proc.below(pid, proc.everybody())) if not one.gone]
    return alive[:MOST_PROCESSES]


def _seen(one: proc.Stat) -> dict[str, Any]:
    seen: dict[str, Any] = {
        "pid": one.pid,
        "name": proc.full_name(one),
        "state": WORDS.get(one.state, one.state),
        "started": one.start_time,
        "os_threads": len(proc.threads(one.pid)),
    }
    unreadable = []
    readers: dict[str, Callable[[int], object]] = {
        "environment": proc.environment,
        "command": lambda pid: [word for word in proc.words(pid) if word],
        "memory_bytes": _memory,
        "cpu_s": _cpu,
        "open_files": lambda pid: len(os.listdir(f"/proc/{pid}/fd")),  # noqa: PTH208 - a count
        "sockets": sockets_of,
    }
    for name, reader in readers.items():
        with suppress(OSError, ValueError, IndexError):
            seen[name] = reader(one.pid)
        if name not in seen:
            unreadable.append(name)
    if not seen.get("environment") and "environment" not in unreadable:
        unreadable.append("environment")  # a process that sets its own title overwrites it
    sockets = seen.get("sockets", [])
    seen["sockets_left_out"] = max(len(sockets) - MOST_SOCKETS, 0)
    seen["sockets"] = sockets[:MOST_SOCKETS]
    seen["unreadable"] = unreadable
    return seen


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return round((int(fields[11]) + int(fields[12])) / _TICKS_PER_S, 2)


def sockets_of(pid: int) -> list[str]:
    """One line per TCP socket: state, both ends, and what waits to be read or sent. Raises OSError.

    They are read in the process's own network namespace. Bytes that nobody reads are how a dead reader looks from
    outside.
    """
    inodes = proc.sockets(pid)
    return sorted(_line(row) for row in rows(pid) if row.inode in inodes)


def _line(row: Row) -> str:
    text = f"{STATES.get(row.state, row.state)} {told(row.local)} -> {told(row.remote)}"
    waits = [f"{count} bytes {what}" for count, what in ((row.unread, "unread"), (row.unsent, "unsent")) if count]
    return f"{text} ({', '.join(waits)})" if waits and row.state != LISTEN else text


OPS: dict[str, Callable[..., object]] = {"inspect": inspect}
