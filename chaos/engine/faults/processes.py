"""The processes of a node, and what the kernel of its host says of them, one thread at a time.

A process is told from a later one with its pid by its start time. A process counts as stopped only when every one of
its threads is: the state that `ps` shows is the first thread's.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from chaos.engine.hosts import HostTrouble
from chaos.engine.probes.locate import UNTOLD, NotLocated, selectors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.engine.hosts import Host
    from chaos.model.target import ServerSpec

_NUMBERS = re.compile(r"\d+")
STOPPED = frozenset("Tt")

States = Counter[str] | None
"""How many threads of a process are in which state, one letter each; None when it has ended."""


class Process(msgspec.Struct, frozen=True):
    """One process of a node."""

    pid: int
    start_ticks: int  # clock ticks since its host booted
    name: str = ""
    title: str = ""  # its command line, joined by spaces

    @property
    def named(self) -> tuple[int, int]:
        """As a host wants it named."""
        return self.pid, self.start_ticks


async def processes_of(host: Host, spec: ServerSpec) -> tuple[Process, ...]:
    """A server's main process and everything below it, main first. Raises NotLocated, HostLost."""
    told = _told(spec)
    try:
        return msgspec.convert(await host.call("processes", **told), tuple[Process, ...])
    except HostTrouble as why:
        raise NotLocated(why.text) from None


def processes_now(host: Host, spec: ServerSpec) -> tuple[Process, ...]:
    """The same, for whoever has no event loop."""
    told = _told(spec)
    try:
        return msgspec.convert(host.call_now("processes", **told), tuple[Process, ...])
    except HostTrouble as why:
        raise NotLocated(why.text) from None


def _told(spec: ServerSpec) -> dict[str, Any]:
    told = selectors(spec)
    if not told:
        raise NotLocated(UNTOLD)
    return told


def called(processes: tuple[Process, ...], child: str) -> tuple[Process, ...]:
    """The children whose name or title contains `child`."""
    return tuple(process for process in processes[1:] if child in process.name or child in process.title)


class NoSuchRank(Exception):
    """A node has no process of this rank; the text says what it has."""


def rank_of(processes: tuple[Process, ...], rank: int, begins: str) -> Process:
    """The child that is this rank, in the order of the numbers in their titles (`…_DP1_TP0`). Raises NoSuchRank."""
    if not begins:
        raise NoSuchRank("runs an engine whose pack does not say which processes are ranks")
    titled = [process for process in processes[1:] if process.title.startswith(begins)]
    if rank >= len(titled):
        there = ", ".join(sorted(process.title.split()[0] for process in titled)) or "none"
        raise NoSuchRank(f"has no rank {rank} (processes of ranks: {there})")
    titled.sort(key=lambda each: [int(number) for number in _NUMBERS.findall(each.title)])
    return titled[rank]


async def thread_states(host: Host, processes: Sequence[Process]) -> list[States]:
    """The states of each process's threads. Raises HostLost."""
    told = await host.call("threads", of=[process.named for process in processes])
    return [None if one is None else Counter(one) for one in msgspec.convert(told, list[dict[str, int] | None])]


async def are_gone(host: Host, processes: Sequence[Process]) -> list[bool]:
    """Whether each has ended: no such pid, a zombie, or a later process with its pid. Raises HostLost."""
    return [states is None for states in await thread_states(host, processes)]


def is_gone(states: States) -> bool:
    """Whether a process has ended."""
    return states is None


def is_stopped(states: States) -> bool:
    """Whether every thread is stopped."""
    return states is not None and states.keys() <= STOPPED


def is_held(states: States) -> bool:
    """Whether any thread is stopped."""
    return states is not None and bool(states.keys() & STOPPED)


async def send(host: Host, processes: Sequence[Process], what: str) -> list[str]:
    """Send a signal (`STOP`) to these very processes: for each the empty string, or why not. Raises HostLost."""
    named = [process.named for process in processes]
    return msgspec.convert(await host.call("signal", of=named, send=what), list[str])


def may_signal(host: Host, process: Process) -> bool:
    """Whether we may send it signals; one that has just ended is no objection. Blocks; raises HostLost."""
    (why,) = host.call_now("signal", of=[process.named], send="")
    return not why or why.endswith("has ended")
