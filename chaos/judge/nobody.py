"""Tokens that are generated while nobody waits for any: for sessions whose clients are long gone (DESIGN §7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.judge.metrics import PROBE_MARGIN, PROBE_TOKENS, live_sessions, of_use, open_requests, rise
from chaos.judge.stuck import hung_up_early_ns
from chaos.judge.units import SECOND, ns
from chaos.judge.windows import load_start

if TYPE_CHECKING:
    from chaos.judge.facts import Facts, Reading, Series


@dataclass(frozen=True, slots=True)
class ForNobody:
    """A counter of work that rose while the deployment was left idle."""

    series: Series
    tokens: float
    lasted_s: float
    seqs: tuple[int, ...]


def for_nobody(facts: Facts) -> tuple[ForNobody, ...]:
    """Counters that rose by more than the canaries of the baseline made them rise, once gauges had caught up.

    What we hung up on in the teardown may be told to the servers late, and where no client ever left there is nobody
    whose tokens these could be: then they are somebody else's, and no finding.
    """
    idle_ns, loaded_ns = facts.phase_start("idle", last=True), load_start(facts)
    end_ns = facts.phase_start("last-canaries", last=True)
    if idle_ns is None or end_ns is None or loaded_ns is None or facts.deployment is None or not _left(facts):
        return ()
    from_ns = idle_ns + ns(facts.deployment.gauge_lag_s)
    if hung_up_early_ns(facts) is not None or live_sessions(facts, from_ns, end_ns):
        return ()
    found = []
    for series, readings in of_use(facts, "progress", {node.id for node in facts.nodes}):
        before = [r for r in readings if r.t_ns <= loaded_ns]
        idle = [r for r in readings if from_ns <= r.t_ns <= end_ns]
        if len(before) < 2 or len(idle) < 2:  # a rise needs two readings
            continue
        allowed = PROBE_MARGIN * rise(before) / _lasted_s(before) * _lasted_s(idle)
        allowed += PROBE_TOKENS * (1 + open_requests(facts, from_ns))
        if rise(idle) > allowed:
            found.append(ForNobody(series, rise(idle), _lasted_s(idle), (idle[0].seq, idle[-1].seq)))
    return tuple(found)


def _left(facts: Facts) -> bool:
    """Whether any client of ours ever left before it was served: by a fault, or because it lost patience."""
    return any(request.ended_by not in ("", "server") for request in facts.load.values()) or any(
        fired.sessions for fired in facts.fired.values()
    )


def _lasted_s(readings: list[Reading]) -> float:
    return max((readings[-1].t_ns - readings[0].t_ns) / SECOND, 1e-9)
