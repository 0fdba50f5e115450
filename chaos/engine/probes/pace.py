"""Absolute deadlines: a probe that runs late skips what it missed instead of drifting or catching up in a burst."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.engine.ports import Clock


class Pace:
    """A grid of moments `interval_s` apart, the first of them now."""

    def __init__(self, clock: Clock, interval_s: float) -> None:
        self._clock = clock
        self._step_ns = max(1, int(interval_s * 1e9))
        self._next_ns = clock.now_ns()

    async def next(self) -> int:
        """Sleep until the next moment of the grid that is not over yet; returns the moment that was meant."""
        now_ns = self._clock.now_ns()
        if now_ns < self._next_ns:
            await self._clock.sleep((self._next_ns - now_ns) / 1e9)
        meant_ns = self._next_ns
        late = max(0, self._clock.now_ns() - meant_ns) // self._step_ns
        self._next_ns = meant_ns + (late + 1) * self._step_ns
        return meant_ns
