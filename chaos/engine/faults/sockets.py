"""Which TCP connections of a process the kernel holds open: the measurement that verifies a wave.

Ports are taken from the kernel, not from what the client reported: a report that was still on its way when the client
was killed would make the wave look smaller than it was.
"""

from __future__ import annotations

import os
from pathlib import Path

_ESTABLISHED = "01"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def ports_of(pid: int) -> frozenset[int] | None:
    """Local ports of the process's ESTABLISHED connections; None when the kernel does not tell."""
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
    rows = _established()
    return None if rows is None else frozenset(port for port, inode in rows if inode in sockets)


def still_established(ports: frozenset[int]) -> int | None:
    """How many of these local ports have an ESTABLISHED connection; None when the kernel does not tell."""
    rows = _established()
    return None if rows is None else len({port for port, _ in rows} & ports)


def _established() -> list[tuple[int, str]] | None:
    """Local port and inode of every ESTABLISHED connection of this network namespace."""
    rows = []
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
                rows.append((int(fields[1].rsplit(":", 1)[1], 16), fields[9]))
    return rows if readable else None
