"""The panes of the timeline: what each strip of the figure draws, as plotly traces that carry a role."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.render.panes.canaries import lanes, latency
from chaos.render.panes.lines import ourselves, progress, queues
from chaos.render.panes.log import log_lines
from chaos.render.panes.sessions import sessions

if TYPE_CHECKING:
    from chaos.render.panes.pane import Pane
    from chaos.render.record import Record

_PANES = (lanes, latency, sessions, queues, progress, log_lines, ourselves)


def build_panes(record: Record) -> list[Pane]:
    """Every pane that has something to draw, from top to bottom."""
    panes = [draw(record) for draw in _PANES]
    return [pane for pane in panes if pane.traces]
