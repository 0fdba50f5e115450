"""What one look at one log brought, as it travels: only known lines and counts, never the log itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from chaos.outpost.lines import Hit

Cursor = dict[str, Any]
"""From where somebody reads on, as JSON; what it holds is the business of whoever reads that kind of source."""


class Range(NamedTuple):
    """A range of one text that was read; `lost` bytes behind it are known to have gone unread.

    One that `ends` is not joined by what is read next: that is another file, or further on.
    """

    start: int
    end: int
    lines: int
    lost: int = 0
    note: str = ""
    ends: bool = False


class News:
    """One look. `more` says that there was more to read than it was allowed to."""

    def __init__(self) -> None:
        self.hits: list[Hit] = []
        self.ranges: list[Range] = []
        self.gap = ""  # something between the last look and this one is lost
        self.blind = ""  # why it cannot be read now
        self.whole = False  # of what cannot be read now nothing is lost once it can be
        self.more = False
