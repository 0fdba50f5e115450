"""The kernel's tables of sockets, `/proc/net/{tcp,tcp6,unix}`: rows, and what each field means."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

STATES = {
    "01": "ESTABLISHED", "02": "SYN_SENT", "03": "SYN_RECV", "04": "FIN_WAIT1", "05": "FIN_WAIT2", "06": "TIME_WAIT",
    "07": "CLOSE", "08": "CLOSE_WAIT", "09": "LAST_ACK", "0A": "LISTEN", "0B": "CLOSING",
}  # fmt: skip
ESTABLISHED = "01"
LISTEN = "0A"
UNIX_CONNECTED = "03"


class Row(NamedTuple):
    """One TCP socket; addresses as the kernel writes them. A closed socket, or one not yet accepted, has inode 0."""

    local: str
    remote: str
    state: str
    unsent: int
    unread: int
    inode: str

    @property
    def port(self) -> int:
        """The local one."""
        return int(self.local.rpartition(":")[2], 16)


def rows(pid: int | str = "self", *, state: str = "") -> Iterator[Row]:
    """Every TCP socket of a process's network namespace, or those in one state. Raises OSError when none can be read.

    Of one state it reads thousands of rows in a few milliseconds.
    """
    wanted = state.encode()
    tables = [Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6")]
    readable = [table.read_bytes() for table in tables if table.exists()]
    if not readable:
        raise FileNotFoundError(2, "the kernel shows no sockets", str(tables[0]))
    for table in readable:
        for line in table.splitlines()[1:]:
            fields = line.split(None, 10)
            if not wanted or fields[3] == wanted:
                unsent, _, unread = fields[4].partition(b":")
                yield Row(
                    fields[1].decode(),
                    fields[2].decode(),
                    fields[3].decode(),
                    int(unsent, 16),
                    int(unread, 16),
                    fields[9].decode(),
                )


def listeners(port: int) -> set[str]:
    """Inodes of the sockets that listen on a port, at whatever address. Raises OSError."""
    return {row.inode for row in rows(state=LISTEN) if row.port == port}


def connected_unix(pid: int | str = "self") -> set[str]:
    """Inodes of all connected Unix sockets; empty where the kernel does not tell."""
    try:
        lines = Path(f"/proc/{pid}/net/unix").read_text(errors="replace").splitlines()[1:]
    except OSError:
        return set()
    return {fields[6] for fields in (line.split(None, 7) for line in lines) if fields[5] == UNIX_CONNECTED}


def told(address: str) -> str:
    """An address and port for people: `127.0.0.1:80`, `[::1]:80`; `-` for none."""
    host, _, port = address.partition(":")
    if int(port, 16) == 0:
        return "-"
    family = socket.AF_INET if len(host) == 8 else socket.AF_INET6
    packed = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    text = socket.inet_ntop(family, struct.pack(f"={len(packed)}I", *packed))
    return f"[{text}]:{int(port, 16)}" if family == socket.AF_INET6 else f"{text}:{int(port, 16)}"
