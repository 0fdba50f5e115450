"""When a line of a log was written, on our clock, where its stamp can be understood.

Engines log local time without a zone, routers UTC. A stamp with a zone is exact. One without is local time on its host,
unless that puts it in the future or before anything was read, and UTC does not: then it was UTC.
"""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from typing import TYPE_CHECKING

from chaos.engine.probes.stamps import Stamps
from chaos.outpost.history import AHEAD_NS, EARLY_NS

if TYPE_CHECKING:
    from chaos.engine.probes.follow import Clocks


class Written:
    """For the lines of one source; what it found out about its zone holds for those that follow."""

    def __init__(self, since_ns: int) -> None:
        """`since_ns` is when the cursor was taken, on our clock: nothing that counts was written before."""
        self._since_ns = since_ns
        self._utc_first = False

    def at(self, stamp: str, clocks: Clocks, offset_ns: int) -> int | None:
        """When it was written, on our monotonic clock; None where the stamp cannot be true.

        `clocks` are those of the host when the line was read, `offset_ns` brings its monotonic clock to ours.
        """
        read_ns = clocks.mono_ns + offset_ns
        local = timezone(timedelta(seconds=clocks.tz_s))
        for zone in (UTC, local) if self._utc_first else (local, UTC):
            epoch_ns = Stamps(zone, clocks.wall_ns).epoch_ns(stamp)
            if epoch_ns is None:
                continue
            written_ns = read_ns - (clocks.wall_ns - epoch_ns)
            if self._since_ns - EARLY_NS <= written_ns <= read_ns + AHEAD_NS:
                self._utc_first = zone is UTC
                return min(written_ns, read_ns)
        return None
