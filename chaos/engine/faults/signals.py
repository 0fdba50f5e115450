"""Signals to the processes of nodes: a freeze (STOP, later CONT), a death (KILL), a shutdown (TERM).

STOP, CONT and KILL go to every process of a node, as when its container is paused or killed; TERM goes to the main
one, as from a supervisor, and its children are its business. `child` narrows any of them to children by name.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from chaos.engine.faults.guard import STANDING_TTL_S, TTL_MARGIN_S, Guards, NotArmed
from chaos.engine.faults.life import Measured, NodeFault, NotApplied
from chaos.engine.faults.processes import (
    NoSuchRank,
    called,
    is_gone,
    is_held,
    is_stopped,
    processes_of,
    rank_of,
    send,
    thread_states,
)
from chaos.engine.probes.locate import NotLocated

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.engine.faults.kit import FaultKit
    from chaos.engine.faults.processes import Process, States
    from chaos.engine.hosts import Host
    from chaos.model.faults import Signal
    from chaos.model.scenario import Step
    from chaos.model.target import Server

EFFECT_S = 10.0
"""The kernel stops or kills a process within a millisecond, unless a thread sleeps where no signal reaches it."""
TERM_S = 60.0
"""An orderly shutdown drains requests first."""
POLL_S = 0.02


class SignalFault(NodeFault):
    """One signal to the chosen processes. A STOP is undone."""

    def __init__(self, step: Step, kit: FaultKit, *, cycle: int = 1) -> None:
        super().__init__(step, kit, cycle=cycle)
        self._hit: dict[str, tuple[Process, ...]] = {}  # by node
        self._guards = Guards()

    @property
    def signal(self) -> Signal:
        """What the step says."""
        assert self.step.signal is not None  # noqa: S101 - the registry sees to it
        return self.step.signal

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that were chosen."""
        return tuple(process.pid for processes in self._hit.values() for process in processes)

    @property
    def ends(self) -> bool:
        """KILL and TERM end processes on purpose."""
        return self.signal.send in ("KILL", "TERM")

    @property
    def reversal(self) -> str:
        """A STOP is undone by a CONT."""
        return "CONT" if self.signal.send == "STOP" else "none"

    @property
    def ttl_s(self) -> float | None:
        """When the guard continues what is stopped, whatever became of us."""
        if self.signal.send != "STOP":
            return None
        return STANDING_TTL_S if self.lasts_s is None else self.lasts_s + TTL_MARGIN_S

    async def apply(self) -> Measured:
        """Choose the processes, arm the guards for a STOP, send."""
        self._hit = {server.id: await self._chosen(server) for server in self.chosen}
        if self.ttl_s is not None:
            await self._arm(self.ttl_s)
            self.stands = True
        refused = await self._send(self.signal.send)
        facts = {node: f"{self.signal.send} to {_listed(processes)}" for node, processes in self._hit.items()}
        return Measured(not refused, facts, "; ".join(refused))

    async def verify(self) -> Measured:
        """Every thread is in state T; or every process is gone; or none is in state T."""
        match self.signal.send:
            case "STOP":
                return await self._measured(is_stopped, "stopped", EFFECT_S)
            case "CONT":
                return await self._measured(_runs, "running", EFFECT_S)
            case "KILL":
                return await self._measured(is_gone, "gone", EFFECT_S)
            case "TERM":
                return await self._measured(is_gone, "gone", TERM_S)

    async def still(self) -> Measured:
        """Whether everything that lives has been stopped up to now."""
        seen = await self._states()
        awake = [
            process.pid
            for processes in seen.values()
            for process, states in processes
            if not is_gone(states) and not is_stopped(states)
        ]
        if not awake:
            return Measured(ok=True)
        detail = f"process {awake[0]} went on before we continued it"
        return Measured(ok=False, facts=_facts(seen, is_stopped, "stopped"), detail=detail)

    async def revert(self) -> Measured:
        """CONT to all that we stopped; what has ended needs none."""
        failed = [why for why in await self._send("CONT") if not why.endswith("has ended")]
        everything = [process for processes in self._hit.values() for process in processes]
        return Measured(not failed, {"signal": f"CONT to {_listed(everything)}"}, "; ".join(failed))

    async def verify_reverted(self) -> Measured:
        """No thread is in state T; then the guards may go."""
        measured = await self._measured(_runs, "not stopped", EFFECT_S)
        if measured.ok:
            await self._guards.dismiss()
        return measured

    # ------------------------------------------------------------------------------------ inside

    async def _arm(self, ttl_s: float) -> None:
        """A guard on each host, before anything is stopped on any. Raises NotApplied."""
        undo = [
            (host, [{"cont": [process.named for node in nodes for process in self._hit[node]]}])
            for host, nodes in self._by_host()
        ]
        try:
            await self._guards.arm(undo, run=self.kit.run_id, fault=self.step.id, ttl_s=ttl_s)
        except NotArmed as unarmed:
            raise NotApplied(f"{unarmed}, so nothing was stopped") from None

    def _by_host(self) -> list[tuple[Host, list[str]]]:
        """The nodes that are hit, by the hosts that they are on."""
        found: dict[int, tuple[Host, list[str]]] = {}
        for node in self._hit:
            host = self.kit.hosts.at(node)
            found.setdefault(id(host), (host, []))[1].append(node)
        return list(found.values())

    async def _send(self, what: str) -> list[str]:
        """A signal to all of them, on all hosts at once; why any was not sent. Raises HostLost."""
        orders = [
            send(host, [process for node in nodes for process in self._hit[node]], what)
            for host, nodes in self._by_host()
        ]
        return [why for whys in await asyncio.gather(*orders) for why in whys if why]

    async def _states(self) -> dict[str, list[tuple[Process, States]]]:
        """By node, each process with the states of its threads. Raises HostLost."""
        asked = [thread_states(self.kit.hosts.at(node), processes) for node, processes in self._hit.items()]
        told = await asyncio.gather(*asked)
        return {
            node: list(zip(processes, states, strict=True))
            for (node, processes), states in zip(self._hit.items(), told, strict=True)
        }

    async def _chosen(self, server: Server) -> tuple[Process, ...]:
        try:
            processes = await processes_of(self.kit.hosts.at(server.id), server.spec)
        except NotLocated as why:
            raise NotApplied(f"{server.id}: {why}") from None
        where = self.signal.where
        if where.rank is not None:
            try:
                return (rank_of(processes, where.rank, self.kit.rank_process.get(server.id, "")),)
            except NoSuchRank as why:
                raise NotApplied(f"{server.id} {why}") from None
        child = where.child
        if child is None:
            return processes[:1] if self.signal.send == "TERM" else processes
        found = called(processes, child)
        if not found:
            there = ", ".join(sorted({process.name for process in processes[1:]})) or "none"
            raise NotApplied(f"{server.id} has no child that is called {child!r} (children: {there})")
        return found

    async def _measured(self, holds: Callable[[States], bool], word: str, at_most_s: float) -> Measured:
        clock = self.kit.clock
        deadline = clock.now_ns() + int(at_most_s * 1e9)
        while True:
            seen = await self._states()
            left = [process.pid for states in seen.values() for process, state in states if not holds(state)]
            if not left or clock.now_ns() >= deadline:
                break
            await clock.sleep(POLL_S)
        detail = f"process {', '.join(map(str, left))} is not {word} after {at_most_s:g} s" if left else ""
        return Measured(not left and bool(self._hit), _facts(seen, holds, word), detail)


def _runs(states: States) -> bool:
    return not is_held(states)


def _facts(seen: dict[str, list[tuple[Process, States]]], holds: Callable[[States], bool], word: str) -> dict[str, str]:
    facts = {}
    for node, processes in seen.items():
        counted: Counter[str] = Counter()
        for _, states in processes:
            counted.update(states or {"gone": 1})
        shown = ", ".join(f"{n} x {state}" for state, n in sorted(counted.items()))
        held = sum(holds(states) for _, states in processes)
        facts[node] = f"{held} of {len(processes)} processes {word} (threads: {shown})"
    return facts


def _listed(processes: tuple[Process, ...] | list[Process]) -> str:
    return "pid " + ", ".join(str(process.pid) for process in processes)
