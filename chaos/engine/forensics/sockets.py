"""TCP sockets of a process, read in that process's own network namespace: a lab may have put it into another than ours.

What waits in a socket's queues is told, too: bytes that nobody reads are how a dead reader looks from outside.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

_STATES = {
    "01": "ESTABLISHED", "02": "SYN_SENT", "03": "SYN_RECV", "04": "FIN_WAIT1", "05": "FIN_WAIT2", "06": "TIME_WAIT",
    "07": "CLOSE", "08": "CLOSE_WAIT", "09": "LAST_ACK", "0A": "LISTEN", "0B": "CLOSING",
}  # fmt: skip


def sockets_of(pid: int) -> list[str]:
    """One line per TCP socket: state, both ends, and what waits to be read or sent. Raises OSError."""
    inodes = _inodes(pid)
    lines = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, remote, state, queues, _, _, _, _, inode, *_ = row.split()
            if inode in inodes:
                lines.append(_line(family, local, remote, state, queues))
    return sorted(lines)


def _inodes(pid: int) -> set[str]:
    found = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            target = str(Path(entry.path).readlink())
        except OSError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def _line(family: int, local: str, remote: str, state: str, queues: str) -> str:
    sending, _, unread = queues.partition(":")
    waits = [f"{int(number, 16)} bytes {what}" for number, what in ((unread, "unread"), (sending, "unsent"))
             if int(number, 16) and _STATES.get(state) != "LISTEN"]  # fmt: skip
    text = f"{_STATES.get(state, state)} {_address(family, local)} -> {_address(family, remote)}"
    return f"{text} ({', '.join(waits)})" if waits else text


def _address(family: int, text: str) -> str:
    host, _, port = text.partition(":")
    if int(port, 16) == 0:
        return "-"
    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    address = socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))
    return f"[{address}]:{int(port, 16)}" if family == socket.AF_INET6 else f"{address}:{int(port, 16)}"
