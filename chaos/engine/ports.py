"""The seams of the engine, passed in: a clock (tests use virtual time), an event sink, and who can restart a node."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from chaos.engine.hosts import Host
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


class Restarter(Protocol):
    """Knows how to replace a node's process: a command in the target file, or a lab that started it."""

    def can_restart(self, node: str, variant: str | None = None) -> bool:
        """Whether it knows how to restart this node, and as this variant of itself."""

    def plainly(self, node: str) -> str | None:
        """The shell command that restarts a node as it was, where its host can do that without us; else None."""

    def restart(self, node: str, host: Host, timeout_s: float, variant: str | None = None) -> None:
        """Replace the node's process, which is on `host`; blocks until that is done. PdchaosError when it cannot be."""


class SystemClock:
    """The real clock."""

    def now_ns(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC."""
        return time.monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        """Sleep in the event loop."""
        await asyncio.sleep(seconds)
