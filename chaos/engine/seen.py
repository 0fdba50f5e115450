"""What a run knows of its target while it goes, gathered from its own events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.engine.baseline import Baseline
from chaos.engine.forensics import Suspicion
from chaos.engine.pulse import Pulse
from chaos.judge import Facts

if TYPE_CHECKING:
    from chaos.engine.bus import Listener
    from chaos.model import events as ev


class Seen:
    """The judge's facts, and what the engine itself asks of the stream of events."""

    def __init__(self, canary_deadline_s: float) -> None:
        self.facts = Facts()
        self.baseline = Baseline(canary_deadline_s)
        self.pulse = Pulse()
        self.suspicion = Suspicion()

    @property
    def listeners(self) -> list[Listener]:
        """What must hear every event."""
        return [_Fold(self.facts), self.baseline, self.pulse, self.suspicion]


class _Fold:
    """Feeds the judge's fold as the run goes."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def on_event(self, event: ev.AnyEvent, /) -> None:
        self._facts.feed(event)
