"""The way between a node and one of its peers, tried with traffic of our own from both ends.

What is asked of a host goes over SSH, which no fault touches. Where the peer's host is not ours to ask, only what our
side can see is known.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.faults.network.ends import address_of, port_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chaos.engine.hosts import Host
    from chaos.model.target import Server

EAR_S = 60.0
"""An ear is opened for one measurement; should we be gone, it closes by itself."""
QUIET_S = 1.0
"""A datagram that has not arrived by then is lost."""
LOOK_S = 0.1
SILENCE_S = 2.5
"""The kernel sends the first packet of a connection again after one second: two chances."""
ASK_S = 30.0
"""More than any measurement takes, so that a starved host is not taken for a lost one."""


class _Ear(msgspec.Struct, frozen=True):
    id: str
    v4: bool
    secret: str
    udp: int
    tcp: int


class Knocks(msgspec.Struct, frozen=True):
    """What became of attempts to connect; `ms` of those that were answered, be it by a refusal."""

    open: int = 0
    refused: int = 0
    silent: int = 0
    ms: tuple[float, ...] = ()

    @property
    def answered(self) -> bool:
        """Whether any was: then packets go both ways."""
        return bool(self.open or self.refused)


class Flow(msgspec.Struct, frozen=True):
    """What an ear took of a burst."""

    datagrams: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @property
    def bit_per_s(self) -> float:
        """Nothing when nothing arrived."""
        return self.bytes * 8 / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Arrived:
    """How many of so many datagrams arrived."""

    sent: int
    heard: int


@dataclass(frozen=True, slots=True)
class _Post:
    """One end: a server's host, and an ear that is open there."""

    host: Host
    server: Server
    ear: _Ear


class Line:
    """From `near` (where the fault is) to `far`."""

    def __init__(self, near: Server, far: Server, here: Host, there: Host | None) -> None:
        self.near, self.far = near, far
        self.here, self.there = here, there
        self._near: _Post | None = None
        self._far: _Post | None = None

    @property
    def name(self) -> str:
        """As it stands in a journal."""
        return f"{self.near.id} / {self.far.id}"

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Ears at both ends. Raises HostTrouble, HostLost."""
        try:
            if self.there is not None:
                self._near = await _post(self.here, self.near)
                self._far = await _post(self.there, self.far)
            yield
        finally:
            posts, self._near, self._far = [self._near, self._far], None, None
            for post in posts:
                if post is not None:
                    await post.host.call("net.close_ear", ear=post.ear.id)

    async def datagrams_in(self, count: int) -> Arrived | None:
        """How many of so many datagrams come from the peer; None where nobody can send them."""
        return await _shower(self._far, self._near, count)

    async def datagrams_out(self, count: int) -> Arrived | None:
        """How many of so many datagrams get to the peer; None where nobody can count them."""
        return await _shower(self._near, self._far, count)

    async def knocks_out(self, times: int = 1, wait_s: float = SILENCE_S) -> Knocks:
        """Whether the peer's port answers the node."""
        return await _knock(self.here, address_of(self.far), port_of(self.far), times, wait_s)

    async def knocks_in(self, port: int) -> Knocks | None:
        """Whether a port of the node answers the peer; None where nobody can try."""
        return None if self.there is None else await _knock(self.there, address_of(self.near), port)

    async def knocks_at_ear(self) -> Knocks | None:
        """Whether another port of the node, that of its ear, answers the peer; None where nobody can try."""
        return None if self._near is None else await self.knocks_in(self._near.ear.tcp)

    async def burst_out(self, most_bytes: int, most_s: float, buffer: int) -> Flow | None:
        """What arrives at the peer when the node sends as fast as it can; None where nobody can count it."""
        if self._far is None:
            return None
        ear = self._far.ear
        await self.here.call(
            "net.burst",
            timeout_s=ASK_S,
            name=address_of(self.far),
            port=ear.tcp,
            secret=ear.secret,
            most_bytes=most_bytes,
            most_s=most_s,
            buffer=buffer,
            v4=ear.v4,
        )
        return await _settled(self._far, 0)


async def _post(host: Host, server: Server) -> _Post:
    told = await host.call("net.ear", timeout_s=ASK_S, name=address_of(server), lasts_s=EAR_S)
    return _Post(host, server, msgspec.convert(told, _Ear))


async def _knock(host: Host, name: str, port: int, times: int = 1, wait_s: float = SILENCE_S) -> Knocks:
    told = await host.call(
        "net.knock", timeout_s=ASK_S + times * wait_s, name=name, port=port, times=times, wait_s=wait_s
    )
    return msgspec.convert(told, Knocks)


async def _shower(sender: _Post | None, hearer: _Post | None, count: int) -> Arrived | None:
    if sender is None or hearer is None:
        return None
    ear = hearer.ear
    told = await sender.host.call(
        "net.shower",
        timeout_s=ASK_S,
        name=address_of(hearer.server),
        port=ear.udp,
        secret=ear.secret,
        count=count,
        every_ms=1.0,
        v4=ear.v4,
    )
    # What this host's kernel dropped on its way out was lost as well as what was dropped on its way in.
    return Arrived(sent=count, heard=(await _settled(hearer, int(told["sent"]))).datagrams)


async def _settled(post: _Post, enough: int) -> Flow:
    """What an ear has heard, once that is enough, or nothing more comes."""
    quiet_s, last = 0.0, Flow()
    while True:
        now = msgspec.convert(await post.host.call("net.heard", timeout_s=ASK_S, ear=post.ear.id), Flow)
        quiet_s = 0.0 if now != last else quiet_s + LOOK_S
        if (enough and now.datagrams >= enough) or quiet_s >= QUIET_S:
            await post.host.call("net.heard", timeout_s=ASK_S, ear=post.ear.id, forget=True)
            return now
        last = now
        await asyncio.sleep(LOOK_S)
