"""What became of the hosts while a run lasted, as events: moments in which one could not be seen, and their clocks.

A journal names servers, never hosts.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from chaos.engine.hosts.remote import Remote
from chaos.model.events import ClockMeasured, EvidenceLost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from chaos.engine.hosts.clock import HostClock
    from chaos.engine.hosts.hosts import Hosts
    from chaos.engine.ports import Emit
    from chaos.model.events import AnyEvent

OUTAGE, JUMP = "ssh", "clock"
"""As probes: what an outage hides is told by whoever looked there; a clock that jumped puts all stamps in doubt."""
LOAD = "load"
"""In place of servers, where the host runs the load alone."""
CLOSING_S = 3.0


@asynccontextmanager
async def recorded(hosts: Hosts, emit: Emit) -> AsyncIterator[None]:
    """Emit how the hosts' clocks stand, now, every minute and at the end, and every outage."""
    loop = asyncio.get_running_loop()

    def hand_over(event: AnyEvent) -> None:
        with suppress(RuntimeError):  # the loop is closed: the run is over
            loop.call_soon_threadsafe(emit, event)

    remotes = [host for host in hosts.all if isinstance(host, Remote)]
    for remote in remotes:
        remote.watcher = _Scribe(hosts.servers_at(remote) or (LOAD,), hand_over)
        remote.watcher.clock(remote.clock)
    try:
        yield
    finally:
        stock = [asyncio.to_thread(remote.take_stock) for remote in remotes]
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await asyncio.gather(*stock)
        for remote in remotes:
            remote.watcher = None
        await asyncio.sleep(0)  # what was handed over is emitted


class _Scribe:
    """Writes down what becomes of one host."""

    def __init__(self, servers: tuple[str, ...], hand_over: Callable[[AnyEvent], None]) -> None:
        self._servers = servers
        self._hand_over = hand_over

    def outage(self, from_ns: int, to_ns: int, cause: str) -> None:
        self._lost(OUTAGE, from_ns, to_ns, cause)

    def jump(self, from_ns: int, to_ns: int, cause: str) -> None:
        self._lost(JUMP, from_ns, to_ns, cause)

    def clock(self, clock: HostClock) -> None:
        of = ", ".join(self._servers)
        for name, offset_ns in ((of, -clock.offset_ns), (f"{of} (wall clock)", -clock.wall_offset_ns)):
            self._hand_over(
                ClockMeasured(
                    t_ns=time.monotonic_ns(),
                    src="probe:ssh",
                    of=name,
                    offset_ns=offset_ns,
                    uncertainty_ns=clock.uncertainty_ns,
                )
            )

    def _lost(self, probe: str, from_ns: int, to_ns: int, cause: str) -> None:
        for server in self._servers:
            self._hand_over(
                EvidenceLost(
                    t_ns=time.monotonic_ns(),
                    src="probe:ssh",
                    probe=probe,
                    node=server,
                    from_ns=from_ns,
                    to_ns=to_ns,
                    cause=cause,
                )
            )
