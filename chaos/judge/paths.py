"""How each path fares in each window: the rule of recovery, and what forbids to hold its answer against the target.

The verdict and the run that still watches both ask here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chaos.judge.before import lost_before
from chaos.judge.canaries import Doubt, Fate, Seen, look, look_all
from chaos.judge.deeds import hung_up_ns
from chaos.judge.leaving import cut_short, shown_since, since_then
from chaos.judge.metrics import worked_by
from chaos.judge.processes import dead_processes
from chaos.judge.rule import Died, Reading, State, in_a_row, passes_needed, read
from chaos.judge.units import SECOND, ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.judge.facts import Canary, Facts
    from chaos.judge.windows import Window
    from chaos.model import events as ev


@dataclass(frozen=True, slots=True)
class PathRun:
    """One path in one window."""

    path: ev.Path
    window: Window
    seen: Sequence[Seen]
    state: State
    why: str  # one clause for people
    since_ns: int  # for DARK and LOSSY: since when; else the anchor
    recovered_ns: int | None  # completion of the first pass of the final run
    last_bad: Seen | None
    steady: int  # passes in a row, to the end, that were begun after things had settled
    needed: int  # how many of them show that the path serves again
    culprits: tuple[Seen, ...]  # the canaries that make the state, oldest first
    doubted: bool  # bad canaries that our own trouble may explain were left out, and that made a difference
    confirmed: bool  # watched past the engine's own timeouts

    @property
    def recovered_s(self) -> float | None:
        """Seconds from the last disruption to recovery."""
        return None if self.recovered_ns is None else (self.recovered_ns - self.window.anchor_ns) / SECOND

    def number(self, *fates: Fate) -> int:
        """How many canaries had one of these fates."""
        return sum(seen.fate in fates for seen in self.seen)


def path_run(facts: Facts, path: ev.Path, window: Window, doubt: Doubt) -> PathRun:
    """Judge one path in one window."""
    plan = facts.plan
    begun = [c for c in facts.by_path.get(path.id, ()) if window.anchor_ns <= c.begun_ns < window.until_ns]
    seen = look_all(begun, window.horizon_ns, ns(plan.canary_deadline_s), doubt)
    reading = read(path, seen, window, plan)
    died = _died(facts, path) if reading.state is State.UNDECIDED and reading.culprits else None
    if died is not None:
        reading = read(path, seen, window, plan, died)
    doubted = False
    if reading.state not in (State.SERVES, State.UNDECIDED) and any(s.doubtful for s in seen if s.fate.bad):
        # Only what our own trouble cannot explain may accuse the target.
        kept = [s for s in seen if not (s.doubtful and s.fate.bad)]
        without = read(path, kept, window, plan)
        if without.state in (State.SERVES, State.UNDECIDED):
            why = f"{reading.why}, but our own machine was in trouble at that time"
            reading = Reading(State.UNDECIDED, why, window.anchor_ns, reading.recovered_ns, reading.culprits)
            doubted = True
        else:
            reading = without
    bad = reading.state not in (State.SERVES, State.UNDECIDED)
    stood = _before_hanging_up(facts, path, window, begun, doubt) if bad else None
    if stood is not None:
        was = "nothing of that was there before" if stood is State.SERVES else "it was too early to tell when"
        why = f"{reading.why}, but {was} we hung up on open requests in the teardown"
        reading = Reading(State.UNDECIDED, why, window.anchor_ns, reading.recovered_ns, reading.culprits)
    cut = cut_short(facts) if reading.state in (State.SERVES, State.UNDECIDED) else None
    if cut is not None and not shown_since(facts, path.id, cut, passes_needed(path, seen, plan)):
        before = reading if reading.state is State.SERVES else _up_to(cut.at_ns, facts, path, window, begun, doubt)
        if before.state is State.SERVES:
            why = f"served until we hung up on open requests on leaving; {since_then(facts, path.id, cut)}"
            reading = Reading(State.UNDECIDED, why, window.anchor_ns, before.recovered_ns, ())
    lost = lost_before(facts, path, under_load=True)
    if reading.state is State.LOSSY and lost.lost:
        why = f"{reading.why}, but {lost.text}"
        reading = Reading(State.UNDECIDED, why, window.anchor_ns, reading.recovered_ns, reading.culprits)
    if reading.state not in (State.SERVES, State.UNDECIDED) and not _served_before(facts, path, window, reading):
        why = "no fresh request had ever passed there before, so nothing shows that it was ever able to serve"
        reading = Reading(State.UNDECIDED, why, window.anchor_ns, reading.recovered_ns, reading.culprits)
    last_bad = next((s for s in reversed(seen) if s.fate.bad), None)
    return PathRun(
        path=path,
        window=window,
        seen=seen,
        state=reading.state,
        why=reading.why,
        since_ns=reading.since_ns,
        recovered_ns=reading.recovered_ns,
        last_bad=last_bad,
        steady=in_a_row(seen, settled_ns(facts, window)) + served_in_bulk(facts, path, window),
        needed=passes_needed(path, seen, plan),
        culprits=reading.culprits,
        doubted=doubted,
        confirmed=_confirmed(reading, window, plan),
    )


def shown_by(run: PathRun) -> Seen | None:
    """The canary that shows that a path serves again; None: it does not.

    That is its first pass where no canary has failed since the last disruption. Where some have, that pass may have
    been luck, as with a router that has not noticed yet that one of two workers is gone: it takes as many as needed.
    """
    if run.recovered_ns is None:
        return None
    passed = [seen for seen in run.seen if seen.fate is Fate.PASS and seen.until_ns >= run.recovered_ns]
    enough = run.needed if any(seen.fate.bad for seen in run.seen) else 1
    return passed[enough - 1] if len(passed) >= enough else None


def served_in_bulk(facts: Facts, path: ev.Path, window: Window) -> int:
    """Fresh requests that a load told as a whole shows to be answered, once things had settled.

    Users' requests are as fresh as canaries. Where only the goodput is known, every session had its share only if less
    is missing than one session would have brought.
    """
    if path.kind != "routed":  # a load goes through the router, and nobody knows over which pair
        return 0
    settled, served = settled_ns(facts, window), 0
    for load in facts.loads:
        if not settled <= load.from_ns < window.until_ns or load.failed:
            continue
        if load.completed is not None:
            served += load.completed
        elif load.sessions and load.goodput is not None and load.goodput > 1 - 1 / load.sessions:
            served += load.sessions
    return served


def settled_ns(facts: Facts, window: Window) -> int:
    """From when on a pass counts towards `canaries_in_a_row`: aborts reach the servers seconds after a disconnect."""
    plan = facts.plan
    settled = window.anchor_ns
    if window.disrupted:
        settled += ns(max(plan.settle_s, plan.quiet_s))
    aborts = [
        hit.by_ns for hit in facts.hits if hit.klass == "abort" and window.anchor_ns <= hit.by_ns < window.until_ns
    ]
    return max([settled, *(at + ns(plan.quiet_s) for at in aborts)])


def _died(facts: Facts, path: ev.Path) -> Died | None:
    nodes = facts.nodes_of(path)
    found = [dead for dead in dead_processes(facts) if dead.node in nodes and not dead.ours]
    first = min(found, key=lambda dead: dead.at_ns, default=None)
    return None if first is None else Died(first.at_ns, facts.processes[first.node][-1].t_ns)


def _before_hanging_up(
    facts: Facts, path: ev.Path, window: Window, begun: Sequence[Canary], doubt: Doubt
) -> State | None:
    """How a path stood up to our own unplanned disconnect; None when there was none, or it was ill by then."""
    cut_ns = hung_up_ns(facts)
    if cut_ns is None or not window.anchor_ns < cut_ns < window.horizon_ns:
        return None
    stood = _up_to(cut_ns, facts, path, window, begun, doubt).state
    return stood if stood in (State.SERVES, State.UNDECIDED) else None


def _up_to(cut_ns: int, facts: Facts, path: ev.Path, window: Window, begun: Sequence[Canary], doubt: Doubt) -> Reading:
    """What a path's canaries had shown by a moment."""
    known = [canary for canary in begun if canary.begun_ns <= cut_ns]
    seen = look_all(known, cut_ns, ns(facts.plan.canary_deadline_s), doubt)
    return read(path, seen, replace(window, until_ns=cut_ns + 1, horizon_ns=cut_ns), facts.plan)


def _served_before(facts: Facts, path: ev.Path, window: Window, reading: Reading) -> bool:
    """Whether a canary ever passed there before the disruption; where none was sent, whether users were served.

    Who collects evidence after an incident has no baseline, but sessions that streamed at the moment of the wave, or
    servers that had counted users' tokens by then.
    """
    deadline_ns = ns(facts.plan.canary_deadline_s)
    until_ns = window.anchor_ns if window.disrupted else min(s.begun_ns for s in reading.culprits)
    before = [c for c in facts.by_path.get(path.id, ()) if c.begun_ns < until_ns]
    if before:
        return any(look(c, until_ns, deadline_ns).fate is Fate.PASS for c in before)
    ended = [r for r in facts.load.values() if r.path == path.id and r.ended_ns and r.ended_ns <= until_ns]
    streaming = path.kind == "routed" and any(
        census.phases.get("streaming") for (cycle, _), census in facts.census.items() if cycle == window.cycle
    )
    if streaming or any(r.ok for r in ended):
        return True
    return path.kind == "routed" and worked_by(facts, path, until_ns)


def _confirmed(reading: Reading, window: Window, plan: ev.Plan) -> bool:
    if not reading.state.wedged:
        return False
    oldest_ns = min(s.begun_ns for s in reading.culprits)
    if reading.state is State.DARK:
        # Requests that are refused at once are no culprits before the budget is over, but the path was dark before.
        oldest_ns = min(oldest_ns, reading.since_ns)
    # Stuck requests free themselves when the engine's timeouts have gone by; those count from when one was sent. A
    # path that never came back was watched from the wave on.
    start_ns = window.anchor_ns if oldest_ns <= window.budget_ns(plan) else oldest_ns
    return window.horizon_ns - start_ns >= ns(plan.watch_s)
