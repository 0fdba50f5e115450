"""What runs left on the hosts of a target: found, told, and taken back. Blocks; nothing else runs meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.hosts.host import HostLost, HostTrouble
from chaos.engine.hosts.lock import Lock, lock_keys, utc
from chaos.model.errors import Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from chaos.engine.hosts import Host, Hosts
    from chaos.model.target import Target

SWEEP_S = 180.0
"""A guard that is at work is waited for; commands are tried three times."""


class Item(msgspec.Struct, frozen=True):
    """One thing of ours on a host."""

    kind: str
    run: str
    what: str
    lives: bool  # it belongs to a run that goes on
    gone: bool  # it was taken back now
    why: str  # why it was not
    since_s: float = 0.0  # of the host's clock, since the epoch; 0 where nobody knows
    record: str = ""  # the file there that says how a fault is undone
    by_hand: tuple[str, ...] = ()  # what a person may type there about what is not gone

    @property
    def name(self) -> str:
        """What `forget` takes."""
        return PurePosixPath(self.record).stem


@dataclass(frozen=True, slots=True)
class Leftover:
    """The same with the host where it is."""

    host: str
    item: Item


@dataclass(frozen=True, slots=True)
class Living:
    """A run that goes on, and what it has on a host."""

    host: str
    run: str
    things: int
    who: str  # for people: which run, whose, on what, since when
    ours: bool  # it holds the lock of the target that was asked for


@dataclass(frozen=True, slots=True)
class Swept:
    """What was found on all hosts, runs that were left alone there, and hosts of which nothing is known."""

    found: tuple[Leftover, ...]
    living: tuple[Living, ...]
    unknown: tuple[str, ...]

    @property
    def left(self) -> tuple[Leftover, ...]:
        """What is still there."""
        return tuple(one for one in self.found if not one.item.gone)


def sweep(
    target: Target, hosts: Hosts, progress: Callable[[str], None], *, dry: bool = False, also_living: bool = False
) -> Swept:
    """Look on every host, and unless `dry` take back what no living run owns.

    `also_living` takes back what belongs to runs that hold this target's lock, too; never what belongs to others.
    """
    found: list[Leftover] = []
    living: list[Living] = []
    unknown: list[str] = []
    keys = dict(lock_keys(target, hosts))
    locks: dict[Host, list[Lock]] = {}
    for host in hosts.all:
        progress(f"{'looking at' if dry else 'sweeping'} {host.label}")
        try:
            locks[host] = locks_at(host)
        except (HostTrouble, HostLost) as error:
            unknown.append(f"{host.label}: {error}")
    holders = {lock.run for host, there in locks.items() for lock in there if lock.key in keys.get(host, ())}
    everywhere = [lock for there in locks.values() for lock in there]
    for host, there in locks.items():
        try:
            items = _swept(host, dry=dry, runs=sorted(holders) if also_living else [])
            items += _locks(host, keys.get(host, []), there, dry=dry, steal=also_living)
        except (HostTrouble, HostLost) as error:
            unknown.append(f"{host.label}: {error}")
        else:
            found += [Leftover(host.label, item) for item in items if not item.lives]
            living += living_runs(host, items, everywhere, holders)
    return Swept(tuple(found), tuple(living), tuple(unknown))


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A record that was removed from a host though nothing was undone."""

    host: str
    path: str
    text: str


def forget(hosts: Hosts, name: str) -> Forgotten:
    """Remove a record (`Item.name`) on whichever host has it, and undo nothing.

    Raises UsageError where no host has it, Refused while its guard is at work there.
    """
    elsewhere: list[str] = []
    for host in hosts.all:
        try:
            said = host.call_now("sweep.forget", name=name)
        except HostTrouble as trouble:
            if trouble.kind != "missing":
                raise Refused(f"{host.label}: {trouble.text}", hint="it was not forgotten") from None
            elsewhere += [f"{one} on {host.label}" for one in trouble.text.split(", ") if one]
        except HostLost as lost:
            elsewhere.append(f"nobody knows which on {host.label}: {lost}")
        else:
            return Forgotten(host.label, **said)
    hint = f"there are: {', '.join(elsewhere)}" if elsewhere else "there is no record on any of them"
    raise UsageError(f"no host that was reached has a record {name}", hint=hint)


def locks_at(host: Host) -> list[Lock]:
    """All locks on a host, of whatever target, dead ones too. Raises HostTrouble, HostLost."""
    return msgspec.convert(host.call_now("lock.seen"), list[Lock])


def living_runs(host: Host, items: Sequence[Item], locks: Sequence[Lock], holders: Collection[str]) -> list[Living]:
    """The runs whose items live; `locks` tell more of them, `holders` have this target's."""
    told = {lock.run: lock for lock in locks}
    of: dict[str, list[Item]] = {}
    for item in items:
        if item.lives:
            of.setdefault(item.run, []).append(item)
    return [
        Living(host.label, run, len(its), told[run].who if run in told else _unlocked(run, its), run in holders)
        for run, its in of.items()
    ]


def _unlocked(run: str, its: Sequence[Item]) -> str:
    since_s = min((item.since_s for item in its if item.since_s), default=0.0)
    return f"run {run or '?'}, since {utc(since_s) if since_s else 'nobody knows when'}, which holds no lock here"


def _swept(host: Host, *, dry: bool, runs: Sequence[str]) -> list[Item]:
    said = host.call_now("sweep", timeout_s=SWEEP_S, dry=dry, runs=list(runs))
    return msgspec.convert(said, list[Item])


def _locks(host: Host, keys: Sequence[str], there: Sequence[Lock], *, dry: bool, steal: bool) -> list[Item]:
    """The locks of this target, each taken back as may be, and those of runs on other targets that live."""
    if keys and not dry:
        host.call_now("lock.clear", keys=keys, steal=steal)
        remain = {lock.key for lock in locks_at(host)}  # whoever was ended just now may have given its own back
    else:
        remain = {lock.key for lock in there}
    told: dict[str, Item] = {}  # a run has one for each server: one line is enough
    for lock in sorted(there, key=lambda one: one.key not in keys):
        mine = lock.key in keys
        if mine or lock.live:
            lives, gone = lock.live and not (mine and steal), mine and lock.key not in remain
            told.setdefault(lock.run, Item("lock", lock.run, f"lock of {lock.told}", lives, gone, "", lock.since_s))
    return list(told.values())
