"""Nodes whose inner loop has ceased to give a sign, by what they themselves say of it.

A heartbeat that moves shows that a loop turns, and not that users' work is done: a node that can only answer its own
health checks has one, too. One that stands still belongs to a loop that is stuck; where a node is only late, it moves
from one reading to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.judge.metrics import of_use
from chaos.judge.units import ns, span

if TYPE_CHECKING:
    from chaos.judge.facts import Facts
    from chaos.judge.windows import Window


@dataclass(frozen=True, slots=True)
class Frozen:
    """A heartbeat that was the same in every reading of a stretch."""

    node: str
    stood_s: float  # from the first of these readings to the last
    seqs: tuple[int, ...]

    @property
    def text(self) -> str:
        """For people."""
        return f"the heartbeat of {self.node} stood still from one look to the next, for {span(self.stood_s)}"


def frozen_heartbeats(facts: Facts, window: Window) -> tuple[Frozen, ...]:
    """Heartbeats that stand still to the last reading of a window, for longer than a request may take."""
    found = []
    for series, readings in of_use(facts, "heartbeat", {node.id for node in facts.nodes}, told=True):
        seen = sorted((r for r in readings if r.t_ns <= window.horizon_ns), key=lambda r: (r.t_ns, r.seq))
        still = [reading for reading in seen if reading.value == seen[-1].value]
        stood_ns = still[-1].t_ns - still[0].t_ns if still else 0
        if still and still[-1].t_ns >= window.anchor_ns and stood_ns >= ns(facts.plan.canary_deadline_s):
            found.append(Frozen(series.node, stood_ns / 1e9, (still[0].seq, still[-1].seq)))
    return tuple(found)
