"""Watches the servers' processes: alive, stopped, replaced; their children, also those that are gone; their threads.

They are looked at where they are, all of a host at once. A host that does not answer tells nothing: what happens there
meanwhile is unknown, and nobody is called dead for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.hosts import HostLost, HostTrouble
from chaos.engine.probes.locate import Located, NotLocated, locate
from chaos.engine.probes.pace import Pace
from chaos.model.events import Child, EvidenceLost, ProcessSeen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.engine.hosts import Host
    from chaos.engine.ports import Clock, Emit
    from chaos.model.target import ServerSpec

INTERVAL_S = 1.0
HEARTBEAT_S = 10.0
SEARCH_EVERY = 2
"""Looks between two searches for a process that took a dead one's place: a search by port reads all sockets."""

_RESTING = frozenset({"stopped", "tracing-stop"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSource:
    """A node's process, the host that it is on, and how to find the one that replaces it."""

    node: str
    spec: ServerSpec
    host: Host
    found: Located


class _Kin(msgspec.Struct, frozen=True):
    """A child as the host tells it, and as the host wants to be reminded of it."""

    pid: int
    name: str
    alive: bool
    start_ticks: int
    start_time: float


class Looked(msgspec.Struct, frozen=True):
    """What the host sees of a process and of what came of it."""

    state: str
    alive: bool
    children: tuple[_Kin, ...]
    threads: tuple[str, ...]


@dataclass(slots=True)
class _Watched:
    source: ProcessSource
    now: Located
    children: tuple[_Kin, ...] = ()
    last: ProcessSeen | None = None
    looks_dead: int = 0


@dataclass(slots=True)
class _Place:
    """What is watched on one host; up to `known_ns` the journal says what happened there, or that nobody knows."""

    host: Host
    known_ns: int
    watched: list[_Watched] = field(default_factory=list)
    lost: str = ""  # why nobody answers there
    told_ns: int = 0  # when the journal was last told that it is lost


class ProcessProbe:
    """Emits `ProcessSeen` when something changed, every ten seconds, and at the end; else `EvidenceLost`."""

    def __init__(
        self, sources: Sequence[ProcessSource], *, emit: Emit, clock: Clock, interval_s: float = INTERVAL_S
    ) -> None:
        self._places: list[_Place] = []
        for source in sources:
            place = next((one for one in self._places if one.host is source.host), None)
            if place is None:
                place = _Place(source.host, clock.now_ns())
                self._places.append(place)
            place.watched.append(_Watched(source, source.found))
        self._emit = emit
        self._clock = clock
        self._interval_s = interval_s

    async def run(self) -> None:
        """Look until cancelled; one host that hangs does not keep us from looking at the others."""
        async with asyncio.TaskGroup() as tasks:
            for place in self._places:
                tasks.create_task(self._keep_looking(place))

    async def look(self, *, always: bool = False) -> None:
        """Look at every process once; `always` emits even where nothing changed."""
        await asyncio.gather(*(self._look_at(place, always=always) for place in self._places))

    def located(self) -> dict[str, Located]:
        """Where each node's process is now."""
        return {watched.source.node: watched.now for place in self._places for watched in place.watched}

    def whereabouts(self) -> list[tuple[Host, dict[str, Located]]]:
        """The same, by host."""
        return [(place.host, {one.source.node: one.now for one in place.watched}) for place in self._places]

    async def tell_threads(self, node: str, names: tuple[str, ...]) -> None:
        """Emit a look at a node with the names of its Python threads, which somebody has just read."""
        for place in self._places:
            for watched in place.watched:
                if watched.source.node == node:
                    try:
                        (looked,) = await observe(place.host, [(watched.now, watched.children)])
                    except (HostLost, HostTrouble):
                        return  # whoever looks all the time will say so
                    seen = self._seen(watched, looked)
                    self._emit(msgspec.structs.replace(seen, threads=names, threads_by="python"))

    async def finish(self) -> None:
        """The last look: it says what is alive at the end."""
        await self.look(always=True)

    # ------------------------------------------------------------------------------------ inside

    async def _keep_looking(self, place: _Place) -> None:
        pace = Pace(self._clock, self._interval_s)
        while True:
            await pace.next()
            await self._look_at(place, always=False)

    async def _look_at(self, place: _Place, *, always: bool) -> None:
        try:
            looks = await observe(place.host, [(watched.now, watched.children) for watched in place.watched])
        except (HostLost, HostTrouble) as why:
            self._blind(place, str(why), always=always)
            return
        self._sighted(place)
        for watched, looked in zip(place.watched, looks, strict=True):
            await self._note(watched, looked, always=always)

    async def _note(self, watched: _Watched, looked: Looked, *, always: bool) -> None:
        watched.children = looked.children
        self._tell(watched, looked, always=always)
        if looked.alive:
            watched.looks_dead = 0
            return
        watched.looks_dead += 1
        if watched.looks_dead % SEARCH_EVERY != 1:
            return
        try:
            other = await _replacement(watched)
            if other is None:
                return
            (looked,) = await observe(watched.source.host, [(other, ())])
        except (HostLost, HostTrouble):
            return  # the next look says so
        watched.now, watched.children, watched.looks_dead = other, looked.children, 0
        self._tell(watched, looked, always=True)

    def _tell(self, watched: _Watched, looked: Looked, *, always: bool) -> None:
        seen, last = self._seen(watched, looked), watched.last
        stale = last is None or seen.t_ns - last.t_ns >= HEARTBEAT_S * 1e9
        if always or stale or last is None or _essence(seen) != _essence(last):
            watched.last = seen
            self._emit(seen)

    def _seen(self, watched: _Watched, looked: Looked) -> ProcessSeen:
        return ProcessSeen(
            t_ns=self._clock.now_ns(),
            src="probe:process",
            node=watched.source.node,
            pid=watched.now.pid,
            alive=looked.alive,
            state=looked.state,
            start_time=watched.now.start_time,
            children=tuple(
                Child(pid=one.pid, name=one.name, alive=one.alive, start_time=one.start_time) for one in looked.children
            ),
            threads=looked.threads,
        )

    # ------------------------------------------------------------------------------------ hosts that are lost

    def _blind(self, place: _Place, cause: str, *, always: bool) -> None:
        """Nobody answered: say so at once, every ten seconds, and at the end."""
        now_ns, lost = self._clock.now_ns(), place.lost
        place.lost = cause
        if always or not lost or now_ns - place.told_ns >= HEARTBEAT_S * 1e9:
            self._tell_lost(place, now_ns)

    def _sighted(self, place: _Place) -> None:
        now_ns = self._clock.now_ns()
        if place.lost:
            self._tell_lost(place, now_ns)
        place.lost, place.known_ns = "", now_ns

    def _tell_lost(self, place: _Place, now_ns: int) -> None:
        for watched in place.watched:
            self._emit(
                EvidenceLost(
                    t_ns=now_ns,
                    src="probe:process",
                    probe="process",
                    node=watched.source.node,
                    from_ns=place.known_ns,
                    to_ns=now_ns,
                    cause=place.lost,
                )
            )
        place.known_ns = place.told_ns = now_ns


async def observe(host: Host, processes: Sequence[tuple[Located, Sequence[_Kin]]]) -> list[Looked]:
    """Look at processes of a host now. Children seen earlier stay listed, dead ones as dead. Raises HostLost."""
    roots = [
        {"pid": one.pid, "start_ticks": one.start_ticks, "known": msgspec.to_builtins(known)}
        for one, known in processes
    ]
    return msgspec.convert(await host.call("look", roots=roots), list[Looked])


async def _replacement(watched: _Watched) -> Located | None:
    """Another process that the target's pid file, unit, container, command line or port now leads to."""
    source = watched.source
    try:
        other = await locate(source.host, source.spec.model_copy(update={"pid": None}))
    except NotLocated:
        return None
    same = other is None or (other.pid, other.start_ticks) == (watched.now.pid, watched.now.start_ticks)
    return None if same else other


def _essence(seen: ProcessSeen) -> tuple[object, ...]:
    """What makes two looks different: running, sleeping and waiting for a disk are one thing."""
    resting = seen.state if seen.state in _RESTING else ""
    return seen.pid, seen.alive, resting, seen.children, seen.threads
