"""A deployment kept to one run: locks of all its servers, on their hosts, in the same order for everybody."""

from __future__ import annotations

import asyncio
import getpass
import hashlib
import platform
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from chaos.engine.hosts.host import HostLost, HostTrouble
from chaos.model.errors import HarnessError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.engine.hosts.host import Host
    from chaos.engine.hosts.hosts import Hosts
    from chaos.model.target import Target

TTL_S = 120.0
"""A run that hangs (its machine sleeps, it was stopped) blocks others no longer than this."""
RENEW_S = 20.0


class Lock(msgspec.Struct, frozen=True):
    """Who uses a server. Seconds are of that host's clock, since the epoch."""

    key: str  # which server's it is
    run: str
    owner: str
    target: str  # as its user calls it
    since_s: float
    until_s: float
    live: bool

    @property
    def who(self) -> str:
        """For people, like `told`."""
        return f"run {self.run} of {self.owner} on {self.target or '?'}, since {utc(self.since_s)}"

    @property
    def told(self) -> str:
        """For people; never for a journal, because it names a machine."""
        return f"{self.who}, renewed until {utc(self.until_s)}"


class _Taken(msgspec.Struct, frozen=True):
    held: list[Lock]  # in the way
    over: list[Lock]  # that gave way


class _Renewed(msgspec.Struct, frozen=True):
    lost: list[Lock]


def lock_keys(target: Target, hosts: Hosts) -> list[tuple[Host, list[str]]]:
    """By host, the keys of its servers' locks; everybody who means the same deployment gets the same order."""
    by_host = [
        (host, sorted(_key(server.spec.url) for server in target.servers if server.id in hosts.servers_at(host)))
        for host in hosts.all
    ]
    return sorted(((host, keys) for host, keys in by_host if keys), key=lambda one: (one[1], one[0].label))


class TargetLock:
    """The lock of one run on one deployment."""

    def __init__(self, target: Target, hosts: Hosts, run_id: str) -> None:
        self._name = target.name
        self._run = run_id
        self._us: dict[str, Any] = {"run": run_id, "owner": owner(), "target": target.name, "ttl_s": TTL_S}
        self._places = lock_keys(target, hosts)
        self._mine: list[tuple[Host, list[str]]] = []

    def take(self, steal: str = "") -> tuple[str, ...]:
        """Take it on every host or on none; says what gave way, for the journal. Blocks.

        `steal` is the reason for taking it from a run that lives. Raises Refused where one does and there is no reason.
        """
        notes: list[str] = []
        try:
            for host, keys in self._places:
                notes += self._take_at(host, keys, steal)
        except BaseException:
            self.release()
            raise
        return tuple(dict.fromkeys(notes))

    def _take_at(self, host: Host, keys: list[str], steal: str) -> list[str]:
        try:
            said = host.call_now("lock.take", keys=keys, steal=bool(steal), **self._us)
        except HostTrouble as trouble:
            raise Refused(
                f"the lock of {self._name} cannot be taken on {host.label}: {trouble.text}",
                hint="without it nothing keeps two runs apart",
            ) from None
        except HostLost as lost:
            raise HarnessError(f"the lock of {self._name} cannot be taken: {host.label}: {lost}") from None
        taken = msgspec.convert(said, _Taken)
        if taken.held:
            raise Refused(
                f"{self._name} is in use by {taken.held[0].told}",
                hint="wait for it, or take the deployment from it with --steal-lock REASON",
            )
        self._mine.append((host, keys))
        return [
            f"the lock was stolen from run {lock.run}: {steal}"
            if lock.live
            else f"the lock of run {lock.run}, which is gone, was taken over"
            for lock in taken.over
        ]

    async def keep(self, lost: Callable[[str], None]) -> None:
        """Renew it until cancelled; tells `lost`, once, when another run has taken it (no machine is named)."""
        while True:
            await asyncio.sleep(RENEW_S)
            for host, keys in self._mine:
                try:
                    said = await host.call("lock.renew", keys=keys, **self._us)
                except (HostTrouble, HostLost):
                    continue  # what a lost host means for the run is for others to say; next time it may answer
                if taken := msgspec.convert(said, _Renewed).lost:
                    lost(f"run {taken[0].run} has stolen the lock of {self._name}")
                    return

    def release(self) -> list[Host]:
        """Give it back wherever it was taken; says which hosts did not take it, where it runs out. Blocks."""
        mine, self._mine = self._mine, []
        kept = []
        for host, keys in mine:
            try:
                host.call_now("lock.release", keys=keys, run=self._run)
            except (HostTrouble, HostLost):
                kept.append(host)
        return kept


def owner() -> str:
    """Who we are, for other people: user@machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no name for this uid
        user = "somebody"
    return f"{user}@{platform.node() or 'somewhere'}"


def _key(url: str) -> str:
    return hashlib.sha256(url.rstrip("/").lower().encode()).hexdigest()[:16]


def utc(seconds: float) -> str:
    """A moment for people."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
