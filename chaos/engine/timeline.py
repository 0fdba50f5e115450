"""Waits for each step's trigger and plays its fault: applied, held for as long as it says, undone.

Triggers: `at` (since load began), `when` (census and gauges, once the group has arrived), `after` another step.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chaos.engine.faults.registry import prepare
from chaos.engine.load.census import PHASES
from chaos.model.units import bounds

if TYPE_CHECKING:
    from chaos.engine.faults.kit import FaultKit
    from chaos.engine.faults.life import Fault
    from chaos.model import events as ev
    from chaos.model.scenario import Step

POLL_S = 0.05
"""The census is a 1 kB read; a phase that lasts shorter than this cannot be aimed at from outside."""


class Timeline:
    """The steps of one cycle."""

    def __init__(self, steps: list[Step], kit: FaultKit, *, cycle: int = 1) -> None:
        self._kit = kit
        self._faults = [prepare(step, kit, cycle=cycle) for step in steps]
        self._fired: dict[str, asyncio.Event] = {step.id: asyncio.Event() for step in steps}

    async def play(self) -> bool:
        """Play all steps; True when every one of them was fired (which is not yet landed).

        What a step undoes after a time is undone when this returns; what stands longer is left to `FaultKit.standing`.
        """
        started_ns = self._kit.clock.now_ns()
        for fault in self._faults:
            fault.planned()
        async with asyncio.TaskGroup() as tasks:
            played = [tasks.create_task(self._play(fault, started_ns)) for fault in self._faults]
        return all(task.result() for task in played)

    async def _play(self, fault: Fault, started_ns: int) -> bool:
        step = fault.step
        if step.after is not None:
            await self._fired[step.after].wait()
            started_ns = self._kit.clock.now_ns()
        if step.at is not None:
            await self._kit.clock.sleep(step.at - (self._kit.clock.now_ns() - started_ns) / 1e9)
        missed = ""
        if step.when:
            await self._kit.fleet.arrived(fault.group)
            missed = await self._until(fault, bounds(step.when))
        if missed:
            fault.gave_up(missed)
            self._fired[step.id].set()
            return False
        await self._kit.standing.enter_async_context(fault)
        self._kit.probes.mark()
        self._fired[step.id].set()
        if fault.lasts_s is not None:
            try:
                await fault.hold()
            finally:
                await fault.undo()
            self._kit.probes.mark()
        return True

    async def _until(self, fault: Fault, wanted: tuple[ev.Bound, ...]) -> str:
        """Wait for the step's condition; the empty string once it holds, else what was last seen."""
        give_up_s = fault.step.give_up
        deadline = self._kit.clock.now_ns() + int(give_up_s * 1e9)
        while True:
            seen = {bound.name: self._value(fault, bound.name) for bound in wanted}
            if all(got is not None and bound.met_by(got) for bound in wanted for got in (seen[bound.name],)):
                return ""
            if self._kit.clock.now_ns() >= deadline:
                last = ", ".join(
                    f"{bound.name} was {_shown(seen[bound.name])}, wanted {bound.op} {bound.value:g}"
                    for bound in wanted
                )
                return f"gave up after {give_up_s:g} s: {last}"
            await self._kit.clock.sleep(POLL_S)

    def _value(self, fault: Fault, name: str) -> float | None:
        if name in PHASES:
            counted = self._kit.fleet.census(fault.group)
            return None if counted is None else float(counted[name])
        values = [reading.value for reading in self._kit.probes.readings() if reading.name == name]
        return sum(values) if values else None


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"
