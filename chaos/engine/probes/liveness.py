"""Asks the servers' own health endpoints: recorded, never trusted.

A healthy `/health` of SGLang takes a second and more (it sleeps before it looks), and a bad one answers after the
server's own 20 s, so the deadline is longer than both. A check that passes its deadline is hung up: these requests
take the engine's fake path, which touches no transfer, so their disconnect is harmless, unlike a canary's.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.engine.probes.http import TRANSPORT_ERRORS, describe
from chaos.engine.probes.pace import Pace
from chaos.model.events import Liveness

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx

    from chaos.engine.ports import Clock, Emit

INTERVAL_S = 2.0
DEADLINE_S = 25.0
MIN_DEADLINE_S = 5.0
"""A lab's clocks may run fast, but the machine it starves on does not: healthy checks took 2.5 s on two busy cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSource:
    """The liveness endpoints of a node."""

    node: str
    base_url: str
    endpoints: tuple[str, ...]


def health_deadline(time_scale: float) -> float:
    """How long a health check may take on a deployment whose clocks run at `time_scale`, in seconds."""
    return max(MIN_DEADLINE_S, DEADLINE_S * time_scale)


class LivenessProbe:
    """Emits a `Liveness` per node and endpoint; a node is never asked twice at the same time."""

    def __init__(
        self,
        sources: Sequence[HealthSource],
        *,
        http: httpx.AsyncClient,
        emit: Emit,
        clock: Clock,
        deadline_s: float = DEADLINE_S,
        interval_s: float = INTERVAL_S,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._sources = tuple(sources)
        self._http = http
        self._emit = emit
        self._clock = clock
        self._deadline_s = deadline_s
        self._interval_s = interval_s
        self._headers = dict(headers or {})
        self._paused = False

    async def run(self) -> None:
        """Ask until cancelled."""
        async with asyncio.TaskGroup() as group:
            for source in self._sources:
                group.create_task(self._follow(source))

    def pause(self) -> None:
        """Ask no more until `resume`: a health request runs a batch, which refreshes gauges that would be stale."""
        self._paused = True

    def resume(self) -> None:
        """Ask again."""
        self._paused = False

    async def _follow(self, source: HealthSource) -> None:
        pace = Pace(self._clock, self._interval_s)
        while True:
            await pace.next()
            for endpoint in source.endpoints:
                if not self._paused:
                    await self._ask(source, endpoint)

    async def _ask(self, source: HealthSource, endpoint: str) -> None:
        began_ns = self._clock.now_ns()
        status, error = None, ""
        try:
            async with asyncio.timeout(self._deadline_s):
                response = await self._http.get(source.base_url + endpoint, headers=self._headers)
            status = response.status_code
        except TimeoutError:
            error = "timeout"
        except TRANSPORT_ERRORS as failed:
            error = ": ".join(describe(failed))
        now_ns = self._clock.now_ns()
        self._emit(
            Liveness(
                t_ns=now_ns,
                src="probe:liveness",
                node=source.node,
                endpoint=endpoint,
                status=status,
                took_ms=(now_ns - began_ns) / 1e6,
                error=error,
            )
        )
