"""The seams of the engine: a clock and an event sink that are passed in, so tests use virtual time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from chaos.model.events import AnyEvent


class Clock(Protocol):
    """Monotonic time."""

    def now_ns(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC."""

    async def sleep(self, seconds: float) -> None:
        """Sleep; tests pass a clock that jumps instead."""


class Emit(Protocol):
    """Hands an event to every listener; the bus fills in `seq` and `cycle`."""

    def __call__(self, event: AnyEvent, /) -> None:
        """Emit."""


class SystemClock:
    """The real clock."""

    def now_ns(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC."""
        return time.monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        """Sleep in the event loop."""
        await asyncio.sleep(seconds)
