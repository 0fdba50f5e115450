"""Our own fitness, twice a second: how late the event loop runs, and what was sent against what was due."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from .report import Report
    from .sessions import Load

BEAT_S = 0.5
_SAMPLE_S = 0.01


class Beat:
    """Samples the loop's lag and reports it with the load's counters."""

    def __init__(self, loop: asyncio.AbstractEventLoop, load: Load, report: Report) -> None:
        self._loop = loop
        self._load = load
        self._report = report
        self._lags: list[float] = []
        self._due = 0.0
        self._next_beat = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin sampling."""
        now = self._loop.time()
        self._due = now + _SAMPLE_S
        self._next_beat = now + BEAT_S
        self._timer = self._loop.call_at(self._due, self._sample)

    def stop(self) -> None:
        """Report a last time."""
        if self._timer is not None:
            self._timer.cancel()
        self._beat()

    def _sample(self) -> None:
        now = self._loop.time()
        self._lags.append(now - self._due)
        if now >= self._next_beat:
            self._next_beat = now + BEAT_S
            self._beat()
        # From now, not from when it was due: a stall is one late sample, not a burst of them.
        self._due = self._loop.time() + _SAMPLE_S
        self._timer = self._loop.call_at(self._due, self._sample)

    def _beat(self) -> None:
        lags = sorted(self._lags) or [0.0]
        self._lags = []
        load, counters = self._load, self._load.counters
        self._report.emit(
            "beat",
            {
                "lag_max_ms": round(lags[-1] * 1e3, 3),
                "lag_p99_ms": round(lags[(len(lags) * 99 + 99) // 100 - 1] * 1e3, 3),
                "open_files": open_files(),
                "intended": counters.intended,
                "delivered": counters.delivered,
                "tokens": load.tokens(),
                "completed": counters.completed,
                "failed": counters.failed,
                "phases": load.phases.census(),
            },
        )


def open_files() -> int:
    """Open file descriptors of this process; 0 where the system does not tell."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return 0
