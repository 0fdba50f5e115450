"""Observes the harness itself: is what we see the target's doing or our own?

A loop that is blocked, a machine without file descriptors, or a client stack that hangs looks just like a wedged
target. So the loop's lag is sampled all the time, and a reference canary goes to a server of our own.
"""

from __future__ import annotations

import asyncio
import math
import os
from typing import TYPE_CHECKING

from chaos.engine.probes.canary import CanaryProbe, Route
from chaos.engine.probes.pace import Pace
from chaos.engine.probes.reference import ReferenceServer
from chaos.engine.probes.starved import CpuWait
from chaos.model.events import EvidenceLost, HarnessHealth, RequestEnded, RequestOverdue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import httpx

    from chaos.engine.hosts import Host
    from chaos.engine.hosts.relay import Gap
    from chaos.engine.ports import Clock, Emit
    from chaos.engine.probes.locate import Located
    from chaos.model.events import AnyEvent

TICK_S = 0.01
REPORT_S = 1.0
REFERENCE_S = 1.0
REFERENCE_DEADLINE_S = 5.0
"""A local answer takes milliseconds; this long without one and no hang of the target can be told from ours."""


class OurselvesProbe:
    """Emits a `HarnessHealth` per second, and the reference canaries' own events."""

    def __init__(
        self,
        *,
        http: httpx.AsyncClient,
        emit: Emit,
        clock: Clock,
        run_id: str,
        whereabouts: Callable[[], Sequence[tuple[Host, Mapping[str, Located]]]] = tuple,
        gaps: Callable[[bool], Sequence[tuple[str, Gap]]] = lambda _last: (),
    ) -> None:
        """`whereabouts` says where the target's processes are, by host; `gaps` when our way to a server had none.

        It is told whether it is asked for the last time.
        """
        self._http = http
        self._emit = emit
        self._clock = clock
        self._run_id = run_id
        self._whereabouts = whereabouts
        self._gaps = gaps
        self._cpu = CpuWait()
        self._lags_ms: list[float] = []
        self._reference_ok: bool | None = None
        self._reference_ms: float | None = None

    async def run(self) -> None:
        """Sample until cancelled."""
        with ReferenceServer() as server:
            reference = CanaryProbe(
                [Route(path="reference", url=server.url, api="chat")],
                http=self._http,
                emit=self._hear,
                clock=self._clock,
                run_id=self._run_id,
                model="reference",
                interval_s=REFERENCE_S,
                deadline_s=REFERENCE_DEADLINE_S,
                kind="reference",
            )
            async with asyncio.TaskGroup() as group:
                group.create_task(reference.run())
                group.create_task(self._sample())
                group.create_task(self._report())

    def _hear(self, event: AnyEvent, /) -> None:
        if isinstance(event, RequestEnded) and event.ended_by != "harness":
            self._reference_ok = event.ok
            if event.ok and event.last_ns is not None and event.sent_ns is not None:
                self._reference_ms = (event.last_ns - event.sent_ns) / 1e6
        elif isinstance(event, RequestOverdue):
            self._reference_ok = False
        self._emit(event)

    async def _sample(self) -> None:
        """Sleep 10 ms again and again; what a sleep takes longer is lag."""
        while True:
            due_ns = self._clock.now_ns() + int(TICK_S * 1e9)
            await self._clock.sleep(TICK_S)
            self._lags_ms.append(max(0.0, (self._clock.now_ns() - due_ns) / 1e6))

    async def _report(self) -> None:
        pace = Pace(self._clock, REPORT_S)
        await pace.next()
        while True:
            await pace.next()
            self._tell_gaps()
            self.report(await self._cpu.sample(self._whereabouts()))

    def finish(self) -> None:
        """Tell what is left to be told."""
        self._tell_gaps(last=True)
        self.report()

    def report(self, cpu_wait: Mapping[str, float] | None = None) -> None:
        """Emit what was sampled since the last report; a reference that has not ended since is unknown."""
        lags, self._lags_ms = sorted(self._lags_ms), []
        self._emit(
            HarnessHealth(
                t_ns=self._clock.now_ns(),
                src="probe:ourselves",
                who="harness",
                lag_max_ms=lags[-1] if lags else 0.0,
                lag_p99_ms=lags[math.ceil(0.99 * len(lags)) - 1] if lags else 0.0,
                open_files=_open_files(),
                reference_ok=self._reference_ok,
                reference_ms=self._reference_ms,
                cpu_wait=dict(cpu_wait or {}),
            )
        )
        self._reference_ok = self._reference_ms = None

    def _tell_gaps(self, *, last: bool = False) -> None:
        """Emit when our own way to a server was cut, or let nothing through for a while."""
        for server, gap in self._gaps(last):
            self._emit(
                EvidenceLost(
                    t_ns=self._clock.now_ns(),
                    src="probe:ourselves",
                    probe="way" if gap.broke else "way-late",
                    node=server,
                    from_ns=gap.from_ns,
                    to_ns=gap.to_ns,
                    cause="our own connection to its host " + ("was cut" if gap.broke else "let nothing through"),
                )
            )


def _open_files() -> int:
    """Descriptors of this process; 0 where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count, no paths
    except OSError:
        return 0
