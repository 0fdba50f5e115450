"""The life of every fault: planned, applied, verified, reverted, revert-verified; each stage is an event.

Verified means measured, not assumed. A fault is an async context manager: entering applies and verifies it, leaving
undoes it, whatever the way out. Nothing here raises for a fault that failed: the events say so, and the judge reads
them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from chaos.engine.cleaning import Doubt
from chaos.engine.faults.census import tell_census
from chaos.engine.faults.select import choose
from chaos.engine.hosts import HostLost, HostTrouble
from chaos.model import events as ev
from chaos.model.faults import Kill, Poison, Sham

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine
    from types import TracebackType

    from chaos.engine.faults.kit import FaultKit
    from chaos.model.actions import NodeAction
    from chaos.model.scenario import Step
    from chaos.model.target import Server


class NotApplied(Exception):
    """The fault could not be applied; the text says why."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one stage. `ok` without facts is no proof, so there is always at least one."""

    ok: bool
    facts: dict[str, str] = field(default_factory=dict)
    detail: str = ""
    lost: bool = False  # nobody answered


class Fault(ABC):
    """One fault of one cycle."""

    def __init__(self, step: Step, kit: FaultKit, *, cycle: int = 1) -> None:
        self.step = step
        self.kit = kit
        self.cycle = cycle
        self.lasts_s = None if step.lasts is None else step.lasts * kit.time_scale
        self.stands = False  # applied, and not undone
        self._there_ns = 0

    # ------------------------------------------------------------------------------------ what a kind says of itself

    @property
    def group(self) -> str | None:
        """The group whose sessions it hits; None where it does not hit clients."""
        return None

    @property
    def plan(self) -> dict[str, str]:
        """What it means to do."""
        return {"what": self.step.action.told}

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes whose processes it acts on."""
        return ()

    @property
    def pids(self) -> tuple[int, ...]:
        """Those processes."""
        return ()

    @property
    def cut_off(self) -> tuple[str, ...]:
        """Nodes that it leaves no way, or not the one that they need, to `cut_from`."""
        return ()

    @property
    def cut_from(self) -> tuple[str, ...]:
        """The other side."""
        return ()

    @property
    def ends(self) -> bool:
        """Whether it ends processes of nodes on purpose."""
        return False

    @property
    def reversal(self) -> str:
        """What undoes it."""
        return "none"

    @property
    def ttl_s(self) -> float | None:
        """After how long it ends on the host by itself, should we be gone."""
        return None

    @abstractmethod
    async def apply(self) -> Measured:
        """Break it. Raises NotApplied when nothing was touched."""

    @abstractmethod
    async def verify(self) -> Measured:
        """Measure that it took effect."""

    async def still(self) -> Measured:
        """Measure that it has lasted until now, right before it is undone."""
        return Measured(ok=True)

    async def revert(self) -> Measured:
        """Undo it; this is awaited to its end, whatever becomes of whoever asked for it."""
        raise NotImplementedError

    async def verify_reverted(self) -> Measured:
        """Measure that nothing of it is left."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------ the life

    def planned(self) -> None:
        """Journal that it is meant to happen."""
        self._tell("planned", Measured(ok=True, facts=self.plan))

    def gave_up(self, why: str) -> None:
        """Journal that its trigger never came: nothing was broken, nothing was learnt."""
        self._tell("applied", Measured(ok=False, detail=why))

    async def __aenter__(self) -> Self:
        """Apply and verify."""
        try:
            await self.inject()
        except BaseException:
            await self.undo()  # a Ctrl-C between the two
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Undo what still stands."""
        await self.undo()

    async def inject(self) -> None:
        """Apply, then verify by measurement."""
        try:
            applied = await or_lost(self.apply())
        except NotApplied as why:
            self._tell("applied", Measured(ok=False, detail=str(why)))
            return
        self._tell("applied", applied)
        self._tell("verified", await or_lost(self.verify()))
        self._there_ns = self.kit.clock.now_ns()

    async def hold(self) -> None:
        """Wait for as long as the step says, from the moment it was measured to be there (a restart takes a while)."""
        if self.stands and self.lasts_s is not None:
            passed_s = (self.kit.clock.now_ns() - self._there_ns) / 1e9
            await self.kit.clock.sleep(max(self.lasts_s - passed_s, 0.0))

    async def undo(self) -> None:
        """Undo it and verify that; does nothing when there is nothing to undo (any more)."""
        if not self.stands:
            return
        lasted = await or_lost(self.still())
        if not lasted.ok:
            self._tell("verified", lasted)
        self.stands = False
        await to_its_end(self._revert())
        clean = await or_lost(self.verify_reverted())
        self._tell("revert-verified", clean)
        if clean.lost:
            self.kit.doubts.append(Doubt(self.step.id, self.nodes, self.ttl_s))
        elif not clean.ok:
            self.kit.leftovers.append(f"{self.step.id}: {clean.detail}")

    async def _revert(self) -> None:
        self._tell("reverted", await or_lost(self.revert()))

    def _tell(self, stage: ev.Stage, measured: Measured) -> None:
        self.kit.emit(
            ev.FaultStep(
                t_ns=self.kit.clock.now_ns(),
                fault=self.step.id,
                kind=self.step.action.kind,
                stage=stage,
                ok=measured.ok,
                measured=measured.facts,
                detail=measured.detail,
                ttl_s=self.ttl_s,
                reversal=self.reversal,
                nodes=self.nodes,
                pids=self.pids,
                ends=self.ends,
                cut_off=self.cut_off,
                cut_from=self.cut_from,
            )
        )


async def or_lost(stage: Awaitable[Measured]) -> Measured:
    """What a stage measured; where a host refused, or did not answer, nobody knows, and that is told."""
    try:
        return await stage
    except HostTrouble as why:
        return Measured(ok=False, detail=why.text)
    except HostLost as lost:
        return Measured(ok=False, detail=f"nobody knows: {lost}", lost=True)


async def to_its_end(work: Coroutine[None, None, None]) -> None:
    """Await it to its end; a cancellation that came meanwhile is passed on then."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


class NodeFault(Fault):
    """A fault that acts on nodes. The census of all sessions is taken just before."""

    def __init__(self, step: Step, kit: FaultKit, *, cycle: int = 1) -> None:
        super().__init__(step, kit, cycle=cycle)
        self.chosen: tuple[Server, ...] = choose(self.action.where, kit.servers, turn=kit.seed - 1 + cycle - 1)

    @property
    def action(self) -> NodeAction:
        """What the step does to nodes."""
        action = self.step.action
        assert not isinstance(action, Kill | Poison | Sham)  # noqa: S101 - the registry sees to it
        return action

    @property
    def nodes(self) -> tuple[str, ...]:
        """The chosen ones."""
        return tuple(server.id for server in self.chosen)

    async def inject(self) -> None:
        """Count who is in which phase, then apply and verify."""
        tell_census(self.step, self.kit, self.kit.fleet.census(), self.kit.clock.now_ns())
        await super().inject()
