"""What the servers' own counters and gauges say, with the distrust they have earned.

Gauges freeze in the very state that is looked for and lag behind by up to the gauge lag, so a gauge that does not
change says nothing about a backlog, and an idle floor is compared with the same series' own floor before the load.
Counters also count our own probes, so their traffic is measured in the baseline and taken off. A metric that is not
there is unknown, not zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from chaos.judge.deeds import ended_on
from chaos.judge.facts import Reading, sound
from chaos.judge.units import SECOND, ns
from chaos.judge.windows import load_start, windows
from chaos.model.outcomes import Answer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from chaos.judge.facts import Canary, Facts, LoadRequest, Series
    from chaos.model import events as ev

PROBE_MARGIN = 2.0
"""Our probes may cost twice what they cost in the baseline before the rest counts as users' work."""
PROBE_TOKENS = 64.0
"""What one probe may move a counter when the baseline shows no measure: a short prompt and a few tokens."""


@dataclass(frozen=True, slots=True)
class Told:
    """An answer with the facts behind it."""

    answer: Answer
    text: str
    seqs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Floor:
    """The idle level of one queue gauge before anything was broken and at the end."""

    series: Series
    before: float
    after: float
    falling: bool  # not at rest yet: whatever holds it is still being worked off
    seqs: tuple[int, ...]

    @property
    def excess(self) -> float:
        """How much did not come back."""
        return self.after - self.before


def work_goes_on(facts: Facts, path: ev.Path, start_ns: int, end_ns: int) -> Told:
    """Whether users' work progressed on the path between two moments, net of canaries, probes and dead sessions."""
    received, seqs = _received(facts, path, start_ns, end_ns)
    if received > 0:
        return Told(Answer.YES, f"live sessions received {received} tokens", seqs)
    rise, readable, seqs = _server_work(facts, path, start_ns, end_ns)
    if not readable:
        return Told(Answer.UNKNOWN, "no progress counter could be read twice")
    if rise <= 0:
        return Told(Answer.NO, "no progress counter rose by more than our own probes explain", seqs)
    if facts.fired and not _live_sessions(facts, start_ns, end_ns):
        return Told(Answer.UNKNOWN, "counters rose, perhaps for sessions that are dead: no live session is ours", seqs)
    return Told(Answer.YES, f"progress counters rose by {rise:.0f} more than our own probes explain", seqs)


def backlog_shrinks(facts: Facts, path: ev.Path, start_ns: int, end_ns: int) -> Told:
    """Whether the queues on the path are shorter at the end than at their longest; frozen gauges tell nothing."""
    nodes = set(facts.nodes_of(path))
    first = last = peak = 0.0
    fresh, seqs = False, []
    for _, readings in _of_use(facts, "queue", nodes):
        inside = [r for r in readings if start_ns <= r.t_ns <= end_ns]
        if not inside:
            continue
        values = [r.value for r in inside]
        fresh = fresh or len(set(values)) > 1
        first, last, peak = first + values[0], last + values[-1], peak + max(values)
        seqs += [inside[0].seq, inside[-1].seq]
    told = tuple(sorted(set(seqs)))
    if not fresh:
        return Told(Answer.UNKNOWN, "no queue gauge changed, so none can be believed", told)
    if last < peak:
        return Told(Answer.YES, f"the queues fell from {peak:.0f} to {last:.0f}", told)
    return Told(Answer.NO, f"the queues went from {first:.0f} to {last:.0f}", told)


def abort_rise(facts: Facts, node_ids: Iterable[str], start_ns: int, end_ns: int) -> tuple[float | None, list[int]]:
    """How far the abort counters of these nodes rose from the last look before `start_ns`; None when unreadable."""
    total: float | None = None
    seqs: list[int] = []
    for node in node_ids:
        looks = [scrape for scrape in facts.scrapes.get(node, ()) if scrape.ok]
        before = [s for s in looks if s.t_ns < start_ns]
        after = [s for s in looks if start_ns <= s.t_ns <= end_ns]
        if not before or not after:
            continue
        for metric in facts.metrics("aborts"):
            if metric.roles and facts.role(node) not in metric.roles:
                continue
            was, now = counted(before[-1], metric.name), counted(after[-1], metric.name)
            if was is None or now is None:
                continue
            # A counter that fell belongs to a process that was replaced: it counts from zero.
            total = (total or 0.0) + (now - was if now >= was else now)
            seqs += [before[-1].seq, after[-1].seq]
    return total, seqs


def floors(facts: Facts) -> tuple[list[Floor], list[str]]:
    """The queue gauges' floors, and the nodes whose floors should be known and are not."""
    idle_ns = facts.phase_start("idle", last=True)
    loaded_ns = load_start(facts)
    lag_ns = ns(facts.deployment.gauge_lag_s) if facts.deployment else 0
    known: list[Floor] = []
    missing = [node.id for node in facts.nodes if "metrics" in node.observes and _has_queues(facts, node)]
    if idle_ns is None or loaded_ns is None:
        return known, missing
    until_ns = facts.phase_start("last-canaries", last=True)
    broken_ns = max((window.anchor_ns for window in windows(facts) if window.disrupted), default=0)
    holds_ns = {metric.name: ns(metric.holds_s) for metric in facts.metrics("queue")}
    gone = set()
    for series, readings in _of_use(facts, "queue", {node.id for node in facts.nodes}):
        from_ns = max(idle_ns + lag_ns, broken_ns + holds_ns[series.name])
        scrapes = [scrape for scrape in facts.scrapes.get(series.node, ()) if scrape.ok]
        before = _before(facts, readings, scrapes, loaded_ns)
        looked = [s for s in scrapes if s.t_ns >= from_ns and (until_ns is None or s.t_ns <= until_ns)]
        quiet = [r for r in readings if r.t_ns >= from_ns and (until_ns is None or r.t_ns <= until_ns)]
        # A family that is announced and has no sample at all holds nothing.
        quiet = quiet or [Reading(s.t_ns, 0.0, s.seq) for s in looked if series.name in s.zero]
        if looked and not quiet and before and before.seq and not ended_on(facts, series.node):
            gone.add(series.node)  # what it kept is unknown, whatever other series say
        if before and not quiet and holds_ns[series.name]:
            gone.add(series.node)  # whatever it holds now, the engine's own timeout may yet free it
        if not before or not quiet:
            continue
        lowest = min(quiet, key=lambda r: (r.value, r.t_ns))
        falling = quiet[-1].value < quiet[0].value
        known.append(Floor(series, before.value, lowest.value, falling, (before.seq, lowest.seq)))
    told = {floor.series.node for floor in known} - gone
    return known, [node for node in missing if node not in told]


def _before(facts: Facts, readings: Sequence[Reading], scrapes: Sequence[ev.Scrape], loaded_ns: int) -> Reading | None:
    """The level at rest before the load; None when nobody looked. A series that was not there yet was at zero."""
    rest = [r for r in readings if r.t_ns <= loaded_ns]
    # The later half of the baseline: its beginning may still show what went before us.
    at_rest = [r for r in rest if r.t_ns * 2 >= (facts.first_ns or 0) + loaded_ns] or rest
    if at_rest:
        return max(at_rest, key=lambda r: (r.value, -r.t_ns))
    looked = [scrape for scrape in scrapes if scrape.t_ns <= loaded_ns]
    return Reading(looked[-1].t_ns, 0.0, 0) if looked else None


def unread_floors(facts: Facts) -> list[str]:
    """Nodes whose idle floors should be known and are not yet: a run that is idle had better wait for them."""
    return floors(facts)[1]


def _has_queues(facts: Facts, node: ev.Node) -> bool:
    """Whether a node's pack names queue gauges for its role (unknown metrics: assume so, and find them missing)."""
    wanted = facts.metrics("queue")
    if facts.deployment is None or not facts.deployment.metrics:
        return True
    return any(not metric.roles or node.role in metric.roles for metric in wanted)


def _of_use(facts: Facts, use: str, nodes: set[str]) -> list[tuple[Series, Sequence[Reading]]]:
    names = {metric.name for metric in facts.metrics(use)}
    return [(s, readings) for s, readings in facts.series.items() if s.name in names and s.node in nodes]


def counted(scrape: ev.Scrape, name: str) -> float | None:
    """The count of a metric over all its series in one reading; None when it is unknown."""
    values = [sample.value for sample in scrape.samples if sample.name == name and sound(sample.value)]
    return sum(values) if values else 0.0 if name in scrape.zero else None


def _received(facts: Facts, path: ev.Path, start_ns: int, end_ns: int) -> tuple[int, tuple[int, ...]]:
    """Tokens that live sessions received in the window, where all load surely went over this path."""
    ways = {request.path for request in facts.load.values()}
    if ways and ways != {path.id}:
        return 0, ()
    total, seqs = 0, []
    for who, beats in facts.health.items():
        if who == "harness":
            continue
        before = [b for b in beats if b.t_ns <= start_ns]
        inside = [b for b in beats if start_ns < b.t_ns <= end_ns]
        if inside:
            rise = inside[-1].tokens - (before[-1].tokens if before else inside[0].tokens)
            total += max(rise, 0)
            seqs += [inside[0].seq, inside[-1].seq]
    if not seqs:
        total = sum(r.tokens for r in facts.load.values() if r.ok and r.ended_ns and start_ns < r.ended_ns <= end_ns)
    return total, tuple(sorted(set(seqs)))


def _server_work(facts: Facts, path: ev.Path, start_ns: int, end_ns: int) -> tuple[float, bool, tuple[int, ...]]:
    nodes = set(facts.nodes_of(path))
    loaded_ns = load_start(facts)
    best, readable, seqs = 0.0, False, []
    for series, readings in _of_use(facts, "progress", nodes):
        inside = [r for r in readings if start_ns <= r.t_ns <= end_ns]
        if len(inside) < 2:  # a rise needs two readings
            continue
        readable = True
        seqs += [inside[0].seq, inside[-1].seq]
        at_rest = [r for r in readings if loaded_ns is not None and r.t_ns <= loaded_ns]
        each = PROBE_TOKENS
        if len(at_rest) > 1:
            probes = _probes(facts, series.node, at_rest[0].t_ns, at_rest[-1].t_ns)
            each = PROBE_MARGIN * _rise(at_rest) / probes if probes else PROBE_TOKENS
        ours = each * (_probes(facts, series.node, start_ns, end_ns) + 1)
        best = max(best, _rise(inside) - ours)
    return best, readable, tuple(sorted(set(seqs)))


def _rise(readings: Sequence[Reading]) -> float:
    """How much was counted in all; a fall is a restarted process, whose count begins at zero."""
    return sum(max(b.value - a.value, 0.0) for a, b in pairwise(readings))


def _probes(facts: Facts, node: str, start_ns: int, end_ns: int) -> int:
    """Our own requests that may have moved a node's counters in a stretch of time."""
    asked = sum(1 for seen in facts.liveness if seen.node == node and start_ns <= seen.t_ns <= end_ns)
    canaries = sum(
        1 for c in facts.canaries.values() if c.begun_ns <= end_ns and (c.ended_ns is None or c.ended_ns >= start_ns)
    )
    return asked + canaries


def _live_sessions(facts: Facts, start_ns: int, end_ns: int) -> bool:
    return any(r.begun_ns <= end_ns and (r.ended_ns is None or r.ended_ns > start_ns) for r in facts.load.values())


def open_requests(
    facts: Facts, at_ns: int, *, begun_before_ns: int | None = None, also_on: Collection[str] = ()
) -> int:
    """Requests of ours that were open at a moment: each may rightly sit in a queue.

    With `begun_before_ns` only those that were sent before then, and those on the paths `also_on`, whenever sent.
    """
    ours: list[Canary | LoadRequest] = [*facts.canaries.values(), *facts.load.values()]
    latest = at_ns if begun_before_ns is None else begun_before_ns
    return sum(
        request.begun_ns <= at_ns
        and (request.begun_ns <= latest or request.path in also_on)
        and (request.ended_ns or at_ns + SECOND) > at_ns
        for request in ours
    )
