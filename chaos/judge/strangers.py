"""Whether somebody else uses a deployment that we left idle: then what its queues hold at rest may be theirs.

A `served` counter rises with every request that a server takes on or ends, and with nothing else. While nothing of
ours is asked it stands; old requests of ours, whose clients are gone, may end late and be counted then, but not
without queues holding less than before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.judge.facts import Reading
from chaos.judge.metrics import above, counted, of_use, rise
from chaos.judge.units import SECOND, ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.judge.facts import Canary, Facts, LoadRequest


@dataclass(frozen=True, slots=True)
class Strangers:
    """Requests of others that a deployment counted while we left it idle."""

    requests: float
    lasted_s: float
    seqs: tuple[int, ...]


def strangers(facts: Facts) -> Strangers | None:
    """Requests that are not ours, as far as every role that counts any has counted them; None: none, or unknown.

    A fresh request goes through all roles; what only decode counts may be late work for clients of ours that are gone.
    So this says something of the floors of all nodes.
    """
    idle_ns = facts.phase_start("idle", last=True)
    end_ns = facts.phase_start("last-canaries", last=True) or facts.last_ns
    if idle_ns is None or end_ns is None:
        return None
    by_role: dict[str, list[list[Reading]]] = {}
    for node in facts.nodes:
        for readings in _served(facts, node.id, idle_ns, end_ns):
            by_role.setdefault(node.role, []).append(readings)
    if not by_role:
        return None
    least = min(by_role.values(), key=lambda every: sum(map(rise, every)))
    foreign = sum(map(rise, least)) - _asked(facts, idle_ns, end_ns) - _late(facts, idle_ns, end_ns)
    lasted_s = max((readings[-1].t_ns - readings[0].t_ns) / SECOND for readings in least)
    seqs = tuple(reading.seq for readings in least for reading in (readings[0], readings[-1]))
    return Strangers(foreign, lasted_s, seqs) if foreign > 0 else None


def _served(facts: Facts, node: str, start_ns: int, end_ns: int) -> Iterator[list[Reading]]:
    """What each counter of requests of a node showed between two moments, where it was read twice."""
    looks = [s for s in facts.scrapes.get(node, ()) if s.ok and start_ns <= s.t_ns <= end_ns]
    for metric in facts.metrics("served"):
        if facts.role(node) in metric.roles:
            told = [(look, counted(look, metric.name)) for look in looks]
            readings = [Reading(look.t_ns, value, look.seq) for look, value in told if value is not None]
            if len(readings) > 1:
                yield readings


def _asked(facts: Facts, start_ns: int, end_ns: int) -> int:
    """Requests of ours that were sent or under way between two moments: each may have been counted then."""
    ours: list[Canary | LoadRequest] = [*facts.canaries.values(), *facts.load.values(), *facts.poison.values()]
    return sum(one.begun_ns <= end_ns and (one.ended_ns is None or one.ended_ns >= start_ns) for one in ours)


def _late(facts: Facts, idle_ns: int, end_ns: int) -> float:
    """How many requests that nobody waits for any more may have been counted late, as far as queues show it.

    Those that were left a moment ago may go without any gauge having shown them.
    """
    ours: list[Canary | LoadRequest] = [*facts.canaries.values(), *facts.load.values(), *facts.poison.values()]
    left = [one for one in ours if not one.ok]
    ended = [one.ended_ns for one in left if one.ended_ns is not None and one.ended_ns < idle_ns]
    lag_ns = ns(facts.deployment.gauge_lag_s) if facts.deployment else 0
    just_now = sum(at_ns >= idle_ns - lag_ns for at_ns in ended)
    return just_now + min(len(ended) - just_now, _fell(facts, idle_ns, end_ns))


def _fell(facts: Facts, start_ns: int, end_ns: int) -> float:
    """By how much all queues together came down; without bound where one that counts no requests did."""
    fell = 0.0
    for _, readings in of_use(facts, "queue", {node.id for node in facts.nodes}):
        inside = [r.value for r in readings if start_ns <= r.t_ns <= end_ns]
        down = above(max(inside), inside[-1]) if inside else 0.0
        fell += down if down % 1 == 0 else float("inf")
    return fell
