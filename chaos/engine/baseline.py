"""Counts baseline canaries: a target that does not serve before anything was broken is unfit, not wedged."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from chaos.model import events as ev

if TYPE_CHECKING:
    from collections.abc import Mapping


class Baseline:
    """A listener that knows how many canaries passed in a row on each path, and what the last failure said."""

    def __init__(self, deadline_s: float) -> None:
        self.last_error = ""
        self._deadline_ns = deadline_s * 1e9
        self._in_a_row: dict[str, int] = defaultdict(int)
        self._overdue: set[str] = set()

    def on_event(self, event: ev.AnyEvent, /) -> None:
        """Count canaries."""
        match event:
            case ev.RequestEnded() if event.req in self._overdue:
                self._overdue.discard(event.req)  # however it ended: it broke the row when it became overdue
            case ev.RequestEnded(kind="canary", ok=True) if self._in_time(event):
                self._in_a_row[event.path] += 1
            case ev.RequestEnded(kind="canary", ok=True):
                self._in_a_row[event.path] = 0
                self.last_error = f"answered later than {self._deadline_ns / 1e9:g} s"
            case ev.RequestEnded(kind="canary"):
                self._in_a_row[event.path] = 0
                self.last_error = f"{event.error or event.ended_by} {event.detail}".strip()
            case ev.RequestOverdue(kind="canary"):
                self._overdue.add(event.req)
                self._in_a_row[event.path] = 0
                self.last_error = f"no answer within {event.deadline_s:g} s"

    def _in_time(self, event: ev.RequestEnded) -> bool:
        # As the judge has it: a canary may end late before anybody could say that it is overdue.
        return event.sent_ns is None or (event.last_ns or event.t_ns) - event.sent_ns <= self._deadline_ns

    def warm(self, in_a_row: Mapping[str, int]) -> bool:
        """True when every path has passed as often in a row as it must."""
        return not self.cold(in_a_row)

    def cold(self, in_a_row: Mapping[str, int]) -> list[str]:
        """The paths that have not."""
        return [path for path, wanted in in_a_row.items() if self._in_a_row[path] < wanted]
