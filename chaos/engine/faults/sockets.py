"""Which TCP connections of a process the kernel holds open: the measurement that verifies a wave.

Connections are taken from the kernel, not from what the client reported: a report that was still on its way when the
client was killed would make the wave look smaller than it was. They are told apart by inode: a freed local port is soon
used again by somebody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chaos.engine.hosts import HostLost, HostTrouble

if TYPE_CHECKING:
    from chaos.engine.hosts import Host


async def connections_of(host: Host, pid: int, *, unix: bool = False) -> frozenset[str] | None:
    """The process's ESTABLISHED connections, with `unix` its Unix sockets, too; None when the kernel does not tell."""
    try:
        return msgspec.convert(await host.call("connections", pid=pid, unix=unix), frozenset[str])
    except (HostLost, HostTrouble):
        return None


async def still_established(host: Host, connections: frozenset[str]) -> int | None:
    """How many of these connections are still ESTABLISHED; None when the kernel does not tell."""
    try:
        return msgspec.convert(await host.call("still_open", inodes=sorted(connections)), int)
    except (HostLost, HostTrouble):
        return None
