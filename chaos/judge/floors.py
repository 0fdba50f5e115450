"""The idle floors of queue gauges: what a queue keeps at rest that it did not hold before anything was broken.

Gauges lag behind by up to the gauge lag, so only what was read later than that into a quiet time is a floor, and it is
compared with the same series' own floor before the load. Where people collected the evidence, they say of a reading
for how long nothing had been asked of the deployment (`LevelsTold.quiet_s`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from chaos.judge.deeds import ended_on
from chaos.judge.facts import Reading, Series
from chaos.judge.metrics import above, counted, is_level, of_use, open_requests
from chaos.judge.stuck import kept
from chaos.judge.units import ns
from chaos.judge.windows import load_start, windows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from chaos.judge.facts import Facts
    from chaos.model import events as ev

ENOUGH_FLOORS = 3
"""A floor that is higher after every wave than after the one before shows a slope from this many on (DESIGN §7)."""
QUIET = ("idle", "rest")
NOT_YET_FREED = "and the engine's own timeout may yet free it"


@dataclass(frozen=True, slots=True)
class Floor:
    """The idle level of one queue gauge before anything was broken and at the end."""

    series: Series
    before: float
    after: float
    unsettled: str  # why what is above may yet come down; empty once it may not
    ours: int  # requests of our own that may rightly sit there: open when the gauge may have been written
    kept: float  # of what is above, what was there before we hung up on requests in the teardown (`stuck.py`)
    seqs: tuple[int, ...]

    @property
    def excess(self) -> float:
        """How much did not come back."""
        return above(self.after, self.before)


@dataclass(frozen=True, slots=True)
class Rising:
    """A queue whose floor is higher after every wave, whatever it was before the first."""

    series: Series
    floors: tuple[float, ...]  # the lowest level at rest after each wave
    seqs: tuple[int, ...]


def floors(facts: Facts) -> tuple[list[Floor], list[str]]:
    """The queue gauges' floors, and the nodes whose floors should be known and are not."""
    idle_ns = facts.phase_start("idle", last=True)
    loaded_ns = load_start(facts)
    lag_ns = _lag_ns(facts)
    known: list[Floor] = []
    missing = [node.id for node in facts.nodes if "metrics" in node.observes and _has_queues(facts, node)]
    if loaded_ns is None:
        return known, missing
    known, gone = _told_floors(facts, loaded_ns)
    if idle_ns is None:
        told = {floor.series.node for floor in known} - gone
        return known, [node for node in missing if node not in told]
    until_ns = facts.phase_start("last-canaries", last=True)
    broken_ns = max((window.anchor_ns for window in windows(facts) if window.disrupted), default=0)
    holds_ns = {metric.name: ns(metric.holds_s) for metric in facts.metrics("queue")}
    for series, readings in of_use(facts, "queue", {node.id for node in facts.nodes}):
        from_ns = idle_ns + lag_ns
        scrapes = [scrape for scrape in facts.scrapes.get(series.node, ()) if scrape.ok]
        before = _before(facts, series, readings, scrapes, loaded_ns)
        looked = [s for s in scrapes if s.t_ns >= from_ns and (until_ns is None or s.t_ns <= until_ns)]
        quiet = [r for r in readings if r.t_ns >= from_ns and (until_ns is None or r.t_ns <= until_ns)]
        # A family that is announced and has no sample at all holds nothing.
        quiet = quiet or [Reading(s.t_ns, 0.0, s.seq) for s in looked if series.name in s.zero]
        if looked and not quiet and before and before.seq and not ended_on(facts, series.node):
            gone.add(series.node)  # what it kept is unknown, whatever other series say
        if not quiet:
            continue
        lowest = min(quiet, key=lambda r: (r.value, -r.t_ns))
        if before is None and lowest.value:
            gone.add(series.node)  # what it held before is unknown, and it holds something
            continue
        before = before or Reading(lowest.t_ns, 0.0, lowest.seq)  # what holds nothing keeps nothing
        unsettled = ""
        if _falls(quiet, lag_ns):
            unsettled = "and was still falling"
        elif quiet[-1].t_ns < broken_ns + holds_ns[series.name]:
            unsettled = NOT_YET_FREED
        freed_ns = broken_ns + holds_ns[series.name] + lag_ns
        since = [r for r in readings if freed_ns <= r.t_ns and (until_ns is None or r.t_ns <= until_ns)]
        ours = open_requests(facts, lowest.t_ns - lag_ns)
        baseline = _at_rest(facts, readings, loaded_ns) or [before]
        known.append(
            Floor(
                series,
                before.value,
                lowest.value,
                unsettled,
                ours=ours,
                kept=kept(facts, series.node, baseline, since, lag_ns=lag_ns, ours=ours),
                seqs=(before.seq, lowest.seq),
            )
        )
    told = {floor.series.node for floor in known} - gone
    return known, [node for node in missing if node not in told]


def _before(
    facts: Facts, series: Series, readings: Sequence[Reading], scrapes: Sequence[ev.Scrape], loaded_ns: int
) -> Reading | None:
    """The level at rest before the load; None when nobody looked, or what was there told nothing.

    A series that was not there yet was at zero.
    """
    at_rest = _at_rest(facts, readings, loaded_ns)
    if at_rest:
        return max(at_rest, key=lambda r: (r.value, -r.t_ns))
    looked = [scrape for scrape in scrapes if scrape.t_ns <= loaded_ns]
    shown = any((s.name, s.labels) == (series.name, series.labels) for scrape in looked for s in scrape.samples)
    return Reading(looked[-1].t_ns, 0.0, 0) if looked and not shown else None


def _at_rest(facts: Facts, readings: Sequence[Reading], loaded_ns: int) -> list[Reading]:
    """The later half of the baseline: its beginning may still show what went before us."""
    rest = [r for r in readings if r.t_ns <= loaded_ns]
    return [r for r in rest if r.t_ns * 2 >= (facts.first_ns or 0) + loaded_ns] or rest


def _falls(quiet: Sequence[Reading], lag_ns: int) -> bool:
    """Whether a queue fell and may fall on: it has not stood for longer than a gauge lags, and than ever before."""
    changed = [quiet[0].t_ns, *(after.t_ns for before, after in pairwise(quiet) if after.value != before.value)]
    stood = [after - before for before, after in pairwise(changed)]
    stands = quiet[-1].t_ns - changed[-1]
    return quiet[-1].value < quiet[0].value and stands <= max([lag_ns, *stood])


def unsettled_floors(facts: Facts) -> list[str]:
    """Nodes whose idle floors are not known yet, or may yet come down: a run that is idle had better wait for them."""
    known, missing = floors(facts)
    missing = [node for node in missing if not _is_gone(facts, node)]
    return [*missing, *(floor.series.node for floor in known if floor.excess > 0 and floor.unsettled)]


def _is_gone(facts: Facts, node: str) -> bool:
    """Whether a node's process was dead when it was looked at last: its queues hold nothing any more."""
    looks = facts.processes.get(node)
    return not looks[-1].alive if looks else False


def floors_settle_ns(facts: Facts) -> int:
    """When the engine's own timeouts have freed whatever they free of what the last fault left in queues."""
    broken_ns = max((window.anchor_ns for window in windows(facts) if window.disrupted), default=0)
    return broken_ns + max((ns(metric.holds_s) for metric in facts.metrics("queue")), default=0)


def _has_queues(facts: Facts, node: ev.Node) -> bool:
    """Whether a node's pack names queue gauges for its role (unknown metrics: assume so, and find them missing)."""
    wanted = facts.metrics("queue")
    if facts.deployment is None or not facts.deployment.metrics:
        return True
    return any(not metric.roles or node.role in metric.roles for metric in wanted)


def rising_floors(facts: Facts) -> list[Rising]:
    """Queues whose floor rose with every single wave. That needs no look before the load, and no look at the end."""
    by_series: dict[Series, dict[int, tuple[float, Reading]]] = {}
    for series, cycle, reading in _quiet_readings(facts):
        net = reading.value - open_requests(facts, reading.t_ns)  # a hung canary of ours rightly sits in a queue
        lowest = by_series.setdefault(series, {}).setdefault(cycle, (net, reading))
        if (net, reading.t_ns) < (lowest[0], lowest[1].t_ns):
            by_series[series][cycle] = (net, reading)
    found = []
    for series, by_cycle in by_series.items():
        lowest_of = [by_cycle[cycle] for cycle in sorted(by_cycle)]
        rises = all(above(after, before) > 0 for (before, _), (after, _) in pairwise(lowest_of))
        if len(lowest_of) >= ENOUGH_FLOORS and rises and lowest_of[-1][0] > 0:
            readings = [reading for _, reading in lowest_of]
            found.append(Rising(series, tuple(r.value for r in readings), tuple(r.seq for r in readings)))
    return found


def _quiet_readings(facts: Facts) -> Iterator[tuple[Series, int, Reading]]:
    """Every queue reading of a quiet time after a wave, later than the gauge lag, with its cycle.

    What the engine's own timeouts had yet to free is left out: it comes down by itself when the waves cease.
    """
    broken = {window.cycle: window.anchor_ns for window in windows(facts) if window.disrupted}
    holds_ns = {metric.name: ns(metric.holds_s) for metric in facts.metrics("queue")}
    for series, cycle, reading in (*_told_readings(facts, broken), *_scraped_readings(facts, broken)):
        if reading.t_ns >= broken[cycle] + holds_ns[series.name]:
            yield series, cycle, reading


def _told_readings(facts: Facts, broken: dict[int, int]) -> Iterator[tuple[Series, int, Reading]]:
    for rest in _rests(facts):
        cycle = max((c for c, anchor_ns in broken.items() if anchor_ns <= rest.t_ns - ns(rest.quiet_s or 0)), default=0)
        if cycle:
            for sample in rest.samples:
                yield Series(rest.node, sample.name, sample.labels), cycle, Reading(rest.t_ns, sample.value, rest.seq)


def _scraped_readings(facts: Facts, broken: dict[int, int]) -> Iterator[tuple[Series, int, Reading]]:
    lag_ns = _lag_ns(facts)
    entered = sorted(facts.phases, key=lambda phase: (phase.t_ns, phase.seq))
    ends = [*(phase.t_ns for phase in entered[1:]), (facts.last_ns or 0) + 1]
    for phase, end_ns in zip(entered, ends, strict=False):
        if phase.phase in QUIET and phase.cycle in broken:
            for series, readings in of_use(facts, "queue", {node.id for node in facts.nodes}):
                for reading in readings:
                    if phase.t_ns + lag_ns <= reading.t_ns < end_ns:
                        yield series, phase.cycle, reading


def _rests(facts: Facts) -> list[ev.LevelsTold]:
    """Readings that people took when everything had been quiet for longer than gauges lag, with queues only."""
    names = {metric.name for metric in facts.metrics("queue")}
    lag_ns = _lag_ns(facts)
    told = []
    for rest in facts.rests:
        samples = tuple(sample for sample in rest.samples if sample.name in names and is_level(sample.value))
        if samples and ns(rest.quiet_s or 0) >= lag_ns:
            told.append(msgspec.structs.replace(rest, samples=samples))
    return told


def _told_floors(facts: Facts, loaded_ns: int) -> tuple[list[Floor], set[str]]:
    """Floors as people read them off: the last of each queue against what is known of it from before the load.

    With them the nodes of which a queue was there before the load, and is in no scrape at rest after it.
    """
    broken_ns = max((window.anchor_ns for window in windows(facts) if window.disrupted), default=loaded_ns)
    holds_ns = {metric.name: ns(metric.holds_s) for metric in facts.metrics("queue")}
    last: dict[Series, Reading] = {}
    first: dict[Series, Reading] = {}
    for rest in _rests(facts):
        for sample in rest.samples:
            series, reading = Series(rest.node, sample.name, sample.labels), Reading(rest.t_ns, sample.value, rest.seq)
            if rest.t_ns <= loaded_ns:
                first[series] = reading
            elif rest.t_ns - ns(rest.quiet_s or 0) >= broken_ns:
                last[series] = reading
    found = []
    for series, after in last.items():
        before = first.get(series) or _before_by_scrape(facts, series, loaded_ns)
        if before is None and after.value:
            continue  # what it held before is not known
        was, seq = (before.value, before.seq) if before else (0.0, 0)
        early = after.t_ns < broken_ns + holds_ns[series.name]
        found.append(Floor(series, was, after.value, NOT_YET_FREED * early, ours=0, kept=0, seqs=(seq, after.seq)))
    return found, _gone_from_scrapes(facts, loaded_ns, broken_ns, last.keys())


def _gone_from_scrapes(facts: Facts, loaded_ns: int, broken_ns: int, told: Collection[Series]) -> set[str]:
    """Only a scrape shows that a series is not there: what people read off by hand is what they chose to look at."""
    rests = {(rest.node, rest.t_ns) for rest in facts.rests if rest.t_ns - ns(rest.quiet_s or 0) >= broken_ns}
    gone = set()
    for series, readings in of_use(facts, "queue", {node for node, _ in rests}):
        looked = [s for s in facts.scrapes.get(series.node, ()) if s.ok and (s.node, s.t_ns) in rests]
        known = (
            series in told
            or Series(series.node, series.name, "") in told
            or any(series.name in scrape.zero for scrape in looked)
        )
        if looked and not known and readings[0].t_ns <= loaded_ns and not ended_on(facts, series.node):
            gone.add(series.node)
    return gone


def _before_by_scrape(facts: Facts, series: Series, loaded_ns: int) -> Reading | None:
    """The level of a told series in the scrapes before the load; one without labels speaks for the whole node."""
    scrapes = [scrape for scrape in facts.scrapes.get(series.node, ()) if scrape.ok and scrape.t_ns <= loaded_ns]
    if series.labels:
        read = [r for r in facts.series.get(series, ()) if is_level(r.value)]
        return _before(facts, series, read, scrapes, loaded_ns)
    sums = [(scrape, counted(scrape, series.name)) for scrape in scrapes]
    read = [Reading(scrape.t_ns, value, scrape.seq) for scrape, value in sums if value is not None and is_level(value)]
    return _before(facts, series, read, [], loaded_ns)


def _lag_ns(facts: Facts) -> int:
    return ns(facts.deployment.gauge_lag_s) if facts.deployment else 0
