"""Signals to the processes of nodes: a freeze (STOP, later CONT), a death (KILL), a shutdown (TERM).

STOP, CONT and KILL go to every process of a node, as when its container is paused or killed; TERM goes to the main
one, as from a supervisor, and its children are its business. `child` narrows any of them to children by name.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import TYPE_CHECKING

from chaos.engine.faults.guard import Guard, NotArmed
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
    from chaos.engine.faults.processes import Process
    from chaos.model.faults import Signal
    from chaos.model.scenario import Step
    from chaos.model.target import Server

EFFECT_S = 10.0
"""The kernel stops or kills a process within a millisecond, unless a thread sleeps where no signal reaches it."""
TERM_S = 60.0
"""An orderly shutdown drains requests first."""
POLL_S = 0.02
TTL_MARGIN_S = 15.0
STANDING_TTL_S = 3600.0
"""A stop without an end of its own outlives us by this much at most (the guard notices our death at once, too)."""


class SignalFault(NodeFault):
    """One signal to the chosen processes. A STOP is undone."""

    def __init__(self, step: Step, kit: FaultKit, *, cycle: int = 1) -> None:
        super().__init__(step, kit, cycle=cycle)
        self._hit: dict[str, tuple[Process, ...]] = {}  # by node
        self._guard: Guard | None = None

    @property
    def signal(self) -> Signal:
        """What the step says."""
        assert self.step.signal is not None  # noqa: S101 - the registry sees to it
        return self.step.signal

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that were chosen."""
        return tuple(process.pid for process in self._all())

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

    def _all(self) -> list[Process]:
        return [process for processes in self._hit.values() for process in processes]

    async def apply(self) -> Measured:
        """Choose the processes, arm the guard for a STOP, send."""
        self._hit = {server.id: await asyncio.to_thread(self._chosen, server) for server in self.chosen}
        if self.ttl_s is not None:
            try:
                self._guard = await Guard.arm(self._all(), self.ttl_s)
            except NotArmed as unarmed:
                raise NotApplied(f"{unarmed}, so nothing was stopped") from None
            self.stands = True
        refused = [why for process in self._all() if (why := send(process, self._number()))]
        facts = {node: f"{self.signal.send} to {_listed(processes)}" for node, processes in self._hit.items()}
        return Measured(not refused, facts, "; ".join(refused))

    async def verify(self) -> Measured:
        """Every thread is in state T; or every process is gone; or none is in state T."""
        match self.signal.send:
            case "STOP":
                return await self._measured(is_stopped, "stopped", EFFECT_S)
            case "CONT":
                return await self._measured(lambda process: not is_held(process), "running", EFFECT_S)
            case "KILL":
                return await self._measured(is_gone, "gone", EFFECT_S)
            case "TERM":
                return await self._measured(is_gone, "gone", TERM_S)

    async def still(self) -> Measured:
        """Whether everything that lives has been stopped up to now."""
        awake = [process for process in self._all() if not is_gone(process) and not is_stopped(process)]
        if not awake:
            return Measured(ok=True)
        detail = f"somebody else continued process {awake[0].pid} before we did"
        return Measured(ok=False, facts=self._facts(is_stopped, "stopped"), detail=detail)

    async def revert(self) -> Measured:
        """CONT to all that we stopped."""
        failed = [why for process in self._all() if not is_gone(process) and (why := send(process, signal.SIGCONT))]
        return Measured(not failed, {"signal": f"CONT to {_listed(self._all())}"}, "; ".join(failed))

    async def verify_reverted(self) -> Measured:
        """No thread is in state T; then the guard may go."""
        measured = await self._measured(lambda process: not is_held(process), "not stopped", EFFECT_S)
        if measured.ok and self._guard is not None:
            await self._guard.disarm()
        return measured

    # ------------------------------------------------------------------------------------ inside

    def _number(self) -> int:
        return int(signal.Signals[f"SIG{self.signal.send}"])

    def _chosen(self, server: Server) -> tuple[Process, ...]:
        try:
            processes = processes_of(server.spec)
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

    async def _measured(self, holds: Callable[[Process], bool], word: str, at_most_s: float) -> Measured:
        clock = self.kit.clock
        deadline = clock.now_ns() + int(at_most_s * 1e9)
        while not all(map(holds, self._all())) and clock.now_ns() < deadline:
            await clock.sleep(POLL_S)
        left = [process.pid for process in self._all() if not holds(process)]
        detail = f"process {', '.join(map(str, left))} is not {word} after {at_most_s:g} s" if left else ""
        return Measured(not left and bool(self._hit), self._facts(holds, word), detail)

    def _facts(self, holds: Callable[[Process], bool], word: str) -> dict[str, str]:
        facts = {}
        for node, processes in self._hit.items():
            states: Counter[str] = Counter()
            for process in processes:
                states.update(thread_states(process) or {"gone": 1})
            shown = ", ".join(f"{n} x {state}" for state, n in sorted(states.items()))
            facts[node] = f"{sum(map(holds, processes))} of {len(processes)} processes {word} (threads: {shown})"
        return facts


def _listed(processes: tuple[Process, ...] | list[Process]) -> str:
    return "pid " + ", ".join(str(process.pid) for process in processes)
