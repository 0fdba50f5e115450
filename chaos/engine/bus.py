"""One event stream, many listeners. The engine emits; it does not know who listens.

What nobody may be told (`discretion`) is taken out first, so that no listener need think of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.journal import JournalWriter
    from chaos.model.events import AnyEvent, RunEnded

SYNC_EVERY_S = 1.0
"""Group commit of the journal: a machine crash loses at most this much, a process crash nothing."""


class Listener(Protocol):
    """Whoever wants to see events: the judge's fold, a live view."""

    def on_event(self, event: AnyEvent, /) -> None:
        """See one stamped event."""


class Bus:
    """Stamps every event, journals it first, then shows it to the listeners."""

    def __init__(
        self,
        journal: JournalWriter,
        listeners: list[Listener],
        discreet: Callable[[AnyEvent], AnyEvent] = lambda event: event,
    ) -> None:
        self.cycle = 0
        self.broken = asyncio.Event()  # set once the journal can no longer be written
        self.dropped: list[str] = []  # listeners that raised
        self._journal = journal
        self._listeners = list(listeners)
        self._discreet = discreet

    def emit(self, event: AnyEvent, /) -> None:
        """Journal and publish one event."""
        self._publish(self._stamp_and_write(event))

    def farewell(self, event: RunEnded) -> None:
        """Journal the last event, even on a full disk when the reserve allows, and publish it."""
        stamped = self._journal.stamp(self._discreet(event), self.cycle)
        self._journal.farewell(stamped)
        self._publish(stamped)

    @property
    def failure(self) -> OSError | None:
        """Why the journal broke, if it did."""
        return self._journal.failure

    async def keep_synced(self) -> None:
        """Commit the journal to disk once a second, off the event loop, until cancelled."""
        while True:
            await asyncio.sleep(SYNC_EVERY_S)
            await asyncio.to_thread(self._journal.sync)
            if self._journal.failure is not None:
                self.broken.set()

    def _stamp_and_write(self, event: AnyEvent) -> AnyEvent:
        stamped = self._journal.stamp(self._discreet(event), self.cycle)
        self._journal.write(stamped)
        if self._journal.failure is not None:
            self.broken.set()
        return stamped

    def _publish(self, event: AnyEvent) -> None:
        for listener in tuple(self._listeners):
            try:
                listener.on_event(event)
            except Exception as error:  # noqa: BLE001 - a view's defect must not end a run that broke a deployment
                self._listeners.remove(listener)
                self.dropped.append(f"{type(listener).__name__}: {error!r}")
