"""Waits for each step's trigger and fires it.

Triggers: `at` (since load began), `when` (census and gauges, once the group has arrived), `after` another step.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chaos.engine.faults import waves
from chaos.engine.load.census import PHASES
from chaos.model import events as ev
from chaos.model.units import bounds

if TYPE_CHECKING:
    from chaos.engine.faults.waves import WaveKit
    from chaos.model.scenario import Step

POLL_S = 0.05
"""The census is a 1 kB read; a phase that lasts shorter than this cannot be aimed at from outside."""


class Timeline:
    """The steps of one cycle."""

    def __init__(self, steps: list[Step], kit: WaveKit) -> None:
        self._steps = steps
        self._kit = kit
        self._fired: dict[str, asyncio.Event] = {step.id: asyncio.Event() for step in steps}

    async def play(self) -> bool:
        """Play all steps; True when every one of them was fired (which is not yet landed)."""
        started_ns = self._kit.clock.now_ns()
        for step in self._steps:
            self._kit.emit(
                ev.FaultStep(
                    t_ns=self._kit.clock.now_ns(),
                    fault=step.id,
                    kind="kill",
                    stage="planned",
                    ok=True,
                    measured={"how": step.kill.how, "group": step.kill.group},
                )
            )
        async with asyncio.TaskGroup() as tasks:
            played = [tasks.create_task(self._play(step, started_ns)) for step in self._steps]
        return all(task.result() for task in played)

    async def _play(self, step: Step, started_ns: int) -> bool:
        if step.after is not None:
            await self._fired[step.after].wait()
            started_ns = self._kit.clock.now_ns()
        if step.at is not None:
            await self._kit.clock.sleep(step.at - (self._kit.clock.now_ns() - started_ns) / 1e9)
        missed = ""
        if step.when:
            await self._kit.fleet.arrived(step.kill.group)
            missed = await self._until(step, bounds(step.when))
        if missed:
            waves.gave_up(step, missed, self._kit)
        else:
            await waves.fire(step, self._kit)
            self._kit.probes.mark()
        self._fired[step.id].set()
        return not missed

    async def _until(self, step: Step, wanted: tuple[ev.Bound, ...]) -> str:
        """Wait for the step's condition; the empty string once it holds, else what was last seen."""
        deadline = self._kit.clock.now_ns() + int(step.give_up * 1e9)
        while True:
            seen = {bound.name: self._value(step, bound.name) for bound in wanted}
            if all(got is not None and bound.met_by(got) for bound in wanted for got in (seen[bound.name],)):
                return ""
            if self._kit.clock.now_ns() >= deadline:
                last = ", ".join(
                    f"{bound.name} was {_shown(seen[bound.name])}, wanted {bound.op} {bound.value:g}"
                    for bound in wanted
                )
                return f"gave up after {step.give_up:g} s: {last}"
            await self._kit.clock.sleep(POLL_S)

    def _value(self, step: Step, name: str) -> float | None:
        if name in PHASES:
            counted = self._kit.fleet.census(step.kill.group)
            return None if counted is None else float(counted[name])
        values = [reading.value for reading in self._kit.probes.readings() if reading.name == name]
        return sum(values) if values else None


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"
