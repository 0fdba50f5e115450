"""An abort storm: many aborts within seconds, as a wave of dying clients makes them."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from chaos.lab.sim.decode_scheduler import DecodeScheduler

if TYPE_CHECKING:
    from chaos.lab.sim.scheduler import Parts

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


class StormyDecode(DecodeScheduler):
    """Something happens once, in the first abort storm."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._storm = Storm()
        self._happened = False

    def abort(self, rid: str, *, abort_all: bool) -> None:
        """Abort, and count."""
        super().abort(rid, abort_all=abort_all)
        if self._storm.more() and not self._happened:
            self._happened = True
            self.on_storm()

    def on_storm(self) -> None:
        """What happens."""
        raise NotImplementedError
