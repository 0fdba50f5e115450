"""How far apart in time the connections of a wave ended, as the router's own kernel saw them.

A wave is as simultaneous as its victims see it, however close together it was fired: between the two may lie an SSH
connection. Where the router's host shows none of the connections (it is not ours to look at, or something between us
and the router answers in its name), the spread is unknown, and that is said.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from chaos.engine.hosts import HostLost, HostTrouble

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from chaos.engine.faults.kit import FaultKit
    from chaos.engine.load.agent import Agent

BEGIN_S = 3.0
GONE_S = 3.0
"""A FIN takes the way to the router, and no more; its kernel needs nobody's leave."""


@dataclass(frozen=True, slots=True)
class Spread:
    """What was seen: how many of those watched ended, and between which moments all of these did (ns of our clock)."""

    watched: int = 0
    closed: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    unknown: str = ""

    def since(self, ordered_ns: int) -> int | None:
        """The first moment narrowed down: nothing ends by a wave before it is ordered."""
        if self.first_ns is None or self.last_ns is None:
            return None
        return min(max(self.first_ns, ordered_ns), self.last_ns)


class RouterWatch:
    """A watch over the router's connections with one agent; begin it before the wave and ask it after."""

    def __init__(self) -> None:
        self._stream: AsyncGenerator[Any, None] | None = None
        self._offset_ns = 0
        self._watched = 0
        self._unknown = "nobody knows the router's host"

    @classmethod
    async def begin(cls, kit: FaultKit, agent: Agent) -> RouterWatch:
        """Begin to look; from now on nothing is missed."""
        watch = cls()
        router = next((server for server in kit.servers if server.role == "router"), None)
        if router is None:
            return watch
        parts = urlsplit(router.spec.url)
        host = kit.hosts.at(router.id)
        watch._offset_ns = host.offset_ns
        stream = host.stream(
            "leaving",
            port=parts.port or (443 if parts.scheme == "https" else 80),
            ports=agent.open_ports,
            pid=kit.router_pid,
            at_most_s=BEGIN_S + 2 * GONE_S,
        )
        try:
            async with asyncio.timeout(BEGIN_S):
                watch._watched = (await anext(stream))["watched"]
        except (HostLost, HostTrouble, TimeoutError, StopAsyncIteration) as why:
            watch._unknown = str(why) or "its host did not answer in time"
            await stream.aclose()
            return watch
        watch._stream = stream
        if not watch._watched:
            watch._unknown = "its host shows none of these connections"
        return watch

    async def end(self) -> Spread:
        """What came of them, a few seconds after the wave at the latest."""
        stream = self._stream
        if stream is None:
            return Spread(unknown=self._unknown)
        try:
            if not self._watched:
                return Spread(unknown=self._unknown)
            async with asyncio.timeout(GONE_S):
                seen = await anext(stream)
        except TimeoutError:
            return Spread(self._watched, unknown="some of them did not end")
        except (HostLost, HostTrouble, StopAsyncIteration) as why:
            return Spread(self._watched, unknown=str(why) or "its host told nothing")
        finally:
            await stream.aclose()
        first, last = (None if at is None else at + self._offset_ns for at in map(seen.get, ("since_ns", "last_ns")))
        return Spread(self._watched, self._watched - seen["left"], first, last)
