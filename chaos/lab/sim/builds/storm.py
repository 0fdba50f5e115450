"""An abort storm: many aborts within seconds, as a wave of dying clients makes them."""

from __future__ import annotations

import time
from collections import deque

ENOUGH = 8
_SPAN_S = 5.0  # they come spread over the 4 s in which clients that left are noticed


class Storm:
    """Counts aborts; what happened more than five seconds ago is forgotten."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=ENOUGH)

    def more(self) -> bool:
        """One more abort: whether it makes a storm."""
        now = time.monotonic()
        self._times.append(now)
        return len(self._times) == ENOUGH and now - self._times[0] < _SPAN_S
