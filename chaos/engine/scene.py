"""What the acts of a run share: what it plays with, what it knows, where it is, and how it watches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.judge import recovery
from chaos.model import events as ev

if TYPE_CHECKING:
    from chaos.engine.bus import Bus
    from chaos.engine.faults.kit import FaultKit
    from chaos.engine.forensics import Forensics
    from chaos.engine.seen import Seen
    from chaos.engine.setup import RunSetup
    from chaos.engine.stopping import Stopping
    from chaos.judge import Recovery

POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A run whose target was found, and whose probes look."""

    setup: RunSetup
    bus: Bus
    seen: Seen
    kit: FaultKit
    forensics: Forensics
    stopping: Stopping

    @property
    def plan(self) -> ev.Plan:
        """The plan, with all durations scaled."""
        return self.setup.plan

    def enter(self, phase: ev.Phase, reason: str = "") -> None:
        """Say that the run moved on."""
        self.bus.emit(ev.PhaseEntered(t_ns=self.now_ns(), phase=phase, reason=reason))

    def now_ns(self) -> int:
        """Now, on the run's clock."""
        return self.setup.clock.now_ns()

    def since(self, then_ns: int) -> float:
        """Seconds from then to now."""
        return (self.now_ns() - then_ns) / 1e9

    async def sleep(self, seconds: float) -> None:
        """Sleep on the run's clock."""
        await self.setup.clock.sleep(seconds)

    def recovery(self) -> Recovery:
        """How the paths fare by now, by the judge's own rule."""
        return recovery(self.seen.facts, self.now_ns())

    async def watch(self) -> bool:
        """Watch until every path has recovered by the judge's rule, or the engine's own timeouts have gone by.

        Behind a fault that may still stand, nothing recovers that could be judged.
        """
        started_ns = self.now_ns()
        await self.sleep(self.plan.settle_s)
        while not self.recovery().recovered:
            if self.kit.leftovers or self.kit.doubts or self.since(started_ns) > self.plan.watch_s:
                return False
            await self.sleep(POLL_S)
        return True
