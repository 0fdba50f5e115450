"""Fires a wave: one fault against many sessions at once.

The order matters. The census is taken immediately before the fault, because it decides whether the run meant anything:
only requests that still wait for their first token make the engine send an abort to the other side (sglang#27372).
The wave counts as landed only after the kernel shows that the connections are gone.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.faults.census import tell_census
from chaos.engine.faults.life import Fault, Measured, NotApplied
from chaos.engine.faults.sockets import connections_of, still_established
from chaos.engine.faults.spread import RouterWatch
from chaos.engine.load.census import OPEN_PHASES
from chaos.model import events as ev

if TYPE_CHECKING:
    from chaos.engine.load import messages as msg
    from chaos.engine.load.agent import Agent
    from chaos.engine.load.process import Killed
    from chaos.model.faults import Kill

AT_ONCE = ("sigkill", "rst", "fin", "cancel")
"""Ways of ending sessions all at the same moment; clients that lose patience do so one by one."""
SOCKETS_GONE_S = 5.0
"""The kernel closes 1000 sockets in about 10 ms; a machine that starves needs longer."""


class ClientFault(Fault):
    """A fault of our own clients: sessions of one group."""

    @property
    def kill(self) -> Kill:
        """What the step says."""
        assert self.step.kill is not None  # noqa: S101 - the registry sees to it
        return self.step.kill

    @property
    def group(self) -> str:
        """The group whose sessions it ends."""
        return self.kill.group

    @property
    def plan(self) -> dict[str, str]:
        """How, and whose."""
        return {"how": self.kill.how, "group": self.kill.group}

    async def order(self, agent: Agent) -> msg.Wave:
        """Have the agent carry it out; the census of that moment is journaled."""
        self.kit.fleet.sate(self.group)
        deadline_s = self.kill.deadline or 0.0
        try:
            done = await agent.wave(self.step.id, self.kill.how, self.kill.sessions, deadline_s=deadline_s)
        except TimeoutError:
            raise NotApplied("the agent did not answer the order") from None
        tell_census(self.step, self.kit, done.phases, done.ordered)
        return done

    def shot(self, done: msg.Wave) -> ev.WaveFired:
        """What was hit and when."""
        return ev.WaveFired(
            t_ns=self.kit.clock.now_ns(),
            wave=self.step.id,
            how=self.kill.how,
            ordered_ns=done.ordered,
            first_ns=done.first,
            last_ns=done.last,
            sessions=done.sessions,
            sockets=done.sockets,
            fin=done.fin,
            rst=done.rst,
        )


class Wave(ClientFault):
    """Ends sessions of a group: the whole client process, or chosen connections from inside it, at once or in time."""

    _held: frozenset[str] | None = None
    _killed: Killed | None = None

    async def apply(self) -> Measured:
        """Fire; the census and the shot are journaled."""
        agent = self.kit.fleet.agent(self.group)
        self._held = await connections_of(agent.host, agent.pid, unix=bool(agent.config.unix_socket))
        if self._held is not None:
            self._held -= agent.own_sockets
        watch = await RouterWatch.begin(self.kit, agent) if self.kill.how in AT_ONCE else RouterWatch()
        try:
            shot = await (self._sigkill(agent) if self.kill.how == "sigkill" else self._from_inside(agent))
        finally:
            seen = await watch.end()
        self.kit.emit(
            msgspec.structs.replace(
                shot,
                t_ns=self.kit.clock.now_ns(),
                router_watched=seen.watched,
                router_closed=seen.closed,
                router_first_ns=seen.since(shot.ordered_ns),
                router_last_ns=seen.last_ns,
                router_unknown=seen.unknown if self.kill.how in AT_ONCE else "",
            )
        )
        return Measured(
            ok=shot.sockets > 0,
            facts={"sessions": str(shot.sessions), "connections": str(shot.sockets)},
            detail="" if shot.sockets else "no connection was open",
        )

    async def verify(self) -> Measured:
        """Measure that the connections that the process held are gone: all of them, or as many as were ordered."""
        agent = self.kit.fleet.agent(self.group)
        held, left, wanted_left = await self._counted(agent)
        facts = {
            "connections": "unknown" if held is None else str(held),
            "still_established": "unknown" if left is None else str(left),
        }
        ok = left is not None and left <= wanted_left
        if self.kill.how == "sigkill":
            facts["exit_status"] = str(agent.returncode)
            ok = ok and agent.returncode == -signal.SIGKILL
        return Measured(ok, facts)

    async def _counted(self, agent: Agent) -> tuple[int | None, int | None, int]:
        """The connections that the process held, what is left of them, and how many should be."""
        killed, held, clock = self._killed, self._held, self.kit.clock
        if killed is not None and killed.connections is not None:
            return killed.connections, killed.left, 0  # in one go with the killing, on its host
        wanted_left = 0
        if held is not None and isinstance(self.kill.sessions, int) and self.kill.how != "sigkill":
            wanted_left = max(len(held) - self.kill.sessions, 0)
        deadline = clock.now_ns() + int(SOCKETS_GONE_S * 1e9)
        left = await still_established(agent.host, held) if held else None
        while left is not None and left > wanted_left and clock.now_ns() < deadline:
            await clock.sleep(0.02)
            left = await still_established(agent.host, held or frozenset())
        return None if held is None else len(held), left, wanted_left

    # ------------------------------------------------------------------------------------ the shots

    async def _sigkill(self, agent: Agent) -> ev.WaveFired:
        clock = self.kit.clock
        killed = await agent.sigkill()
        if killed is None:
            raise NotApplied("the client process had ended, or its host cannot be reached")
        self._killed, counted = killed, killed.phases
        tell_census(self.step, self.kit, counted, killed.ordered_ns)
        try:
            async with asyncio.timeout(SOCKETS_GONE_S):
                await agent.ended()
        except TimeoutError:
            why = f"process {agent.pid} survived SIGKILL for {SOCKETS_GONE_S:g} s"
            raise NotApplied(why) from None
        return ev.WaveFired(
            t_ns=clock.now_ns(),
            wave=self.step.id,
            how="sigkill",
            ordered_ns=killed.ordered_ns,
            first_ns=killed.killed_ns,
            last_ns=killed.gone_ns or clock.now_ns(),
            sessions=sum(counted.values()) - counted["done"] if counted else 0,
            sockets=sum(counted[phase] for phase in OPEN_PHASES) if counted else 0,
        )

    async def _from_inside(self, agent: Agent) -> ev.WaveFired:
        return self.shot(await self.order(agent))
