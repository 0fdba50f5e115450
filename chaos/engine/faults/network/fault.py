"""A network fault from its plan to its end: guarded on the host before it is made, measured from both ends.

What is planned is checked by the host's own kernel first. The guard on the host undoes it when its time is over or we
are gone, so it goes the same way when we undo it: we have the guard do it, and measure.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chaos.engine.faults.guard import STANDING_TTL_S, TTL_MARGIN_S, Guard, NotArmed
from chaos.engine.faults.life import Measured, NodeFault, NotApplied
from chaos.engine.faults.network.cut import PartitionKind, PortBlockKind
from chaos.engine.faults.network.degraded import DelayKind, LossKind, RateKind
from chaos.engine.faults.network.ends import End, address_of, ends, is_here, peers_of, sharing
from chaos.engine.faults.network.kinds import Counted, Kind
from chaos.engine.faults.network.line import Line
from chaos.engine.hosts import HostLost, HostTrouble
from chaos.model.network import Delay, Loss, Partition, PortBlock, RateLimit

if TYPE_CHECKING:
    from chaos.engine.faults.kit import FaultKit
    from chaos.engine.faults.network.kinds import Told
    from chaos.model.actions import NetworkAction
    from chaos.model.scenario import Step
    from chaos.model.section import Section

KINDS: dict[type[Section], type[Kind[Any]]] = {
    Partition: PartitionKind,
    PortBlock: PortBlockKind,
    Loss: LossKind,
    RateLimit: RateKind,
    Delay: DelayKind,
}
ASK_S = 30.0
"""A plan is a dozen commands; a host that starves takes its time for them."""
BACK_S = 10.0
"""A host may have learnt to send elsewhere meanwhile, or still wait before it tries again."""
POLL_S = 0.5
MOST_LINES = 8
"""Of more pairs than this the first are measured; what was measured of a host holds for its rules."""


@dataclass(slots=True)
class _Made:
    """What is made on one host."""

    end: End
    plan: dict[str, Any]
    guard: Guard | None = None

    async def counted(self) -> Counted:
        """What its rules met so far. HostTrouble when they are gone."""
        return Counted(await self.end.host.call("net.counters", timeout_s=ASK_S, **self.plan["watch"]))


class NetworkFault(NodeFault):
    """One of the kinds, between the chosen nodes and their peers."""

    def __init__(self, step: Step, kit: FaultKit, *, cycle: int = 1) -> None:
        super().__init__(step, kit, cycle=cycle)
        self._number = next(kit.numbers)
        self._peers = peers_of(self.network, self.chosen, kit.servers, turn=kit.seed - 1 + cycle - 1)
        self._kind: Kind[Any] = KINDS[type(self.network)](self.network)  # type: ignore[call-arg]
        self._made: list[_Made] = []
        self._lines: list[Line] = []
        self._before: list[Any] = []

    @property
    def network(self) -> NetworkAction:
        """What the step says."""
        action = self.step.action
        assert isinstance(action, Partition | PortBlock | Loss | RateLimit | Delay)  # noqa: S101 - the registry
        return action

    @property
    def plan(self) -> dict[str, str]:
        """What it means to do, and what else is hit by it."""
        near, far = self._sides()
        return {**super().plan, "between": f"{', '.join(near)} and {', '.join(far)}"}

    @property
    def cut_off(self) -> tuple[str, ...]:
        """Nodes that the others cannot reach as before; none by what only makes it worse."""
        return self._sides()[0] if isinstance(self.network, Partition | PortBlock) else ()

    @property
    def cut_from(self) -> tuple[str, ...]:
        """The others."""
        return self._sides()[1] if isinstance(self.network, Partition | PortBlock) else ()

    @property
    def reversal(self) -> str:
        """It is taken back where it was made."""
        return "taken back"

    @property
    def ttl_s(self) -> float | None:
        """When the guard takes it back, whatever became of us."""
        return STANDING_TTL_S if self.lasts_s is None else self.lasts_s + TTL_MARGIN_S

    # ------------------------------------------------------------------------------------ stages

    async def apply(self) -> Measured:
        """Have it planned and checked on every host, measure, arm every guard, and only then make it."""
        if not self._peers:
            raise NotApplied("there are no peers")
        try:
            await self._prepare()
            self._before = await self._look(there=False)
            await self._arm()
        except HostTrouble as why:
            raise NotApplied(why.text) from None
        except HostLost:
            raise NotApplied("a host did not answer, so nothing was touched") from None
        self.stands = True
        for made in self._made:
            try:
                await made.end.host.call("net.carry_out", timeout_s=ASK_S, steps=made.plan["steps"])
            except HostTrouble as why:
                if await self._released():
                    self.stands = False
                raise NotApplied(f"{why.text}, so it was taken back") from None
        return Measured(ok=True, facts={made.end.name: "made, under guard" for made in self._made})

    async def verify(self) -> Measured:
        """Measure from both ends, and have the rules say what they met."""
        now = await self._look(there=True)
        counted = {id(made.end): await made.counted() for made in self._made}
        told = [
            self._kind.shown(before, after, counted[id(self._end_of(line))])
            for line, before, after in zip(self._lines, self._before, now, strict=True)
        ]
        return self._measured(told)

    async def still(self) -> Measured:
        """Whether the rules have been there up to now."""
        for made in self._made:
            try:
                await made.counted()
            except HostTrouble:
                return Measured(ok=False, detail=f"somebody else took it away on the host of {made.end.name}")
        return Measured(ok=True)

    async def revert(self) -> Measured:
        """Have the guards take it back."""
        facts = {}
        for made in self._made:
            with suppress(HostTrouble, HostLost):
                facts[made.end.name] = f"met while it stood: {(await made.counted()).told}"
        failed = await self._release()
        return Measured(not failed, facts or {"order": "taken back"}, "; ".join(failed))

    async def verify_reverted(self) -> Measured:
        """The rules are gone, and all passes that passed before."""
        for made in self._made:
            try:
                await made.counted()
            except HostTrouble as gone:
                if gone.kind == "gone":
                    continue
                raise
            return Measured(ok=False, detail=f"it is still there on the host of {made.end.name}")
        deadline = self.kit.clock.now_ns() + int(BACK_S * 1e9)
        while True:
            now = await self._look(there=False)
            told = [self._kind.cleared(before, after) for before, after in zip(self._before, now, strict=True)]
            if all(one.ok for one in told) or self.kit.clock.now_ns() >= deadline:
                return self._measured(told)
            await self.kit.clock.sleep(POLL_S)

    # ------------------------------------------------------------------------------------ inside

    async def _prepare(self) -> None:
        """Plan it on every host, and lay out which lines are measured. Raises HostTrouble, HostLost."""
        hosts = self.kit.hosts
        ssh = await asyncio.gather(*(host.call("net.ssh", timeout_s=ASK_S) for host in hosts.all))
        keep = sorted({int(came["port"]) for came in ssh if came})
        there = {peer.id: await is_here(hosts.at(peer.id), peer) for peer in self._peers}
        for end in ends(self.chosen, self._peers, hosts):
            order = {**self._kind.order(end.near), "ssh_ports": keep, "over_ssh": end.host.remote}
            plan = await end.host.call(
                "net.plan",
                timeout_s=ASK_S,
                run=self.kit.run_id,
                number=self._number,
                near=[address_of(server) for server in end.near],
                far=[address_of(server) for server in end.far],
                **order,
            )
            self._made.append(_Made(end, plan))
            self._lines += [
                Line(near, far, end.host, hosts.at(far.id) if there[far.id] else None)
                for near in end.near
                for far in end.far
            ]
        del self._lines[MOST_LINES:]

    async def _arm(self) -> None:
        """A guard on every host before anything is made on any. Raises NotApplied."""
        assert self.ttl_s is not None  # noqa: S101 - for the type checker
        for made in self._made:
            try:
                made.guard = await Guard.arm(
                    made.end.host,
                    run=self.kit.run_id,
                    fault=self.step.id,
                    ttl_s=self.ttl_s,
                    undo=made.plan["undo"],
                )
            except NotArmed as unarmed:
                await self._released()
                raise NotApplied(f"{unarmed}, so nothing was touched") from None

    async def _look(self, *, there: bool) -> list[Any]:
        """Measure every line. Raises HostTrouble, HostLost."""

        async def look(line: Line) -> Any:
            async with line.listening():
                return await self._kind.look(line, there=there)

        if self._kind.one_by_one:
            return [await look(line) for line in self._lines]
        return list(await asyncio.gather(*map(look, self._lines)))

    async def _release(self) -> list[str]:
        """Have every guard take back what it guards, whatever becomes of the others; what failed. Raises HostLost."""
        told = await asyncio.gather(
            *(made.guard.release() for made in self._made if made.guard is not None), return_exceptions=True
        )
        failed: list[str] = []
        for one in told:
            if isinstance(one, HostTrouble):
                failed.append(one.text)
            elif isinstance(one, BaseException):
                raise one
            else:
                failed += [f"{step.done}: {step.said}" for step in one or () if not step.ok]
        return failed

    async def _released(self) -> bool:
        """Whether everything was taken back for certain."""
        try:
            return not await self._release()
        except HostLost:
            return False

    def _sides(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Everybody on both sides: a host is known by its address, so whatever else is on it shares its fate."""
        servers, hosts = self.kit.servers, self.kit.hosts
        near = self.chosen if isinstance(self.network, PortBlock) else sharing(self.chosen, servers, hosts)
        far = sharing(self._peers, servers, hosts)
        return tuple(server.id for server in near), tuple(server.id for server in far)

    def _end_of(self, line: Line) -> End:
        return next(made.end for made in self._made if line.near in made.end.near)

    def _measured(self, told: list[Told]) -> Measured:
        facts = {line.name: one.text for line, one in zip(self._lines, told, strict=True)}
        wrong = [f"{line.name}: {one.why}" for line, one in zip(self._lines, told, strict=True) if not one.ok]
        return Measured(not wrong and bool(told), facts, "; ".join(wrong))
