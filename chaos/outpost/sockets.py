"""Which connections the kernel holds open: a process's own, or those of a port as its server sees them.

A process's connections are told by inode, because a freed local port is soon used again by somebody else; those of a
server by both their ends, because one that is not accepted yet has no inode.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any, Callable

from chaos.outpost import proc
from chaos.outpost.tables import ESTABLISHED, connected_unix, rows, told
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection

POLL_S = 0.002
LONGEST_WATCH_S = 60.0


def connections(pid: int, unix: bool = False) -> list[str]:
    """Inodes of a process's ESTABLISHED TCP connections; with `unix` also of its connected Unix sockets.

    Those may be pairs of its own (an event loop has one), for the kernel does not tell who is at the other end. Raises
    Trouble when it tells nothing.
    """
    try:
        return sorted(proc.sockets(pid) & _open(pid, unix=unix))
    except OSError as error:
        raise Trouble("missing", f"the sockets of process {pid} cannot be seen: {error.strerror}") from None


def still_open(inodes: Collection[str]) -> int:
    """How many of these connections are still open in our own network namespace. Raises Trouble."""
    try:
        return len(_open("self", unix=True) & set(inodes))
    except OSError as error:
        raise Trouble("missing", f"sockets cannot be seen: {error.strerror}") from None


def _open(pid: int | str, *, unix: bool) -> set[str]:
    return {row.inode for row in rows(pid, state=ESTABLISHED)} | (connected_unix(pid) if unix else set())


def peers(port: int) -> list[str]:
    """The other end (`10.0.0.1:51234`) of every ESTABLISHED connection to a local port. Raises Trouble."""
    try:
        return sorted(told(remote) for _, remote in _at(port))
    except OSError as error:
        raise Trouble("missing", f"sockets cannot be seen: {error.strerror}") from None


def _at(port: int, pid: int | str = "self") -> set[tuple[str, str]]:
    return {(row.local, row.remote) for row in rows(pid, state=ESTABLISHED) if row.port == port}


def leaving(
    send: Callable[[Any], None],
    stopped: threading.Event,
    *,
    port: int,
    peers: Collection[str] | None = None,
    ports: Collection[int] | None = None,
    pid: int | None = None,
    at_most_s: float = 10.0,
    poll_s: float = POLL_S,
) -> None:
    """Watch the connections to a local port end, as their server sees it: each is over when it leaves ESTABLISHED.

    `peers` narrows them to those from these other ends, `ports` to those from these ports of whatever hosts; with `pid`
    they are looked for in that process's network namespace (a container has its own). Sends `{"watched": n}` at once:
    from then on nothing is missed. Ends when all are gone, when stopped, or after `at_most_s` (60 at most), and then
    sends the same with `left`, `since_ns` (CLOCK_MONOTONIC of this host at the last look that saw all of them),
    `first_ns` and `last_ns` (at the look that first missed the first and the last; all three absent when none left) and
    `coarse_ns`, the longest time between two looks: stamps are late by so much. Raises Trouble when nothing is shown.
    """
    began_ns, space = time.monotonic_ns(), pid or "self"
    try:
        there = _at(port, space)
    except OSError as error:
        raise Trouble("missing", f"sockets cannot be seen: {error.strerror}") from None
    watched = {one for one in there if peers is None or told(one[1]) in set(peers)}
    if ports is not None:
        watched = {one for one in watched if int(one[1].rpartition(":")[2], 16) in set(ports)}
    send({"watched": len(watched)})
    left, first_ns, last_ns, coarse_ns, before_ns = watched, 0, 0, 0, time.monotonic_ns()
    since_ns = began_ns
    until_ns = began_ns + int(min(at_most_s, LONGEST_WATCH_S) * 1e9)
    while left and before_ns < until_ns and not stopped.wait(poll_s):
        there = left & _at(port, space)
        now_ns = time.monotonic_ns()
        coarse_ns = max(coarse_ns, now_ns - before_ns)
        if len(there) < len(left):
            since_ns = since_ns if first_ns else before_ns
            first_ns, last_ns = first_ns or now_ns, now_ns
        left, before_ns = there, now_ns
    seen: dict[str, int] = {"watched": len(watched), "left": len(left), "coarse_ns": coarse_ns}
    send({**seen, "since_ns": since_ns, "first_ns": first_ns, "last_ns": last_ns} if first_ns else seen)


def deaf(host: str, port: int, within_s: float = 5.0) -> str:
    """Why nothing accepts a connection there, as seen from here; empty when something does."""
    try:
        socket.create_connection((host, port), timeout=within_s).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


OPS: dict[str, Callable[..., object]] = {
    "connections": connections,
    "still_open": still_open,
    "peers": peers,
    "deaf": deaf,
}
STREAMS: dict[str, Callable[..., None]] = {"leaving": leaving}
