"""How a host's clocks stand to ours: asked several times, and the answer that came back fastest is believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

DRIFT = 500e-6
"""Seconds per second that two clocks may part: no NTP slews faster."""
JUMP_NS = 100_000_000
"""Less than this is nobody's concern: logs are written in milliseconds, canaries last seconds."""


@dataclass(frozen=True, slots=True)
class HostClock:
    """All in nanoseconds, but for `tz_s`; measured when ours showed `at_ns`."""

    offset_ns: int  # add to a stamp of the host's CLOCK_MONOTONIC to get ours
    uncertainty_ns: int
    wall_offset_ns: int  # add to a stamp of the host's wall clock to get our CLOCK_MONOTONIC
    tz_s: int  # that its local time is ahead of UTC
    at_ns: int

    def uncertain_ns(self, now_ns: int) -> int:
        """What it is worth by now."""
        return self.uncertainty_ns + int(DRIFT * max(now_ns - self.at_ns, 0))

    def agrees(self, other: HostClock) -> bool:
        """Whether both can be true, by and large: otherwise one of the machines slept, or the host was booted."""
        apart = abs(self.offset_ns - other.offset_ns)
        return apart <= self.uncertain_ns(other.at_ns) + other.uncertainty_ns + JUMP_NS

    def better(self, other: HostClock) -> HostClock:
        """Of two that agree, the one that is worth more at the time of the other, later one.

        Where somebody has set the host's wall clock meanwhile, or its time zone has changed, that is the later one.
        """
        set_anew = abs(self.wall_offset_ns - other.wall_offset_ns) > JUMP_NS or self.tz_s != other.tz_s
        return self if self.uncertain_ns(other.at_ns) < other.uncertainty_ns and not set_anew else other


@dataclass(frozen=True, slots=True)
class Ping:
    """Our clock before asking and after the answer, and what the host answered (op `now`)."""

    sent_ns: int
    now: dict[str, Any]
    read_ns: int

    @property
    def took_ns(self) -> int:
        """The whole way there and back."""
        return self.read_ns - self.sent_ns


def measured(pings: Iterable[Ping]) -> HostClock:
    """The host answered somewhere between our two stamps: the shorter the way, the less doubt."""
    best = min(pings, key=lambda ping: ping.took_ns)
    middle_ns = (best.sent_ns + best.read_ns) // 2
    return HostClock(
        offset_ns=middle_ns - best.now["mono_ns"],
        uncertainty_ns=best.took_ns // 2 + 1,
        wall_offset_ns=middle_ns - best.now["wall_ns"],
        tz_s=best.now["tz_s"],
        at_ns=best.read_ns,
    )
