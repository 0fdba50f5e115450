"""What the servers' own counters and gauges say, with the distrust they have earned.

Gauges freeze in the very state that is looked for, so a gauge that does not change says nothing about a backlog.
Counters also count our own probes, so their traffic is measured in the baseline and taken off. A metric that is not
there is unknown, not zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from chaos.judge.facts import sound
from chaos.judge.units import SECOND, count, listed
from chaos.judge.windows import load_start
from chaos.model.outcomes import Answer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from chaos.judge.facts import Canary, Facts, LoadRequest, Reading, Series
    from chaos.model import events as ev

    BySource = dict[tuple[str, str], list[tuple[Series, Sequence[Reading]]]]  # by node and metric

PROBE_MARGIN = 2.0
"""Our probes may cost twice what they cost in the baseline before the rest counts as users' work."""
PROBE_TOKENS = 64.0
"""What one probe may move a counter when the baseline shows no measure: a short prompt and a few tokens."""

SAME = 1e-6
"""Levels that differ by no more than this are one level: shares of 1 are counted in steps of a thousandth or so."""
SAME_SHARE = 1e-9
"""The same of large levels, as a share of them: what adding up floats leaves."""


def is_level(value: float) -> bool:
    """Whether a queue can be this long: nothing is held less than not at all, so what is below zero is no reading."""
    return sound(value) and value >= 0


def above(after: float, before: float) -> float:
    """By how much a level is above another one; 0 where they differ by no more than counting does."""
    return 0.0 if math.isclose(after, before, rel_tol=SAME_SHARE, abs_tol=SAME) else after - before


@dataclass(frozen=True, slots=True)
class Told:
    """An answer with the facts behind it."""

    answer: Answer
    text: str
    seqs: tuple[int, ...] = ()


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
    if facts.fired and not live_sessions(facts, start_ns, end_ns):
        return Told(Answer.UNKNOWN, "counters rose, perhaps for sessions that are dead: no live session is ours", seqs)
    return Told(Answer.YES, f"progress counters rose by {rise:.0f} more than our own probes explain", seqs)


def worked_by(facts: Facts, path: ev.Path, until_ns: int) -> bool:
    """Whether the servers on a path had, by some moment, done more work than a probe makes."""
    return any(
        reading.t_ns <= until_ns and reading.value > PROBE_TOKENS
        for _, readings in of_use(facts, "progress", set(facts.nodes_of(path)), told=True)
        for reading in readings
    )


def backlog_shrinks(facts: Facts, path: ev.Path, start_ns: int, end_ns: int) -> Told:
    """Whether the queues on the path are shorter at the end than at their longest; frozen gauges tell nothing."""
    nodes = set(facts.nodes_of(path))
    first = last = peak = 0.0
    fresh, seqs = False, []
    for _, readings in of_use(facts, "queue", nodes, told=True):
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


def of_use(facts: Facts, use: str, nodes: set[str], *, told: bool = False) -> list[tuple[Series, Sequence[Reading]]]:
    """Every series of one use on these nodes; with `told` also what was not scraped but logged, or read off by hand.

    What was both scraped and told is one thing: it is taken from where it was read more often. What is no level of a
    queue is no reading of one.
    """
    names = {metric.name for metric in facts.metrics(use)}
    scraped, noted = _by_source(facts.series, names, nodes), _by_source(facts.told if told else {}, names, nodes)
    if use == "queue":
        scraped, noted = _levels(scraped), _levels(noted)
    found = []
    for key in dict.fromkeys((*scraped, *noted)):
        sources = [source[key] for source in (scraped, noted) if key in source]
        found += max(sources, key=lambda every: max(len(readings) for _, readings in every))
    return found


def _levels(source: BySource) -> BySource:
    found: BySource = {}
    for key, every in source.items():
        for one, readings in every:
            levels = [reading for reading in readings if is_level(reading.value)]
            if levels:
                found.setdefault(key, []).append((one, levels))
    return found


def _by_source(series: Mapping[Series, Sequence[Reading]], names: set[str], nodes: set[str]) -> BySource:
    found: BySource = {}
    for one, readings in series.items():
        if one.name in names and one.node in nodes:
            found.setdefault((one.node, one.name), []).append((one, readings))
    return found


def name_of(facts: Facts, series: Series) -> str:
    """A series for people: of its labels only what tells it from the same metric's other series on its node."""
    others = [s for s in (*facts.series, *facts.told) if (s.node, s.name) == (series.node, series.name)]
    shared = set.intersection(*(set(other.labels.split(",")) for other in others)) if others else set()
    own = ",".join(label for label in series.labels.split(",") if label and label not in shared)
    return f"{series.name} of {series.node}" + f" ({own})" * bool(own)


def counted(scrape: ev.Scrape, name: str) -> float | None:
    """The count of a metric over all its series in one reading; None when it is unknown."""
    values = [sample.value for sample in scrape.samples if sample.name == name and sound(sample.value)]
    return sum(values) if values else 0.0 if name in scrape.zero else None


def unread_ranks(facts: Facts) -> list[str]:
    """Nodes of which fewer ranks show queues of their own than the node says it has: the rest nobody has looked at."""
    told = []
    for node in facts.nodes:
        seen = {series.labels for series, _ in of_use(facts, "queue", {node.id})}
        if len(node.ranks) > len(seen) > 0:
            told.append(f"{node.id}: its metrics tell of {len(seen)} of {count(len(node.ranks), 'rank')}")
    return told


def unread_queues(facts: Facts) -> list[str]:
    """Nodes whose metrics were read, and of some queue they never told a level: it was not there, or was no number."""
    told = []
    for node in facts.nodes:
        looked = any(scrape.ok for scrape in facts.scrapes.get(node.id, ()))
        read = {series.name for series, _ in of_use(facts, "queue", {node.id}, told=True)}
        wanted = [metric.name for metric in facts.metrics("queue") if not metric.roles or node.role in metric.roles]
        unread = [name for name in wanted if name not in read]
        if looked and unread:
            told.append(f"{node.id}: {listed(unread)} never told a level (not there, or never a number of 0 or more)")
    return told


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
    for series, readings in of_use(facts, "progress", nodes, told=True):
        inside = [r for r in readings if start_ns <= r.t_ns <= end_ns]
        if len(inside) < 2:  # a rise needs two readings
            continue
        readable = True
        seqs += [inside[0].seq, inside[-1].seq]
        at_rest = [r for r in readings if loaded_ns is not None and r.t_ns <= loaded_ns]
        each = PROBE_TOKENS
        if len(at_rest) > 1:
            probes = _probes(facts, series.node, at_rest[0].t_ns, at_rest[-1].t_ns)
            each = PROBE_MARGIN * rise(at_rest) / probes if probes else PROBE_TOKENS
        ours = each * (_probes(facts, series.node, start_ns, end_ns) + 1)
        best = max(best, rise(inside) - ours)
    return best, readable, tuple(sorted(set(seqs)))


def rise(readings: Sequence[Reading]) -> float:
    """How much was counted in all; a fall is a restarted process, whose count begins at zero."""
    return sum(max(b.value - a.value, 0.0) for a, b in pairwise(readings))


def _probes(facts: Facts, node: str, start_ns: int, end_ns: int) -> int:
    """Our own requests that may have moved a node's counters in a stretch of time."""
    asked = sum(1 for seen in facts.liveness if seen.node == node and start_ns <= seen.t_ns <= end_ns)
    canaries = sum(
        1 for c in facts.canaries.values() if c.begun_ns <= end_ns and (c.ended_ns is None or c.ended_ns >= start_ns)
    )
    return asked + canaries


def live_sessions(facts: Facts, start_ns: int, end_ns: int) -> bool:
    """Whether any user's request was open between two moments."""
    return any(r.begun_ns <= end_ns and (r.ended_ns is None or r.ended_ns > start_ns) for r in facts.load.values())


def open_requests(
    facts: Facts, at_ns: int, *, begun_before_ns: int | None = None, also_on: Collection[str] = ()
) -> int:
    """Requests of ours that were open at a moment: each may rightly sit in a queue.

    With `begun_before_ns` only those that were sent before then, and those on the paths `also_on`, whenever sent.
    """
    ours: list[Canary | LoadRequest] = [*facts.canaries.values(), *facts.load.values(), *facts.poison.values()]
    latest = at_ns if begun_before_ns is None else begun_before_ns
    return sum(
        request.begun_ns <= at_ns
        and (request.begun_ns <= latest or request.path in also_on)
        and (request.ended_ns or at_ns + SECOND) > at_ns
        for request in ours
    )
