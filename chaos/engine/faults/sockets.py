"""Which of our TCP connections the kernel still holds open: the measurement that verifies a wave."""

from __future__ import annotations

from pathlib import Path

_ESTABLISHED = "01"


def established(ports: frozenset[int]) -> int | None:
    """How many of these local ports still have an ESTABLISHED connection; None when the kernel does not tell."""
    if not ports:
        return 0
    found: set[int] = set()
    readable = False
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        readable = True
        for line in lines:
            fields = line.split(maxsplit=4)
            if fields[3] == _ESTABLISHED:
                found.add(int(fields[1].rsplit(":", 1)[1], 16))
    return len(found & ports) if readable else None
