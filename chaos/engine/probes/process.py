"""Watches the servers' processes: alive, stopped, replaced; their children, also those that are gone; their threads."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil

from chaos.engine.probes.locate import Located, NotLocated, locate
from chaos.engine.probes.pace import Pace
from chaos.model.events import Child, ProcessSeen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.engine.ports import Clock, Emit
    from chaos.model.target import ServerSpec

INTERVAL_S = 1.0
HEARTBEAT_S = 10.0
SEARCH_EVERY = 2
"""Looks between two searches for a process that took a dead one's place: a search by port reads all sockets."""
SAME_START_S = 2.0
"""Start times of one process agree better than this; the kernel reuses a pid much later."""
MAX_THREADS = 200

_RESTING = frozenset({psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSource:
    """A node's process, and how to find the one that replaces it."""

    node: str
    spec: ServerSpec
    found: Located


@dataclass(slots=True)
class _Watched:
    source: ProcessSource
    now: Located
    children: dict[int, Child] = field(default_factory=dict)
    last: ProcessSeen | None = None
    looks_dead: int = 0


class ProcessProbe:
    """Emits `ProcessSeen` when something changed, every ten seconds, and at the end."""

    def __init__(
        self, sources: Sequence[ProcessSource], *, emit: Emit, clock: Clock, interval_s: float = INTERVAL_S
    ) -> None:
        self._watched = [_Watched(source, source.found) for source in sources]
        self._emit = emit
        self._clock = clock
        self._interval_s = interval_s

    async def run(self) -> None:
        """Look until cancelled."""
        pace = Pace(self._clock, self._interval_s)
        while True:
            await pace.next()
            await self.look()

    async def look(self, *, always: bool = False) -> None:
        """Look at every process once; `always` emits even where nothing changed."""
        for watched in self._watched:
            await self._look_at(watched, always=always)

    def located(self) -> dict[str, Located]:
        """Where each node's process is now."""
        return {watched.source.node: watched.now for watched in self._watched}

    async def tell_threads(self, node: str, names: tuple[str, ...]) -> None:
        """Emit a look at a node with the names of its Python threads, which somebody has just read."""
        for watched in self._watched:
            if watched.source.node == node:
                seen = await asyncio.to_thread(observe, node, watched.now, watched.children)
                told = msgspec.structs.replace(seen, threads=names, threads_by="python")
                self._emit(_stamped(told, self._clock.now_ns()))

    async def finish(self) -> None:
        """The last look: it says what is alive at the end."""
        await self.look(always=True)

    async def _look_at(self, watched: _Watched, *, always: bool) -> None:
        seen = await asyncio.to_thread(observe, watched.source.node, watched.now, watched.children)
        watched.children = {child.pid: child for child in seen.children}
        self._tell(watched, seen, always=always)
        if seen.alive:
            watched.looks_dead = 0
            return
        watched.looks_dead += 1
        if watched.looks_dead % SEARCH_EVERY == 1:
            other = await asyncio.to_thread(_replacement, watched)
            if other is not None:
                watched.now, watched.children, watched.looks_dead = other, {}, 0
                seen = await asyncio.to_thread(observe, watched.source.node, other, {})
                watched.children = {child.pid: child for child in seen.children}
                self._tell(watched, seen, always=True)

    def _tell(self, watched: _Watched, seen: ProcessSeen, *, always: bool) -> None:
        now_ns = self._clock.now_ns()
        last = watched.last
        stale = last is None or now_ns - last.t_ns >= HEARTBEAT_S * 1e9
        if always or stale or last is None or _essence(seen) != _essence(last):
            watched.last = _stamped(seen, now_ns)
            self._emit(watched.last)


def observe(node: str, process: Located, known: dict[int, Child]) -> ProcessSeen:
    """Look at one process now. Children seen earlier stay listed, dead ones as dead."""
    state: str
    listed: list[psutil.Process]
    try:
        handle = psutil.Process(process.pid)
        state = handle.status() if _same(handle, process.start_time) else "dead"
        listed = handle.children(recursive=True) if state != "dead" else []
    except psutil.NoSuchProcess:
        state, listed = "dead", []
    except psutil.AccessDenied:
        state, listed = "unreadable", []
    alive = state not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    children = {child.pid: _still(child) for child in known.values()}
    for handle in listed:
        child = _child(handle)
        if child is not None:
            children[child.pid] = child
    pids = [process.pid, *(child.pid for child in children.values() if child.alive)] if alive else []
    return ProcessSeen(
        t_ns=0,
        src="probe:process",
        node=node,
        pid=process.pid,
        alive=alive,
        state=state,
        start_time=process.start_time,
        children=tuple(children[pid] for pid in sorted(children)),
        threads=_threads(pids),
    )


def _replacement(watched: _Watched) -> Located | None:
    """Another process that the target's pid file or port now leads to."""
    spec = watched.source.spec
    try:
        other = locate(spec.model_copy(update={"pid": None}))
    except NotLocated:
        return None
    return other if other != watched.now else None


def _same(handle: psutil.Process, start_time: float) -> bool:
    return abs(handle.create_time() - start_time) < SAME_START_S


def _child(handle: psutil.Process) -> Child | None:
    try:
        with handle.oneshot():
            return Child(
                pid=handle.pid,
                name=handle.name(),
                alive=handle.status() != psutil.STATUS_ZOMBIE,
                start_time=handle.create_time(),
            )
    except psutil.Error:
        return None  # gone, or not ours to look at


def _still(child: Child) -> Child:
    """The child as it is now, also when its parent died and another process adopted it."""
    try:
        handle = psutil.Process(child.pid)
        alive = _same(handle, child.start_time) and handle.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        alive = False
    except psutil.AccessDenied:
        alive = True
    return (
        child
        if alive == child.alive
        else Child(pid=child.pid, name=child.name, alive=alive, start_time=child.start_time)
    )


def _threads(pids: Sequence[int]) -> tuple[str, ...]:
    """Names of all threads, `name x3` for three of a name; nothing where /proc cannot be read."""
    names: Counter[str] = Counter()
    for pid in pids:
        tasks = Path(f"/proc/{pid}/task")
        try:
            threads = [(tasks / thread / "comm").read_bytes() for thread in os.listdir(tasks)]  # noqa: PTH208 - names only
        except OSError:
            continue  # something ended between two looks; the next one tells
        names.update(thread.decode(errors="replace").rstrip("\n") for thread in threads)
    shown = [name if count == 1 else f"{name} x{count}" for name, count in sorted(names.items())]
    return tuple(shown[:MAX_THREADS])


def _essence(seen: ProcessSeen) -> tuple[object, ...]:
    """What makes two looks different: running, sleeping and waiting for a disk are one thing."""
    resting = seen.state if seen.state in _RESTING else ""
    return seen.pid, seen.alive, resting, seen.children, seen.threads


def _stamped(seen: ProcessSeen, now_ns: int) -> ProcessSeen:
    return msgspec.structs.replace(seen, t_ns=now_ns)
