"""Tells the past of a log, which a command may print before it goes on with what is new, from what is new.

What a command prints until it first pauses may be its log's past: lines that are stamped before the run, or before the
last one that was read in a former life of the command, and lines without any stamp that such ones come after. What it
prints later is never past, whatever its stamp: a container's clock may run in another zone than its host's.
"""

from __future__ import annotations

import calendar
import re
import time
from typing import TYPE_CHECKING, NamedTuple

from chaos.outpost.scan import split_lines, stamp_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.outpost.lines import Hit

PAUSE_S = 1.0
"""A command that has printed something, and then nothing for so long, has printed the past."""
OPENING_S = 15.0
"""So long after its start it has, too: one that never pauses prints what is new by then."""
EARLY_NS = 3_000_000_000
"""New, but stamped before the run: what a logger holds back, and the second that a stamp is cut to."""
AHEAD_NS = 200_000_000
"""A line may be written while the clock is read."""
ZONES_NS = 15 * 3600 * 1_000_000_000
"""No zone is further ahead of UTC."""
_STAMP = re.compile(
    r"(?:(\d{4})[-/])?(\d{1,2}?)[-/]?(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[-+]\d\d:?\d\d)?"
)


class Now(NamedTuple):
    """A host's wall clock and how far its local time is ahead of UTC."""

    wall_ns: int
    tz_s: int


class Past:
    """What is past of one text of a command.

    `last` is how far it was read in a former life: the last stamp, and how many hits bore it. Of those with the same
    stamp so many are past; a second is long.
    """

    def __init__(self, since_ns: int, last: Sequence[object] = ("", 0)) -> None:
        """`since_ns` is when the host was asked where its logs end, on its wall clock."""
        self._since_ns = since_ns
        self._former = (str(last[0]), int(str(last[1])))
        self._date, self._found = "", 0
        self._left = self._former[1]
        self._held: list[Hit] = []
        self.begins = False
        """Whether the first stamp of this life of the command is past."""
        self.count = 0

    @property
    def last(self) -> tuple[str, int]:
        """How far it was read; a command that prints its past again is not there at once."""
        now = time.time_ns()
        if not self._date or _utc_ns(self._date, now) < _utc_ns(self._former[0], now):
            return self._former
        return self._date, max(self._found, self._former[1] if self._date == self._former[0] else 0)

    @property
    def note(self) -> str:
        """How many known lines are no evidence."""
        return f"known lines older than the run, or told before: {self.count}" if self.count else ""

    def again(self) -> None:
        """The command is started once more."""
        self._former = self.last
        self._left = self._former[1]
        self._date, self._found, self.begins = "", 0, False

    def read(self, block: bytes, hits: Sequence[Hit], date: str, now: Now, *, opening: bool) -> list[Hit]:
        """The hits of a block that are news for certain. `date` is the last stamp before the end of the block."""
        if opening and not self._date:
            first = next(filter(None, map(stamp_of, split_lines(block))), "")
            self.begins = self.begins or (bool(first) and (first == self._former[0] or self._is_past(first, now)))
        self._found = sum(hit.found.log_time == date for hit in hits) + (self._found if date == self._date else 0)
        self._date = date
        if not opening:
            return list(hits)
        news = []
        for hit in hits:
            if not hit.found.log_time:
                self._held.append(hit)
            elif self._is_past(hit.found.log_time, now) or self._is_again(hit.found.log_time):
                self.count += 1
            else:
                news.append(hit)
        return news

    def settle(self, *, past: bool) -> list[Hit]:
        """The command has paused: of the hits that no stamp came before it is now known whether they are `past`."""
        held, self._held = self._held, []
        if past:
            self.count += len(held)
        return [] if past else held

    def _is_past(self, stamp: str, now: Now) -> bool:
        read = _read(stamp, now.wall_ns)
        if read is None:
            return False
        if read.utc_ns < _utc_ns(self._former[0], now.wall_ns):
            return True  # by the log's own clock, whichever it is
        moments = [read.utc_ns] if read.zoned else [read.utc_ns, read.utc_ns - now.tz_s * 1_000_000_000]
        written = [moment for moment in moments if moment <= now.wall_ns + AHEAD_NS]
        return bool(written) and max(written) < self._since_ns - EARLY_NS

    def _is_again(self, stamp: str) -> bool:
        if stamp != self._former[0]:
            return False
        self._left -= 1
        return self._left >= 0


def now() -> Now:
    """What the clock of this host shows."""
    return Now(time.time_ns(), time.localtime().tm_gmtoff)


class _Read(NamedTuple):
    """A stamp in nanoseconds since the epoch, taken for UTC unless it is `zoned`."""

    utc_ns: int
    zoned: bool


def _utc_ns(stamp: str, now_ns: int) -> int:
    read = _read(stamp, now_ns)
    return -1 if read is None else read.utc_ns


def _read(stamp: str, now_ns: int) -> _Read | None:
    """None for what is no stamp. Where the year is left out (glog), the last one that is not to come."""
    match = _STAMP.fullmatch(stamp)
    if match is None or not 1 <= int(match[2]) <= 12:
        return None
    rest = [int(part) for part in match.groups()[1:6]]
    this = time.gmtime(now_ns // 1_000_000_000).tm_year
    years = [int(match[1])] if match[1] else [this - 1, this, this + 1]
    told = [calendar.timegm((year, *rest)) * 1_000_000_000 for year in years]  # a 31st of June is the 1st of July
    ns = max((one for one in told if one <= now_ns + ZONES_NS), default=told[0])
    if match[8] and match[8] != "Z":
        hours, minutes = int(match[8][1:3]), int(match[8][-2:])
        ns -= (1 if match[8][0] == "+" else -1) * (hours * 3600 + minutes * 60) * 1_000_000_000
    return _Read(ns + int((match[7] or "0").ljust(9, "0")), bool(match[8]))
