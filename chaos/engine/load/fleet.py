"""All agents of a run: starts the groups of a cycle, saturates them, counts their phases, drains them at the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chaos.engine.load.agent import Agent
from chaos.engine.load.census import PHASES, add
from chaos.engine.load.config import agent_config
from chaos.engine.load.process import ProcessHere, ProcessThere

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from chaos.engine.hosts import Host
    from chaos.engine.load.config import Endpoint
    from chaos.engine.load.process import AgentProcess
    from chaos.engine.owners import Owners
    from chaos.engine.ports import Clock, Emit
    from chaos.model.scenario import Group

SATURATE_EVERY_S = 0.5
"""A new session needs a moment to become one that waits; adding faster would overshoot."""
SATURATE_STEP = 10
LEAVE_MARGIN_S = 5.0
"""Beyond a request's own timeout, which its client forgets while it drains; its process needs a moment to end."""
LATE_S = 30.0
"""How long a group may arrive after its ramp: on a starved machine an agent is behind its schedule."""
POLL_S = 0.05


class Fleet:
    """The load of one run. Agents live in the task group that is passed in."""

    def __init__(
        self,
        groups: list[Group],
        endpoint: Endpoint,
        *,
        run_id: str,
        seed: int,
        pyz: Path,
        folder: Path,
        emit: Emit,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        owners: Owners | None = None,
        named: Collection[str] = (),
        load: Host | None = None,
        broke: Callable[[int, int], bool] | None = None,
        away: Callable[[], bool] = bool,
    ) -> None:
        """Agents run on this machine, or on the host of the load; `broke` as `Agent` takes it.

        `away` tells whether their way to the router is gone at the moment: then no session waits because none can ask.
        """
        self._groups = {group.name: group for group in groups}
        self._owners = owners
        self._named = frozenset(named)  # groups whose requests carry their id in the body
        self._endpoint = endpoint
        self.run_id = run_id
        self._seed = seed
        self._pyz = pyz
        self._folder = folder
        self._emit = emit
        self._clock = clock
        self._tasks = tasks
        self._load = load
        self._broke = broke
        self._away = away
        self._agents: dict[str, Agent] = {}
        self._next_session: dict[str, int] = {}
        self._begun_ns: dict[str, int] = {}
        self._helpers: list[asyncio.Task[None]] = []
        self._closing = False
        self._sated: set[str] = set()

    def sate(self, group: str) -> None:
        """Add no more sessions to a group in this cycle: what it was filled up for has come."""
        self._sated.add(group)

    async def start_groups(self) -> None:
        """Start every group that has no living agent: all of them at first, later those that a wave killed."""
        self._sated.clear()
        fresh = [self._launch(group) for group in self._groups.values() if not self._alive(group.name)]
        for agent in fresh:
            await agent.ready()
            self._begun_ns[agent.group] = self._clock.now_ns()
        for agent in fresh:
            group = self._groups[agent.group]
            if group.saturate:
                self._helpers.append(self._tasks.create_task(self._saturate(agent)))
            if group.arrival.rate and group.arrival.lasts:
                self._helpers.append(self._tasks.create_task(self._end_arrivals(agent, group.arrival.lasts)))

    def agent(self, group: str) -> Agent:
        """The current agent of a group."""
        return self._agents[group]

    def census(self, group: str | None = None) -> dict[str, int] | None:
        """Sessions by phase of one group or of all; None when any of it is unknown."""
        total = dict.fromkeys(PHASES[1:], 0)
        for name, agent in self._agents.items():
            if group is not None and name != group:
                continue
            if not agent.alive:
                continue
            counted = agent.census()
            if counted is None:
                return None
            total = add(total, counted)
        return total

    @property
    def open_requests(self) -> int:
        """Requests sent and not yet ended, over all agents."""
        return sum(agent.open_requests for agent in self._agents.values() if agent.alive)

    @property
    def over(self) -> bool:
        """Whether no agent runs or is being started."""
        return all(agent.over for agent in self._agents.values())

    async def arrived(self, group: str | None = None) -> None:
        """Wait until a group's ramp (or all of them) is over: a wave against 60 sessions must not meet the first 20."""
        now_ns = self._clock.now_ns()
        names = self._begun_ns if group is None else [group]
        left_s = [self._groups[name].arrival.ramp - (now_ns - self._begun_ns[name]) / 1e9 for name in names]
        await self._clock.sleep(max(left_s, default=0.0))
        deadline_ns = self._clock.now_ns() + int(LATE_S * 1e9)
        while any(map(self._misses_some, names)) and self._clock.now_ns() < deadline_ns:
            await self._clock.sleep(POLL_S)

    async def finished(self) -> None:
        """Wait until every agent has run out of rounds (for scenarios without a timeline), or hangs."""
        while not self._all_hang():
            await self._clock.sleep(POLL_S)

    async def leave(self, group: str) -> int:
        """Have a group end its open requests and send no more; how many did not end in their own time."""
        agent = self._agents[group]
        await agent.drain()
        try:
            async with asyncio.timeout(self._groups[group].timeout + LEAVE_MARGIN_S):
                await agent.ended()
        except TimeoutError:
            return agent.open_requests
        return 0

    async def drain(self, at_most_s: float, *, hopeless: Callable[[], bool] = lambda: False) -> int:
        """End the load without hanging up on anybody; after `at_most_s` the rest is hung up on, and counted here.

        So it is once `hopeless` says that waiting longer teaches nothing; that takes a request that waits, and an agent
        which is still being started has none.
        """
        self._closing = True
        for task in self._helpers:
            task.cancel()
        alive = [agent for agent in self._agents.values() if not agent.over]
        for agent in alive:
            await agent.drain()
        until_ns = self._clock.now_ns() + int(at_most_s * 1e9)
        while not all(agent.over for agent in alive):
            if self._clock.now_ns() >= until_ns or (hopeless() if self.open_requests else self._all_hang()):
                left = self.open_requests
                await self.hang_up()
                return left
            await self._clock.sleep(POLL_S)
        return 0

    async def hang_up(self) -> None:
        """Disconnect everything now; each request is journaled as ended by the harness."""
        self._closing = True
        for task in self._helpers:
            task.cancel()
        alive = [agent for agent in self._agents.values() if not agent.over]
        for agent in alive:
            await agent.stop()
        try:
            async with asyncio.timeout(5.0):
                for agent in alive:
                    await agent.ended()
        except TimeoutError:
            for agent in alive:
                await agent.force()
            for agent in alive:
                await agent.ended()

    # ------------------------------------------------------------------------------------------ inside

    def _all_hang(self) -> bool:
        return all(agent.over or agent.hangs for agent in self._agents.values())

    def _alive(self, group: str) -> bool:
        agent = self._agents.get(group)
        return agent is not None and agent.alive

    def _misses_some(self, name: str) -> bool:
        """Whether a group of a fixed size has sessions that have not begun (an open loop has no such size)."""
        group, counted = self._groups[name], self.census(name)
        begun = group.sessions if counted is None else sum(counted.values())
        return self._alive(name) and group.arrival.rate is None and begun < group.sessions

    def _launch(self, group: Group) -> Agent:
        first = self._next_session.get(group.name, 0)
        self._next_session[group.name] = first + (group.saturate.max_sessions if group.saturate else group.sessions)
        life = f"{group.name}-{first:06d}"
        config = agent_config(
            group,
            run_id=self.run_id,
            seed=self._seed,
            endpoint=self._endpoint,
            first=first,
            owner=self._owners.of_group(group.name) if self._owners else None,
            rid=group.name in self._named,
        )
        log = self._folder / f"agent-{life}.log"
        agent = Agent(
            config,
            self._process(life, log),
            log=log,
            emit=self._emit,
            clock=self._clock,
            owners=self._owners,
            broke=self._broke,
        )
        self._agents[group.name] = agent
        self._tasks.create_task(agent.run())
        return agent

    def _process(self, life: str, log: Path) -> AgentProcess:
        """Where the load runs, by the target's `via`."""
        if self._load is not None and self._load.remote:
            return ProcessThere(self._load, key=f"{self.run_id}-{life}", run=self.run_id, log=log)
        phases = self._folder / f"agent-{life}.phases"
        return ProcessHere(pyz=self._pyz, log=log, phase_file=phases, run=self.run_id)

    async def _saturate(self, agent: Agent) -> None:
        saturate = self._groups[agent.group].saturate
        assert saturate is not None  # noqa: S101
        sessions = agent.config.sessions
        await self._clock.sleep(agent.config.ramp_s)
        while agent.alive and not self._closing and sessions < saturate.max_sessions:
            counted = agent.census()
            short = counted is not None and counted["waiting"] + counted["connecting"] < saturate.waiting
            if short and agent.group not in self._sated and not self._away():
                step = min(SATURATE_STEP, saturate.max_sessions - sessions)
                await agent.add_sessions(step)
                sessions += step
            await self._clock.sleep(SATURATE_EVERY_S)

    async def _end_arrivals(self, agent: Agent, lasts_s: float) -> None:
        await self._clock.sleep(lasts_s)
        await agent.drain()
