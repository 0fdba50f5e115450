"""Which TCP connections of a process the kernel holds open: the measurement that verifies a wave.

Connections are taken from the kernel, not from what the client reported: a report that was still on its way when the
client was killed would make the wave look smaller than it was. They are told apart by inode: a freed local port is soon
used again by somebody else.
"""

from __future__ import annotations

import os
from pathlib import Path

_ESTABLISHED = "01"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def connections_of(pid: int) -> frozenset[str] | None:
    """The process's ESTABLISHED connections; None when the kernel does not tell."""
    sockets = set()
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            try:
                target = str(Path(entry.path).readlink())
            except OSError:
                continue  # closed meanwhile
            if target.startswith("socket:["):
                sockets.add(target[8:-1])
    except OSError:
        return None
    established = _established()
    return None if established is None else established & sockets


def still_established(connections: frozenset[str]) -> int | None:
    """How many of these connections are still ESTABLISHED; None when the kernel does not tell."""
    established = _established()
    return None if established is None else len(established & connections)


def _established() -> frozenset[str] | None:
    """Inodes of every ESTABLISHED connection of this network namespace; a closed socket's inode becomes 0."""
    inodes = set()
    readable = False
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        readable = True
        for line in lines:
            fields = line.split(maxsplit=10)
            if fields[3] == _ESTABLISHED:
                inodes.add(fields[9])
    return frozenset(inodes) if readable else None
