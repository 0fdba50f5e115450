"""Every operation that a host offers, by name. A new one is a function in its own module and a line there.

An operation takes keyword arguments and gives a value, all of them JSON; it may block, each call has a thread of its
own. A stream calls `send` any number of times and ends when it is done or `stopped` is set.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable

from chaos.outpost import (
    addresses,
    agents,
    find,
    fitness,
    guards,
    insides,
    locks,
    logs,
    net,
    processes,
    shell,
    sockets,
    stacks,
    starved,
    stretches,
    sweep,
    traffic,
    zmtp,
)

if TYPE_CHECKING:
    import threading

Op = Callable[..., Any]
Stream = Callable[..., None]


def now() -> dict[str, int]:
    """This host's clocks (nanoseconds), and seconds that its local time is ahead of UTC."""
    return {"mono_ns": time.monotonic_ns(), "wall_ns": time.time_ns(), "tz_s": time.localtime().tm_gmtoff}


def filler(*, size: int) -> str:
    """So many characters: shows that a long answer comes through, and holds nobody up."""
    return "x" * size


def ticks(send: Callable[[Any], None], stopped: threading.Event, *, count: int, every_s: float) -> None:
    """Count aloud: shows that a stream flows."""
    for n in range(count):
        send(n)
        if stopped.wait(every_s):
            return


OPS: dict[str, Op] = {
    "filler": filler,
    "now": now,
    **addresses.OPS,
    **agents.OPS,
    **find.OPS,
    **fitness.OPS,
    **guards.OPS,
    **insides.OPS,
    **locks.OPS,
    **logs.OPS,
    **net.OPS,
    **processes.OPS,
    **shell.OPS,
    **sockets.OPS,
    **stacks.OPS,
    **starved.OPS,
    **stretches.OPS,
    **sweep.OPS,
    **traffic.OPS,
    **zmtp.OPS,
}
STREAMS: dict[str, Stream] = {
    "ticks": ticks,
    **agents.STREAMS,
    **logs.STREAMS,
    **sockets.STREAMS,
}
