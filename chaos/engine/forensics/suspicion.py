"""Decides when to save forensics: at the first sign that something broke, once per cycle.

A listener, so it sees every event at once; it only remembers. It knows no outcome: a false suspicion costs a snapshot.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.model import events as ev

if TYPE_CHECKING:
    from collections.abc import Callable

FATAL = ("fatal", "crash")


@dataclass(frozen=True, slots=True)
class Suspect:
    """Why forensics are wanted."""

    reason: str
    detail: str


class Suspicion:
    """Watches events and hands out the first suspicion of each cycle."""

    def __init__(self) -> None:
        self.faults = 0  # that were applied so far: when it grows, something was just broken
        self.on_fault: Callable[[], None] = lambda: None  # called when one was applied
        self._raised: asyncio.Queue[Suspect] = asyncio.Queue()
        self._armed = False
        self._young: set[str] = set()  # canaries begun after the last fault
        self._alive: dict[str, set[int]] = {}  # node -> its processes when last seen

    async def next(self) -> Suspect:
        """Wait for a suspicion."""
        return await self._raised.get()

    def on_event(self, event: ev.AnyEvent, /) -> None:
        """See one event."""
        match event:
            case ev.PhaseEntered():
                self._phase(event.phase)
            case ev.WaveFired():
                self._fault()
            case ev.FaultStep(stage="applied", ok=True) if event.kind != "kill":
                self._fault()
            case ev.RequestStarted() | ev.RequestOverdue() | ev.RequestEnded() if event.kind == "canary":
                self._canary(event)
            case ev.LogHit() if event.klass in FATAL:
                self._raise("fatal-line", f"{event.node}: {event.title or event.signature}")
            case ev.ProcessSeen():
                self._process(event)
            case _:
                pass

    def _phase(self, phase: ev.Phase) -> None:
        if phase == "load":
            self._armed = True
            self._young.clear()
        elif phase == "teardown":
            self._armed = False  # what breaks from here on is ours

    def _canary(self, event: ev.RequestStarted | ev.RequestOverdue | ev.RequestEnded) -> None:
        match event:
            case ev.RequestStarted() if self.faults:
                self._young.add(event.req)
            case ev.RequestOverdue() if event.req in self._young:
                self._raise("canary-overdue", f"{event.path}: no answer in {event.deadline_s:g} s")
            case ev.RequestEnded() if event.req in self._young:
                self._young.discard(event.req)
                if not event.ok and event.ended_by != "harness":
                    self._raise("canary-failed", f"{event.path}: {event.error}")
            case _:
                pass

    def _fault(self) -> None:
        self.faults += 1
        self._young.clear()
        self.on_fault()

    def _process(self, event: ev.ProcessSeen) -> None:
        living = {child.pid for child in event.children if child.alive}
        if event.alive:
            living.add(event.pid)
        gone = self._alive.get(event.node, set()) - living
        self._alive[event.node] = living
        if gone:
            self._raise("process-gone", f"{event.node}: {', '.join(f'process {pid}' for pid in sorted(gone))}")

    def _raise(self, reason: str, detail: str) -> None:
        if self._armed:
            self._armed = False
            self._raised.put_nowait(Suspect(reason, detail))
