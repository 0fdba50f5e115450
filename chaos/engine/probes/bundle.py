"""All probes of a run behind one small face."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from chaos.agent.codeword import ROOM_TOKENS
from chaos.engine.probes.canary import MAX_OPEN, SOON_BESIDE_PAIRS, CanaryProbe, Pair, Route, pair_soon
from chaos.engine.probes.liveness import LivenessProbe, health_deadline
from chaos.engine.probes.logs import LogProbe
from chaos.engine.probes.metrics import MetricsProbe
from chaos.engine.probes.ourselves import OurselvesProbe
from chaos.engine.probes.pairs import rendezvous, rooms
from chaos.engine.probes.process import ProcessProbe
from chaos.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import httpx

    from chaos.engine.hosts.relay import Gap
    from chaos.engine.owners import Owners
    from chaos.engine.ports import Clock, Emit
    from chaos.engine.probes.discover import Discovery, FoundNode
    from chaos.model.events import Plan, QueueReading
    from chaos.model.scenario import Scenario
    from chaos.model.section import Api


class Setup(Protocol):
    """What probes need to know of a run."""

    @property
    def scenario(self) -> Scenario:
        """The scenario."""

    @property
    def plan(self) -> Plan:
        """The plan, with all durations scaled."""

    @property
    def run_id(self) -> str:
        """Tags our traffic."""

    @property
    def clock(self) -> Clock:
        """The run's clock."""

    @property
    def owners(self) -> Owners:
        """Who may own a codeword."""


class Probes:
    """Everything that observes. Log cursors are taken when this is made, so make it before the run does anything."""

    def __init__(
        self,
        setup: Setup,
        found: Discovery,
        *,
        http: httpx.AsyncClient,
        emit: Emit,
        gaps: Callable[[bool], Sequence[tuple[str, Gap]]] = lambda _last: (),
    ) -> None:
        """`gaps` tells when our own way to a server let nothing through, asked whether this is the last time."""
        plan, clock = setup.plan, setup.clock
        nodes = found.nodes
        self._clock = clock
        self._logs = LogProbe([log for node in nodes for log in node.logs], emit=emit, clock=clock, run_id=setup.run_id)
        self._canary = CanaryProbe(
            routes(setup, found),
            http=http,
            emit=emit,
            clock=clock,
            run_id=setup.run_id,
            model=found.model,
            interval_s=plan.canary_interval_s,
            deadline_s=plan.canary_deadline_s,
            max_tokens=_tokens(setup),
            headers=found.headers,
            content=plan.content,
            owners=setup.owners,
        )
        self._liveness = LivenessProbe(
            [node.health for node in nodes if node.health],
            http=http,
            emit=emit,
            clock=clock,
            deadline_s=health_deadline(plan.time_scale),
            headers=found.headers,
        )
        self._metrics = MetricsProbe(
            [node.metrics for node in nodes if node.metrics], http=http, emit=emit, clock=clock, headers=found.headers
        )
        self._process = ProcessProbe([node.process for node in nodes if node.process], emit=emit, clock=clock)
        self._ourselves = OurselvesProbe(
            http=http,
            emit=emit,
            clock=clock,
            run_id=setup.run_id,
            whereabouts=self._process.whereabouts,
            gaps=gaps,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._finished = False

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start every probe in the run's task group; `finish` or `close` ends them."""
        runs = (self._canary, self._logs, self._liveness, self._metrics, self._process, self._ourselves)
        self._tasks = [tasks.create_task(probe.run(), name=type(probe).__name__) for probe in runs]
        await asyncio.sleep(0)  # `last` may be asked for at once

    @property
    def processes(self) -> ProcessProbe:
        """Who watches the nodes' processes."""
        return self._process

    def readings(self) -> list[QueueReading]:
        """The latest backlog gauges with their age."""
        return self._metrics.readings(self._clock.now_ns())

    def mark(self) -> None:
        """Something happened to the deployment: send a fresh canary now, however many from before still hang."""
        self._canary.mark()

    def hurry(self, *, on: bool) -> None:
        """Whether somebody waits for passes in a row on every path; else canaries to single pairs come slowly."""
        self._canary.hurry(on=on)

    async def give_up(self, only: Collection[str]) -> None:
        """Hang up canaries that are overdue or on other paths, and until `resume` send them on no path but these."""
        await self._canary.give_up(only)

    def pause_for_idle(self) -> None:
        """No more canaries and health checks, which would move idle gauges; everything passive goes on."""
        self._canary.pause()
        self._liveness.pause()
        self._logs.checkpoint()

    def resume(self) -> None:
        """Canaries and health checks again."""
        self._canary.resume()
        self._liveness.resume()
        self._logs.checkpoint()

    @property
    def open_canaries(self) -> int:
        """Canaries sent and not ended."""
        return self._canary.open_count

    async def settled(self) -> None:
        """No more canaries; returns when all have ended or passed their deadline."""
        await self._canary.stop()

    async def last(self, deadline_s: float) -> None:
        """One last canary per path, and no other after it; returns when all have ended or passed their deadline."""
        await self._canary.last(deadline_s)

    async def finish(self) -> None:
        """End all observation: read logs to their end, look a last time, then hang up overdue canaries (journaled).

        In this order, because what the servers log about a hang-up of ours is our doing and not theirs.
        """
        if self._finished:
            return
        self._finished = True
        canaries, looking = self._tasks[:1], self._tasks[2:]  # logs are read to their end by what reads them
        for task in looking:
            task.cancel()
        if looking:
            await asyncio.wait(looking)
        await self._logs.finish()
        await self._process.finish()
        self._ourselves.finish()
        await self._canary.close()
        if canaries:
            await asyncio.wait(canaries)

    async def close(self) -> None:
        """Like `finish`; may be called after it, also after one that was cancelled half-way."""
        await self.finish()
        await self._canary.close()


def _tokens(setup: Setup) -> int:
    """How long a canary's answer is: where it must repeat a codeword, long enough for that."""
    wanted = setup.scenario.canary.max_tokens
    return max(wanted, ROOM_TOKENS) if setup.plan.content == "echo" else wanted


def routes(setup: Setup, found: Discovery) -> list[Route]:
    """The paths that canaries take: through the router, and straight to each pair that can be asked by itself."""
    api = setup.scenario.canary.api
    by_id = {node.node.id: node for node in found.nodes}
    soon = pair_soon(sum(node.node.role == "prefill" for node in found.nodes))
    pairs = any(path.examined and path.kind != "routed" for path in found.seen.paths)
    asked = []
    for path in found.seen.paths:
        if not path.examined:
            continue
        if path.kind == "routed":
            url, named = _asked(found.router, api), found.router.pack.rid
            soon_routed = SOON_BESIDE_PAIRS if pairs else MAX_OPEN
            asked.append(Route(path=path.id, url=url, api=api, named=named, soon=soon_routed))
            continue
        prefill, decode = (by_id[node] for node in path.nodes)
        at = rendezvous(prefill)
        if at is None:
            raise ValueError(f"{path.id} is examined, but nobody knows where decode finds {prefill.node.id}")
        pair = Pair(url=_asked(prefill, api), at=at, rooms=rooms(path))
        url, named = _asked(decode, api), decode.pack.rid
        asked.append(Route(path=path.id, url=url, api=api, pair=pair, named=named, soon=soon))
    return asked


def _asked(node: FoundNode, api: Api) -> str:
    """Where a node takes canaries; raises UsageError when it has no endpoint for their API."""
    endpoints = node.pack.endpoints
    asked = {"chat": endpoints.chat, "completions": endpoints.completions, "generate": endpoints.generate}[api]
    if not asked:
        raise UsageError(
            f"canaries cannot ask for {api}: the pack {node.pack.name} names no endpoint for it",
            hint="choose another canary.api in the scenario",
        )
    return node.base_url + asked
