"""An abort storm: many aborts within a short time, as a wave of dying clients makes them."""

from __future__ import annotations

import time
from collections import deque

ENOUGH = 8
_SPAN_S = 1.0


class Storm:
    """Counts aborts; what happened more than a second ago is forgotten."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=ENOUGH)

    def more(self) -> bool:
        """One more abort: whether it makes a storm."""
        now = time.monotonic()
        self._times.append(now)
        return len(self._times) == ENOUGH and now - self._times[0] < _SPAN_S
