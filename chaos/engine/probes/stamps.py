"""Stamps of log lines as nanoseconds since the epoch: what an engine, a router or a container's wrapper writes."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from chaos.model.moments import parse_offset, since_epoch_ns

if TYPE_CHECKING:
    from datetime import timezone

_STAMP = re.compile(
    r"(?:(?P<year>\d{4})[-/])?(?P<month>\d{1,2}?)[-/]?(?P<day>\d\d)[T ]"
    r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?(?P<zone>Z|[-+]\d\d:?\d\d)?"
)
HALF_A_DAY = timedelta(hours=12)


class Stamps:
    """Reads the stamps of one log. A zone in the stamp wins over the log's offset.

    glog and vLLM leave out the year: it is the one that brings a stamp nearest to a moment of the log (`near_ns`, since
    the epoch), as it has to be over New Year.
    """

    def __init__(self, zone: timezone, near_ns: int) -> None:
        self._zone = zone
        self._near_ns = near_ns
        self._year = datetime.fromtimestamp(near_ns // 1_000_000_000, zone).year
        self._last = ("", 0)

    def epoch_ns(self, stamp: str) -> int | None:
        """Nanoseconds since the epoch; None for what no calendar has."""
        if stamp != self._last[0]:
            read = self._read(stamp)
            if read is None:
                return None
            self._last = (stamp, read)
        return self._last[1]

    def clock_ns(self, time_of_day: str, near_ns: int, stamp: str) -> int | None:
        """The moment nearest to a stamp at which the same clock showed `HH:MM:SS`."""
        match = _STAMP.fullmatch(stamp)
        if match is None:
            return None
        shown = timedelta(hours=int(match["hour"]), minutes=int(match["minute"]), seconds=int(match["second"]))
        hour, minute, second = map(int, time_of_day.split(":"))
        ago = shown - timedelta(hours=hour, minutes=minute, seconds=second)
        if ago < -HALF_A_DAY:
            ago += timedelta(days=1)
        return near_ns - round(ago.total_seconds()) * 1_000_000_000

    def _read(self, stamp: str) -> int | None:
        match = _STAMP.fullmatch(stamp)
        if match is None:
            return None
        zone = self._zone if match["zone"] is None else parse_offset(match["zone"])
        years = (int(match["year"]),) if match["year"] else (self._year, self._year - 1, self._year + 1)
        read = [at for at in (_moment(match, year, zone) for year in years) if at is not None]
        return min(read, key=lambda at: abs(at - self._near_ns), default=None)


def _moment(match: re.Match[str], year: int, zone: timezone) -> int | None:
    """A stamp of this year, since the epoch; None for what no calendar has."""
    try:
        whole = datetime(
            year,
            int(match["month"]),
            int(match["day"]),
            int(match["hour"]),
            int(match["minute"]),
            int(match["second"]),
            tzinfo=zone,
        )
    except ValueError:
        return None
    return since_epoch_ns(whole) + int((match["fraction"] or "0").ljust(9, "0"))
