"""The journal's clock of imported evidence: nanoseconds since the watch began, so that the hour changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.model.moments import parse_moment

if TYPE_CHECKING:
    from chaos.model.observations import Observations

BEGIN_NS = 1_000_000_000
"""A monotonic clock does not begin at zero."""


@dataclass(frozen=True, slots=True)
class ImportClock:
    """Turns moments into the journal's time. `since_ns` and `until_ns` are nanoseconds since the epoch."""

    day: str | None
    since_ns: int
    until_ns: int

    @classmethod
    def of(cls, told: Observations) -> ImportClock:
        """The clock of a valid observations file."""
        since, until = (parse_moment(text, told.date) for text in (told.watched.since, told.watched.until))
        return cls(told.date, since, until)

    @property
    def begin(self) -> int:
        """When the watch began, on the journal's clock."""
        return BEGIN_NS

    @property
    def end(self) -> int:
        """When the watch ended, on the journal's clock."""
        return self.on_journal(self.until_ns)

    def at(self, moment: str) -> int:
        """A moment as people write it, on the journal's clock."""
        return self.on_journal(parse_moment(moment, self.day))

    def on_journal(self, epoch_ns: int) -> int:
        """A moment of the epoch on the journal's clock."""
        return epoch_ns - self.since_ns + BEGIN_NS

    def watched(self, epoch_ns: int) -> bool:
        """Whether a moment lies in the time watched."""
        return self.since_ns <= epoch_ns <= self.until_ns
