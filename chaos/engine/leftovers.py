"""What runs left on the hosts of a target: found, told, and taken back. Blocks; nothing else runs meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.hosts.host import HostLost, HostTrouble
from chaos.engine.hosts.lock import Lock, lock_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


@dataclass(frozen=True, slots=True)
class Leftover:
    """The same with the host where it is."""

    host: str
    item: Item


@dataclass(frozen=True, slots=True)
class Swept:
    """What was found on all hosts, and hosts of which nothing is known."""

    found: tuple[Leftover, ...]
    unknown: tuple[str, ...]

    @property
    def left(self) -> tuple[Leftover, ...]:
        """What belongs to no run that lives, and is still there."""
        return tuple(one for one in self.found if not (one.item.gone or one.item.lives))


def sweep(
    target: Target, hosts: Hosts, progress: Callable[[str], None], *, dry: bool = False, also_living: bool = False
) -> Swept:
    """Look on every host, and unless `dry` take back what no living run owns; `also_living` takes theirs, too."""
    found: list[Leftover] = []
    unknown: list[str] = []
    for host in hosts.all:
        progress(f"{'looking at' if dry else 'sweeping'} {host.label}")
        try:
            runs = _living(host) if also_living and not dry else []
            items = _swept(host, dry=dry, runs=runs)
            items += _locks(host, _keys(target, hosts, host), dry=dry, steal=also_living)
        except (HostTrouble, HostLost) as error:
            unknown.append(f"{host.label}: {error}")
        else:
            found += [Leftover(host.label, item) for item in items]
    return Swept(tuple(found), tuple(unknown))


def _keys(target: Target, hosts: Hosts, host: Host) -> list[str]:
    return next((keys for at, keys in lock_keys(target, hosts) if at is host), [])


def _living(host: Host) -> list[str]:
    return sorted({item.run for item in _swept(host, dry=True, runs=[]) if item.lives})


def _swept(host: Host, *, dry: bool, runs: Sequence[str]) -> list[Item]:
    said = host.call_now("sweep", timeout_s=SWEEP_S, dry=dry, runs=list(runs))
    return msgspec.convert(said, list[Item])


def _locks(host: Host, keys: list[str], *, dry: bool, steal: bool) -> list[Item]:
    if not keys:
        return []
    there = msgspec.convert(host.call_now("lock.seen", keys=keys), list[Lock])
    gone = {} if dry else msgspec.convert(host.call_now("lock.clear", keys=keys, steal=steal), list[Lock])
    cleared = {lock.run for lock in gone}
    told = {lock.run: lock for lock in there}  # a run has one for each server: one line is enough
    return [
        Item("lock", run, f"lock of {lock.told}", lives=lock.live and run not in cleared, gone=run in cleared, why="")
        for run, lock in told.items()
    ]
