"""Requests aborted through the engine's own API, while their clients go on waiting.

Engines take the id of a request and abort whatever begins with it (sglang#35936), so ids are unique and of one width.
A router that has no such endpoint does not pass the order on: then every prefill and decode node is told.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.faults.life import Measured, NotApplied
from chaos.engine.faults.waves import ClientFault
from chaos.engine.probes.http import TRANSPORT_ERRORS, describe

if TYPE_CHECKING:
    import httpx

    from chaos.engine.load.agent import Agent

ASK_S = 10.0
AT_ONCE = 64
ENDED_S = 15.0
"""An abort ends a request within a step of the scheduler; a machine that starves needs longer."""
POLL_S = 0.05


class AbortApi(ClientFault):
    """Has the engine abort requests of a group."""

    _agent: Agent | None = None
    _rids: tuple[str, ...] = ()

    async def apply(self) -> Measured:
        """Have the agent name its open requests, then tell every endpoint of each of them."""
        http, urls = self.kit.http, self.kit.abort_urls
        if http is None or not urls:
            raise NotApplied("nothing says where a request can be aborted (endpoints.abort of the packs)")
        self._agent = agent = self.kit.fleet.agent(self.group)
        done = await self.order(agent)
        self._rids = tuple(rid for rid in done.rids if agent.has_open(rid))
        first_ns = self.kit.clock.now_ns()
        refused = await self._tell_all(http, urls)
        last_ns = self.kit.clock.now_ns()
        self.kit.emit(msgspec.structs.replace(self.shot(done), first_ns=first_ns, last_ns=last_ns))
        facts = {"requests": str(len(self._rids)), "endpoints": str(len(urls))}
        detail = "" if self._rids else "no request was open"
        return Measured(bool(self._rids) and not refused, facts, detail or "; ".join(sorted(refused)[:3]))

    async def verify(self) -> Measured:
        """Measure that the requests ended; one that hangs on is the target's doing, if others ended."""
        agent, clock = self._agent, self.kit.clock
        deadline = clock.now_ns() + int(ENDED_S * 1e9)
        left = len(self._rids)
        while agent is not None and left and clock.now_ns() < deadline:
            await clock.sleep(POLL_S)
            left = sum(agent.has_open(rid) for rid in self._rids)
        facts = {"requests": str(len(self._rids)), "ended": str(len(self._rids) - left)}
        detail = "" if not left else f"{left} of them still wait {ENDED_S:g} s after the abort"
        return Measured(left < len(self._rids), facts, detail)

    async def _tell_all(self, http: httpx.AsyncClient, urls: tuple[str, ...]) -> set[str]:
        """Why orders were refused, if any was."""
        places = asyncio.Semaphore(AT_ONCE)

        async def tell(url: str, rid: str) -> str:
            async with places:
                return await self._tell_one(http, url, rid)

        told = await asyncio.gather(*(tell(url, rid) for rid in self._rids for url in urls))
        return {why for why in told if why}

    async def _tell_one(self, http: httpx.AsyncClient, url: str, rid: str) -> str:
        try:
            async with asyncio.timeout(ASK_S):
                response = await http.post(url, json={"rid": rid}, headers=dict(self.kit.headers))
        except TimeoutError:
            return f"no answer in {ASK_S:g} s"
        except TRANSPORT_ERRORS as error:
            return ": ".join(describe(error))
        return "" if response.is_success else f"HTTP {response.status_code}"
