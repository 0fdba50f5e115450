"""Nothing, in a fault's place: a control arm waits for the same moment, counts the same sessions, breaks nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.engine.faults.census import tell_census
from chaos.engine.faults.life import Fault, Measured

if TYPE_CHECKING:
    from chaos.model.faults import Sham


class ShamFault(Fault):
    """The moment of a fault without the fault; sessions that it would have killed leave by themselves."""

    _left = 0

    @property
    def sham(self) -> Sham:
        """What the step says."""
        assert self.step.sham is not None  # noqa: S101 - the registry sees to it
        return self.step.sham

    @property
    def group(self) -> str | None:
        """The group that leaves."""
        return self.sham.group

    async def apply(self) -> Measured:
        """Take the census; have the group end its requests, which takes as long as they take."""
        fleet, clock = self.kit.fleet, self.kit.clock
        tell_census(self.step, self.kit, fleet.census(self.group), clock.now_ns())
        if self.group is None:
            return Measured(ok=True, facts={"done": "nothing"})
        self._left = await fleet.leave(self.group)
        why = f"{self._left} requests did not end in their own time" if self._left else ""
        return Measured(ok=not self._left, facts={"open_requests": str(self._left)}, detail=why)

    async def verify(self) -> Measured:
        """Nothing is to be measured but that nothing is left of a group that left."""
        if self.group is None:
            return Measured(ok=True, facts={"done": "nothing"})
        gone = not self.kit.fleet.agent(self.group).alive
        detail = "" if gone else f"the sessions of {self.group} are still there"
        return Measured(ok=gone, facts={"group": "left" if gone else "still there"}, detail=detail)
