"""Writes the outpost's lines, one after another: prompt ones first, long answers in turns."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROMPT = 0
"""The lane that goes before all others; requests are numbered from 1."""
LANE_BYTES = 1 << 20
"""Whoever has so much waiting waits, too."""


class Pen:
    """The one writer of a descriptor. When a write fails `on_broken` is called, and whoever writes BrokenPipeError."""

    def __init__(self, fd: int, on_broken: Callable[[], object]) -> None:
        self._fd = fd
        self._on_broken = on_broken
        self._changed = threading.Condition()
        self._lanes: dict[int, deque[bytes]] = {}
        self._waiting: dict[int, int] = {}  # bytes
        self.broken = False
        threading.Thread(target=self._run, name="pen", daemon=True).start()

    def write(self, lane: int, lines: Sequence[bytes]) -> None:
        """Hand over lines of one lane; they keep their order. Blocks while the lane is full."""
        for line in lines:
            with self._changed:
                while self._waiting.get(lane, 0) > LANE_BYTES and not self.broken:
                    self._changed.wait()
                if self.broken:
                    raise BrokenPipeError
                self._lanes.setdefault(lane, deque()).append(line)
                self._waiting[lane] = self._waiting.get(lane, 0) + len(line)
                self._changed.notify_all()

    def flush(self, timeout_s: float) -> None:
        """Wait until all is written, as long as that may take."""
        with self._changed:
            self._changed.wait_for(lambda: self.broken or not self._waiting, timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lanes:
                    self._changed.wait()
                lane = PROMPT if PROMPT in self._lanes else next(iter(self._lanes))
                lines = self._lanes.pop(lane)
                line = lines.popleft()
                if lines:
                    self._lanes[lane] = lines  # last now: the others' turn comes first
            try:
                view = memoryview(line)
                while view:
                    view = view[os.write(self._fd, view) :]
            except OSError:
                with self._changed:
                    self.broken = True
                    self._changed.notify_all()
                self._on_broken()
                return
            with self._changed:
                self._waiting[lane] -= len(line)
                if not self._waiting[lane]:
                    del self._waiting[lane]
                self._changed.notify_all()
