"""Clients that hold their connections against the server: they stop reading, or vanish without a word.

Measured by the kernel: of a stall, bytes that arrived and nobody reads, and that do not become fewer; of a black hole,
segments that arrived and were dropped before anything could answer them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.engine.faults.life import Measured, NotApplied
from chaos.engine.faults.waves import ClientFault

if TYPE_CHECKING:
    from chaos.engine.load import messages as msg
    from chaos.engine.load.agent import Agent

EFFECT_S = 15.0
"""Until something arrives at a held connection: a token, or a retransmission of the server's kernel."""
POLL_S = 0.1
REVERT_S = 30.0
"""Until what was held up has been read: a server's kernel tries again ever more seldom."""


class HoldFault(ClientFault):
    """Holds connections of a group for as long as the step says; then the clients go on, or close."""

    _agent: Agent | None = None

    @property
    def reversal(self) -> str:
        """What ends it."""
        return self.kill.then

    async def apply(self) -> Measured:
        """Have the agent hold connections, those that stream first."""
        self._agent = agent = self.kit.fleet.agent(self.group)
        done = await self.order(agent)
        if not done.sockets:
            raise NotApplied(done.problem or "no connection was open")
        self.stands = True
        self.kit.emit(self.shot(done))
        return Measured(ok=True, facts={"sessions": str(done.sessions), "connections": str(done.sockets)})

    async def verify(self) -> Measured:
        """Something arrived and was not taken."""
        before = await self._look()
        deadline = self.kit.clock.now_ns() + int(EFFECT_S * 1e9)
        while True:
            await self.kit.clock.sleep(POLL_S)
            now = await self._look()
            if now is None or before is None:
                return Measured(ok=False, detail="the agent does not tell")
            if self._withheld(now) and now.unread >= before.unread:
                return Measured(ok=True, facts=self._facts(now))
            if not now.open or self.kit.clock.now_ns() >= deadline:
                detail = f"nothing arrived at a held connection within {EFFECT_S:g} s" if now.open else "all are closed"
                return Measured(ok=False, facts=self._facts(now), detail=detail)
            before = now

    async def still(self) -> Measured:
        """Whether they are held up to now; one that the server has ended meanwhile counts as held."""
        now = await self._look()
        if now is None or now.held == now.open:
            return Measured(ok=True)
        return Measured(ok=False, facts=self._facts(now), detail=f"{now.open - now.held} are not held any more")

    async def revert(self) -> Measured:
        """Let the clients go on, or have them close."""
        agent = self._agent
        if agent is None or not agent.alive:
            return Measured(ok=True, facts={"connections": "closed with the client process"})
        try:
            now = await agent.release(self.step.id, close=self.kill.then == "close")
        except TimeoutError:
            return Measured(ok=not agent.alive, detail="the agent did not answer the order")
        return Measured(ok=True, facts={"order": self.kill.then, "open": str(now.open)})

    async def verify_reverted(self) -> Measured:
        """None is held any more, and nothing that had arrived waits to be read."""
        deadline = self.kit.clock.now_ns() + int(REVERT_S * 1e9)
        while True:
            now = await self._look()
            if now is None:
                return Measured(ok=True, facts={"connections": "closed with the client process"})
            if not now.held and (self.kill.then == "resume" or not now.open):
                return Measured(ok=True, facts=self._facts(now))
            if self.kit.clock.now_ns() >= deadline:
                return Measured(ok=False, facts=self._facts(now), detail=f"{now.held} are still held")
            await self.kit.clock.sleep(POLL_S)

    async def _look(self) -> msg.Held | None:
        agent = self._agent
        if agent is None or not agent.alive:
            return None
        try:
            return await agent.look(self.step.id)
        except TimeoutError:
            return None

    def _withheld(self, now: msg.Held) -> bool:
        return bool(now.with_unread if self.kill.how == "stall" else now.with_dropped)

    def _facts(self, now: msg.Held) -> dict[str, str]:
        kept = {"open": str(now.open), "held": str(now.held)}
        if self.kill.how == "stall":
            return kept | {"with_unread": str(now.with_unread), "unread_bytes": str(now.unread)}
        return kept | {"with_dropped": str(now.with_dropped), "segments_dropped": str(now.dropped)}
