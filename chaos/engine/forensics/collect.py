"""Takes snapshots: one at a time, beside the watch, never in its way.

Everything that reads files or other processes happens in a thread, in steps short enough not to hold the interpreter;
requests go to endpoints that generate nothing. A snapshot has a time limit: what is not saved by then is listed as
missing.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from chaos.engine.forensics import servers
from chaos.engine.forensics.folder import Snapshot
from chaos.engine.forensics.nodes import Nodes
from chaos.engine.forensics.redact import Redactor
from chaos.model import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import httpx

    from chaos.engine.forensics.nodes import Subject, Watched
    from chaos.engine.forensics.suspicion import Suspicion
    from chaos.engine.ports import Clock, Emit
    from chaos.journal import RunFolder

LIMIT_S = 20.0
MOST_SNAPSHOTS = 8
"""A run of many cycles, each with its own suspicion, must not fill a disk."""
MOST_NAMES = 400
COPIED = ("target.yaml", "scenario.yaml")
"""Written into the run folder before the run began; they hold references to secrets, no secret."""


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
        self._nodes = Nodes(subjects, watched, self._redactor)
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
            task = self._tasks.create_task(self._nodes.mark())
            self._marking.add(task)
            task.add_done_callback(self._marking.discard)

    async def _take(self, number: int, reason: str, detail: str, *, threads_only: bool) -> None:
        async with self._taking:
            began_ns = self._clock.now_ns()
            until = time.monotonic() + LIMIT_S
            snapshot = Snapshot(self._folder, number, reason, self._redactor, until)
            fetching = None if threads_only else asyncio.ensure_future(self._fetch_all())
            try:
                read = await self._nodes.stacks(snapshot)
                for node, of in read.items():
                    if of.complete and of.names:
                        await self._watched.tell_threads(node, self._shown(of.names))
                if fetching is not None:
                    await self._nodes.processes(snapshot)
                    await self._nodes.logs(snapshot)
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
                    stacks={node: of.count for node, of in read.items() if of.count},
                    missing=tuple(map(str, snapshot.missing)),
                )
            )

    # ------------------------------------------------------------------------------------------ in threads

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
