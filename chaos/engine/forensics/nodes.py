"""What hosts tell of their nodes, written into a snapshot: stacks, processes, stretches of logs.

Hosts are asked beside each other, so that one which does not answer costs the others nothing; the nodes of one host in
turn, so that looking does not become a load.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from chaos.engine.forensics import processes, stacks
from chaos.engine.hosts import HostLost, HostTrouble

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from chaos.engine.forensics.folder import Snapshot
    from chaos.engine.forensics.redact import Redactor
    from chaos.engine.hosts import Host
    from chaos.engine.probes.locate import Located

T = TypeVar("T")
LOOK_S = 10.0
"""How long a host may take to look at one node's processes, or to read one of its logs."""
Marks = dict[str, dict[str, tuple[int, int]]]
"""Where files ended at a moment: inode and size, by pattern and path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What there is to save of one node."""

    node: str
    host: Host
    metrics_url: str = ""
    info_url: str = ""
    logs: tuple[tuple[str, str], ...] = ()  # stream and file, or pattern of files
    printed: tuple[tuple[str, Mapping[str, str]], ...] = ()  # stream of a log that is no file, and how a host knows it


class Watched(Protocol):
    """Whoever watches the processes: knows where they are now, and takes note of thread names."""

    def located(self) -> Mapping[str, Located]:
        """The process of each node that is watched."""

    async def tell_threads(self, node: str, names: tuple[str, ...]) -> None:
        """Journal the names of all Python threads of a node."""


@dataclass(slots=True)
class Threads:
    """What was read of one node's threads."""

    count: int = 0
    names: list[str] = field(default_factory=list)
    complete: bool = True  # every Python process of the node was read


class _Missing(Exception):
    """Something cannot be saved; the text says why."""


class Nodes:
    """The nodes of a run, as their hosts know them."""

    def __init__(self, subjects: Sequence[Subject], watched: Watched, redactor: Redactor) -> None:
        self._subjects = tuple(subjects)
        self._watched = watched
        self._redactor = redactor
        self._marks: dict[str, Marks] = {}  # by node
        self._writing = asyncio.Lock()

    async def mark(self) -> None:
        """Take note of where all logs end now: around here is what people will want to read."""
        self._marks.clear()
        await self._each(self._mark)

    async def stacks(self, snapshot: Snapshot) -> dict[str, Threads]:
        """Save the threads and stacks of every node that is watched."""
        read: dict[str, Threads] = {}
        located = self._watched.located()

        async def of(subject: Subject) -> None:
            if subject.node in located:
                read[subject.node] = await self._stacks(subject, located[subject.node], snapshot)

        await self._each(of)
        return read

    async def processes(self, snapshot: Snapshot) -> None:
        """Save command lines, environments, sockets of every node."""
        located = self._watched.located()

        async def of(subject: Subject) -> None:
            try:
                told = await _inspected(subject, located.get(subject.node), snapshot)
            except _Missing as why:
                snapshot.lacks("processes", str(why), node=subject.node)
            else:
                await self._write(self._write_processes, snapshot, subject.node, told)

        await self._each(of)

    async def logs(self, snapshot: Snapshot) -> None:
        """Save every log around the last mark, and its end; of one that is no file what its reader still holds."""

        async def of(subject: Subject) -> None:
            saving = [(stream, partial(self._log, subject, stream, pattern)) for stream, pattern in subject.logs]
            saving += [(stream, partial(self._printed, subject, stream, how)) for stream, how in subject.printed]
            for stream, save in saving:
                try:
                    await save(snapshot)
                except _Missing as why:
                    snapshot.lacks(stream, str(why), node=subject.node)

        await self._each(of)

    # ------------------------------------------------------------------------------------------ one node

    async def _mark(self, subject: Subject) -> None:
        with suppress(HostLost, HostTrouble):
            self._marks[subject.node] = await _ends(subject, [pattern for _, pattern in subject.logs])

    async def _stacks(self, subject: Subject, root: Located, snapshot: Snapshot) -> Threads:
        node = subject.node
        try:
            read = await stacks.read(subject.host, root, snapshot.left_s())
        except stacks.NoStacks as why:
            snapshot.lacks("thread stacks", str(why), node=node)
            return Threads(complete=False)
        for failure in read.failed.values():
            snapshot.lacks("thread stacks", failure, node=node)
        await self._write(_write_stacks, snapshot, node, read)
        every = [thread for threads in read.threads.values() for thread in threads]
        return Threads(len(every), [thread.label for thread in every], complete=not read.failed)

    async def _log(self, subject: Subject, stream: str, pattern: str, snapshot: Snapshot) -> None:
        if snapshot.over():
            raise _Missing("the time was up")
        around = self._marks.get(subject.node, {}).get(pattern, {})
        for number, path in enumerate((await _asked(_ends(subject, [pattern])))[pattern] or [pattern]):
            asking = subject.host.call("stretch", timeout_s=LOOK_S, path=path, around=around.get(path))
            text = str(await _asked(asking))
            name = f"{subject.node}-{stream}{f'-{number + 1}' if number else ''}.txt"
            await self._write(_write_log, snapshot, subject.node, (name, text))

    async def _printed(self, subject: Subject, stream: str, how: Mapping[str, str], snapshot: Snapshot) -> None:
        if snapshot.over():
            raise _Missing("the time was up")
        text = str(await _asked(subject.host.call("log.recent", timeout_s=LOOK_S, **how)))
        await self._write(_write_log, snapshot, subject.node, (f"{subject.node}-{stream}.txt", text))

    # ------------------------------------------------------------------------------------------ inside

    async def _each(self, of: Callable[[Subject], Coroutine[Any, Any, None]]) -> None:
        by_host: dict[int, list[Subject]] = {}
        for subject in self._subjects:
            by_host.setdefault(id(subject.host), []).append(subject)

        async def in_turn(subjects: list[Subject]) -> None:
            for subject in subjects:
                await of(subject)

        await asyncio.gather(*map(in_turn, by_host.values()))

    async def _write(self, write: Callable[[Snapshot, str, T], None], snapshot: Snapshot, node: str, what: T) -> None:
        """Redacting megabytes takes a while: in a thread, one at a time."""
        async with self._writing:
            await asyncio.to_thread(write, snapshot, node, what)

    def _write_processes(self, snapshot: Snapshot, node: str, told: object) -> None:
        text = msgspec.json.format(msgspec.json.encode(processes.redacted(told, self._redactor)), indent=2)
        what = "processes: command lines, environment, sockets"
        snapshot.save(f"{node}-processes.json", what, text, node=node)


async def _inspected(subject: Subject, root: Located | None, snapshot: Snapshot) -> object:
    if root is None:
        raise _Missing("nobody knows where they are")
    if snapshot.over():
        raise _Missing("the time was up")
    told = await _asked(processes.inspect(subject.host, root))
    if not told:
        raise _Missing("its process is gone")
    return told


async def _ends(subject: Subject, patterns: list[str]) -> Marks:
    """Where logs end now. Raises HostLost, HostTrouble."""
    return msgspec.convert(await subject.host.call("ends", timeout_s=LOOK_S, patterns=patterns), Marks)


async def _asked(asking: Awaitable[T]) -> T:
    """What a host tells; raises _Missing."""
    try:
        return await asking
    except HostTrouble as why:
        raise _Missing(why.text) from None
    except HostLost:
        raise _Missing("its host did not answer") from None


def _write_stacks(snapshot: Snapshot, node: str, read: stacks.Stacks) -> None:
    if not read.threads:
        return
    texts = [
        f"=== process {pid}: {len(threads)} threads\n\n{stacks.text(threads)}" for pid, threads in read.threads.items()
    ]
    snapshot.save(f"{node}-stacks.txt", "thread stacks", "\n".join(texts), node=node)
    raw = msgspec.json.encode(read.threads)
    snapshot.save(f"{node}-stacks.json", "thread stacks, for programs", raw, node=node)


def _write_log(snapshot: Snapshot, node: str, named: tuple[str, str]) -> None:
    name, text = named
    snapshot.save(name, "log around the last fault and its end", text, node=node)
