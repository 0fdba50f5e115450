"""Work that ends early when the run is asked to stop gently or to leave at once (`safety.py` hears these wishes)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from chaos.engine.safety import Interrupt

T = TypeVar("T")


class Stop(Exception):
    """The run was asked to stop gently, or cannot go on recording."""


class Leave(Exception):
    """The run was asked to leave at once."""


class Stopping:
    """Awaits work, unless somebody wishes otherwise first. `broken` is set once nothing can be recorded any more."""

    def __init__(self, interrupt: Interrupt, broken: asyncio.Event) -> None:
        self._interrupt = interrupt
        self._broken = broken

    async def or_stop(self, work: Coroutine[None, None, T]) -> T:
        """Await `work`; raises `Stop` or `Leave` when the run is asked to stop or cannot record any more."""
        return await self._race(work, gentle=True)

    async def or_leave(self, work: Coroutine[None, None, T]) -> T:
        """Await `work`; raises `Leave` when the run is asked to leave at once."""
        return await self._race(work, gentle=False)

    async def _race(self, work: Coroutine[None, None, T], *, gentle: bool) -> T:
        task = asyncio.ensure_future(work)
        signals = [asyncio.ensure_future(self._interrupt.now.wait())]
        if gentle:
            signals += [asyncio.ensure_future(e.wait()) for e in (self._interrupt.gentle, self._broken)]
        try:
            await asyncio.wait([task, *signals], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in signals:
                waiting.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        if task.cancelled():
            if self._interrupt.now.is_set():
                raise Leave(self._interrupt.reason)
            raise Stop(self._interrupt.reason or "the journal cannot be written")
        return task.result()
