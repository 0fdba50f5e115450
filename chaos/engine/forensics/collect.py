"""Takes snapshots: one at a time, beside the watch, never in its way.

Everything that reads files or other processes happens in a thread, in steps short enough not to hold the interpreter;
requests go to endpoints that generate nothing. A snapshot has a time limit: what is not saved by then is listed as
missing.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from chaos.engine.forensics import processes, servers, stacks
from chaos.engine.forensics.folder import Snapshot
from chaos.engine.forensics.redact import Redactor
from chaos.engine.hosts import HostLost, HostTrouble
from chaos.model import events as ev

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping, Sequence

    import httpx

    from chaos.engine.forensics.suspicion import Suspicion
    from chaos.engine.hosts import Host
    from chaos.engine.ports import Clock, Emit
    from chaos.engine.probes.locate import Located
    from chaos.journal import RunFolder

LIMIT_S = 20.0
LOOK_S = 10.0
"""How long a host may take to look at one node's processes, or to read one of its logs."""
MOST_SNAPSHOTS = 8
"""A run of many cycles, each with its own suspicion, must not fill a disk."""
MOST_NAMES = 400
COPIED = ("target.yaml", "scenario.yaml")
"""Written into the run folder before the run began; they hold references to secrets, no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What there is to save of one node."""

    node: str
    host: Host
    metrics_url: str = ""
    info_url: str = ""
    logs: tuple[tuple[str, str], ...] = ()  # stream and file, or pattern of files; empty where it is no file


T = TypeVar("T")
Marks = dict[str, dict[str, tuple[int, int]]]
"""Where files ended at a moment: inode and size, by pattern and path."""


class Watched(Protocol):
    """Whoever watches the processes: knows where they are now, and takes note of thread names."""

    def located(self) -> Mapping[str, Located]:
        """The process of each node that is watched."""

    async def tell_threads(self, node: str, names: tuple[str, ...]) -> None:
        """Journal the names of all Python threads of a node."""


@dataclass(slots=True)
class _Stacks:
    """What was read of one node's threads."""

    threads: int = 0
    names: list[str] = field(default_factory=list)
    complete: bool = True  # every Python process of the node was read


class Forensics:
    """Saves snapshots when suspicion arises and when asked to."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        *,
        watched: Watched,
        wanted: Iterable[str],
        http: httpx.AsyncClient,
        headers: Mapping[str, str],
        emit: Emit,
        clock: Clock,
        folder: RunFolder,
        suspicion: Suspicion,
        secrets: Iterable[str] = (),
    ) -> None:
        self._subjects = tuple(subjects)
        self._watched = watched
        self._wanted = tuple(wanted)
        self._http = http
        self._headers = dict(headers)
        self._emit = emit
        self._clock = clock
        self._folder = folder
        self._suspicion = suspicion
        self._redactor = Redactor(secrets)
        self._marks: dict[str, Marks] = {}  # by node
        self._taking = asyncio.Lock()
        self._begun = 0
        self._pending: set[asyncio.Task[None]] = set()
        self._marking: set[asyncio.Task[None]] = set()
        self._tasks: asyncio.TaskGroup | None = None
        suspicion.on_fault = self._mark

    # ------------------------------------------------------------------------------------------ asking

    def start(self, tasks: asyncio.TaskGroup) -> asyncio.Task[None]:
        """Save whenever suspicion arises, until the returned task is cancelled."""
        self._tasks = tasks
        return tasks.create_task(self._await_suspicion(), name="Forensics")

    def look(self, reason: str) -> None:
        """Read thread names and stacks, no more, in the background."""
        self._begin(reason, "", threads_only=True)

    def request(self, reason: str, detail: str = "") -> None:
        """Save a whole snapshot in the background."""
        self._begin(reason, detail, threads_only=False)

    async def save(self, reason: str, detail: str = "") -> None:
        """Save a whole snapshot and return when it is there, or when its time is up."""
        self.request(reason, detail)
        await self.settle()

    async def settle(self) -> None:
        """Wait for what has begun."""
        if self._pending:
            await asyncio.wait(self._pending, timeout=LIMIT_S)

    async def close(self) -> None:
        """Begin nothing more; what a thread is at work on is left to end by itself."""
        self._tasks = None
        at_work = self._pending | self._marking
        for task in at_work:
            task.cancel()
        if at_work:
            await asyncio.wait(at_work)

    # ------------------------------------------------------------------------------------------ inside

    async def _await_suspicion(self) -> None:
        while True:
            suspect = await self._suspicion.next()
            self.request(suspect.reason, suspect.detail)

    def _begin(self, reason: str, detail: str, *, threads_only: bool) -> None:
        if self._tasks is None or self._begun >= MOST_SNAPSHOTS:
            return
        number, self._begun = self._begun, self._begun + 1
        task = self._tasks.create_task(self._take(number, reason, detail, threads_only=threads_only))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    def _mark(self) -> None:
        """A fault was just applied: the logs around here are what people will want to read."""
        if self._tasks is not None:
            for subject in self._subjects:
                task = self._tasks.create_task(self._mark_logs(subject))
                self._marking.add(task)
                task.add_done_callback(self._marking.discard)

    async def _mark_logs(self, subject: Subject) -> None:
        self._marks[subject.node] = {}
        with suppress(HostLost, HostTrouble):
            self._marks[subject.node] = await _ends(subject)

    async def _take(self, number: int, reason: str, detail: str, *, threads_only: bool) -> None:
        async with self._taking:
            began_ns = self._clock.now_ns()
            until = time.monotonic() + LIMIT_S
            snapshot = Snapshot(self._folder, number, reason, self._redactor, until)
            fetching = None if threads_only else asyncio.ensure_future(self._fetch_all())
            try:
                read = await self._read_stacks(snapshot)
                for node, of in read.items():
                    if of.complete and of.names:
                        await self._watched.tell_threads(node, self._shown(of.names))
                if fetching is not None:
                    await self._read_processes(snapshot)
                    await self._read_logs(snapshot)
                    await asyncio.to_thread(self._write_fetched, snapshot, await fetching)
                    await asyncio.to_thread(self._copy, snapshot)
            finally:
                if fetching is not None and not fetching.done():
                    fetching.cancel()
                    with suppress(asyncio.CancelledError):
                        await fetching
            took_s = (self._clock.now_ns() - began_ns) / 1e9
            await asyncio.to_thread(snapshot.close, detail=detail, began_ns=began_ns, took_s=took_s)
            self._emit(
                ev.ForensicsTaken(
                    t_ns=self._clock.now_ns(),
                    src="probe:forensics",
                    src_t_ns=began_ns,
                    folder=snapshot.name,
                    reason=reason,
                    detail=detail,
                    threads_only=threads_only,
                    files=tuple(entry.name for entry in snapshot.files),
                    size=snapshot.size,
                    took_s=round(took_s, 3),
                    stacks={node: of.threads for node, of in read.items() if of.threads},
                    missing=tuple(map(str, snapshot.missing)),
                )
            )

    # ------------------------------------------------------------------------------------------ asked of hosts

    async def _read_stacks(self, snapshot: Snapshot) -> dict[str, _Stacks]:
        located = self._watched.located()
        found = [subject for subject in self._subjects if subject.node in located]
        return {subject.node: await self._stacks_of(subject, located[subject.node], snapshot) for subject in found}

    async def _stacks_of(self, subject: Subject, root: Located, snapshot: Snapshot) -> _Stacks:
        node = subject.node
        try:
            read = await stacks.read(subject.host, root, snapshot.left_s())
        except stacks.NoStacks as why:
            snapshot.lacks("thread stacks", str(why), node=node)
            return _Stacks(complete=False)
        for failure in read.failed.values():
            snapshot.lacks("thread stacks", failure, node=node)
        await asyncio.to_thread(self._write_stacks, snapshot, node, read)
        every = [thread for threads in read.threads.values() for thread in threads]
        return _Stacks(len(every), [thread.label for thread in every], complete=not read.failed)

    async def _read_processes(self, snapshot: Snapshot) -> None:
        located = self._watched.located()
        for subject in self._subjects:
            try:
                told = await self._inspect(subject, located.get(subject.node), snapshot)
            except _Missing as why:
                snapshot.lacks("processes", str(why), node=subject.node)
            else:
                await asyncio.to_thread(self._write_processes, snapshot, subject.node, told)

    async def _inspect(self, subject: Subject, root: Located | None, snapshot: Snapshot) -> object:
        if root is None:
            raise _Missing("nobody knows where they are")
        if snapshot.over():
            raise _Missing("the time was up")
        told = await _asked(processes.inspect(subject.host, root))
        if not told:
            raise _Missing("its process is gone")
        return told

    async def _read_logs(self, snapshot: Snapshot) -> None:
        for subject in self._subjects:
            try:
                ends = await _asked(_ends(subject)) if subject.logs else {}
            except _Missing as why:
                ends = {}
                snapshot.lacks("log", str(why), node=subject.node)
            for stream, pattern in subject.logs:
                for number, path in enumerate(ends.get(pattern) or [pattern]):
                    name = f"{subject.node}-{stream}{f'-{number + 1}' if number else ''}.txt"
                    try:
                        text = await self._stretch(subject, pattern, path, snapshot)
                    except _Missing as why:
                        snapshot.lacks(stream, str(why), node=subject.node)
                        continue
                    what = "log around the last fault and its end"
                    await asyncio.to_thread(snapshot.save, name, what, text, node=subject.node)

    async def _stretch(self, subject: Subject, pattern: str, path: str, snapshot: Snapshot) -> str:
        if snapshot.over():
            raise _Missing("the time was up")
        if not pattern:
            raise _Missing("it is no file")
        around = self._marks.get(subject.node, {}).get(pattern, {}).get(path)
        return str(await _asked(subject.host.call("stretch", timeout_s=LOOK_S, path=path, around=around)))

    # ------------------------------------------------------------------------------------------ in threads

    @staticmethod
    def _write_stacks(snapshot: Snapshot, node: str, read: stacks.Stacks) -> None:
        if not read.threads:
            return
        texts = [
            f"=== process {pid}: {len(threads)} threads\n\n{stacks.text(threads)}"
            for pid, threads in read.threads.items()
        ]
        snapshot.save(f"{node}-stacks.txt", "thread stacks", "\n".join(texts), node=node)
        raw = msgspec.json.encode(read.threads)
        snapshot.save(f"{node}-stacks.json", "thread stacks, for programs", raw, node=node)

    def _write_processes(self, snapshot: Snapshot, node: str, told: object) -> None:
        text = msgspec.json.format(msgspec.json.encode(processes.redacted(told, self._redactor)), indent=2)
        what = "processes: command lines, environment, sockets"
        snapshot.save(f"{node}-processes.json", what, text, node=node)

    def _write_fetched(self, snapshot: Snapshot, fetched: list[tuple[str, str, bytes | str]]) -> None:
        for node, what, got in fetched:
            if isinstance(got, str):
                snapshot.lacks(what, got, node=node)
            elif what == "metrics":
                snapshot.save(f"{node}-metrics.prom", "metrics as they are", got, node=node)
            else:
                try:
                    data = servers.trimmed_info(got, self._redactor)
                except servers.Unreadable as why:
                    snapshot.lacks(what, str(why), node=node)
                else:
                    snapshot.save(f"{node}-info.json", "version and settings, trimmed", data, node=node)

    def _copy(self, snapshot: Snapshot) -> None:
        for name in COPIED:
            try:
                text = (self._folder.root / name).read_text()
            except OSError as error:
                snapshot.lacks(name, error.strerror or str(error))
            else:
                snapshot.save(name, "as resolved for this run", text)

    # ------------------------------------------------------------------------------------------ helpers

    async def _fetch_all(self) -> list[tuple[str, str, bytes | str]]:
        """Metrics and info of every node: node, what, and the body or why there is none."""
        asked = [
            (subject.node, what, url)
            for subject in self._subjects
            for what, url in (("metrics", subject.metrics_url), ("version and settings", subject.info_url))
            if url
        ]
        return list(await asyncio.gather(*(self._fetch(*one) for one in asked)))

    async def _fetch(self, node: str, what: str, url: str) -> tuple[str, str, bytes | str]:
        try:
            return node, what, await servers.fetch(self._http, url, self._headers)
        except servers.Unreadable as why:
            return node, what, str(why)

    def _shown(self, names: list[str]) -> tuple[str, ...]:
        """Names for the journal; when there are very many, those that matter come first."""
        matter = [name for name in names if any(wanted in name for wanted in self._wanted)]
        others = [name for name in names if not any(wanted in name for wanted in self._wanted)]
        return tuple([*sorted(matter), *sorted(others)][:MOST_NAMES])


class _Missing(Exception):
    """Something cannot be saved; the text says why."""


async def _asked(asking: Awaitable[T]) -> T:
    """What a host tells; raises _Missing."""
    try:
        return await asking
    except HostTrouble as why:
        raise _Missing(why.text) from None
    except HostLost:
        raise _Missing("its host did not answer") from None


async def _ends(subject: Subject) -> Marks:
    """Where the node's logs end now. Raises HostLost, HostTrouble."""
    patterns = [pattern for _, pattern in subject.logs if pattern]
    return msgspec.convert(await subject.host.call("ends", timeout_s=LOOK_S, patterns=patterns), Marks)
