"""Scrapes every node's metrics once a second. What cannot be read is said to be unread, never taken for zero."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.engine.probes.exposition import BadExposition, Exposition, Reading
from chaos.engine.probes.http import TRANSPORT_ERRORS, describe
from chaos.engine.probes.pace import Pace
from chaos.model.events import QueueReading, Scrape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx

    from chaos.engine.ports import Clock, Emit
    from chaos.engine.probes.exposition import Wanted

INTERVAL_S = 1.0
TIMEOUT_S = 5.0
MAX_BODY_BYTES = 32 << 20
PARSE_HERE_BYTES = 512 << 10
"""A larger body is parsed in a thread: 200 kB take half a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSource:
    """Where a node's metrics are and which of them are wanted."""

    node: str
    url: str
    wanted: tuple[Wanted, ...]
    instance_labels: frozenset[str] = frozenset()  # left out, so that a restarted server's series go on


async def fetch_exposition(http: httpx.AsyncClient, url: str, headers: Mapping[str, str]) -> bytes:
    """The body at `url`; raises BadExposition for anything but a 200 of bearable size, or a transport error."""
    async with asyncio.timeout(TIMEOUT_S), http.stream("GET", url, headers=dict(headers)) as response:
        if response.status_code != 200:
            raise BadExposition(f"HTTP {response.status_code}")
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise BadExposition(f"larger than {MAX_BODY_BYTES >> 20} MiB")
    if "html" in response.headers.get("content-type", ""):
        raise BadExposition("an HTML page")
    return bytes(body)


class MetricsProbe:
    """Emits a `Scrape` per node and second."""

    def __init__(
        self,
        sources: Sequence[MetricsSource],
        *,
        http: httpx.AsyncClient,
        emit: Emit,
        clock: Clock,
        headers: Mapping[str, str] | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._sources = tuple(sources)
        self._http = http
        self._emit = emit
        self._clock = clock
        self._headers = dict(headers or {})
        self._interval_s = interval_s
        self._latest: dict[tuple[str, str], tuple[float, int]] = {}

    async def run(self) -> None:
        """Scrape until cancelled. A node that answers slowly is asked again only once it has answered."""
        async with asyncio.TaskGroup() as group:
            for source in self._sources:
                group.create_task(self._follow(source))

    def readings(self, now_ns: int) -> list[QueueReading]:
        """The latest backlog gauges with their age; ranks of a node are summed (a census counts requests)."""
        return [
            QueueReading(node=node, name=name, value=value, age_s=(now_ns - read_ns) / 1e9)
            for (node, name), (value, read_ns) in sorted(self._latest.items())
        ]

    async def _follow(self, source: MetricsSource) -> None:
        reader = Exposition(source.wanted, source.instance_labels)
        pace = Pace(self._clock, self._interval_s)
        while True:
            await pace.next()
            await self.scrape(source, reader)

    async def scrape(self, source: MetricsSource, reader: Exposition) -> None:
        """Read a node once and emit what came of it."""
        began_ns = self._clock.now_ns()
        reading, error = Reading((), ()), ""
        try:
            body = await fetch_exposition(self._http, source.url, self._headers)
            if len(body) > PARSE_HERE_BYTES:
                reading = await asyncio.to_thread(reader.read, body)
            else:
                reading = reader.read(body)
        except BadExposition as bad:
            error = str(bad)
        except TimeoutError:
            error = f"no answer in {TIMEOUT_S:g} s"
        except TRANSPORT_ERRORS as failed:
            error = ": ".join(describe(failed))
        now_ns = self._clock.now_ns()
        self._remember(source, reading, now_ns)
        self._emit(
            Scrape(
                t_ns=now_ns,
                src="probe:metrics",
                node=source.node,
                ok=not error,
                took_ms=(now_ns - began_ns) / 1e6,
                samples=reading.samples,
                zero=reading.zero,
                error=error,
            )
        )

    def _remember(self, source: MetricsSource, reading: Reading, now_ns: int) -> None:
        queues = {wanted.name for wanted in source.wanted if wanted.use == "queue"}
        sums: dict[str, float] = defaultdict(float)
        for sample in reading.samples:
            if sample.name in queues:
                sums[sample.name] += sample.value
        for name, value in sums.items():
            self._latest[source.node, name] = (value, now_ns)
