"""The rule of recovery: how fresh requests fare on one path after the last disruption.

This is the one place that says when a path serves again, when it recovered too late, and when it is wedged; the verdict
and the run that still watches both ask here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

from chaos.judge.before import lost_before
from chaos.judge.canaries import Doubt, Fate, Seen, look, look_all
from chaos.judge.deeds import hung_up_ns
from chaos.judge.leaving import cut_short, shown_since, since_then
from chaos.judge.metrics import worked_by
from chaos.judge.processes import dead_processes
from chaos.judge.units import SECOND, between, count, ns, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.judge.facts import Canary, Facts
    from chaos.judge.windows import Window
    from chaos.model import events as ev

ENOUGH_DEAD = 2
"""One failed request is an accident; two with nothing completed since are a state."""
ENOUGH_WITH_THE_DEAD = 1
"""Where a process on the path has died by itself, one failed request with nothing completed since is no accident."""
LUCK = 0.01
"""How likely a row of passes may be on a path that still loses the share of requests that it lost before."""
RECENT_ROWS = 4
"""Losses count as the state of a path when they lie within this many rows of `canaries_in_a_row` from the end."""
SLOWEST_TIMES = 1.5
"""A path that answers late is still moving while the next answer is no later than this times the slowest so far, and
than the engine's own timeouts allow."""


class State(Enum):
    """How a path fares at the horizon of a window."""

    SERVES = auto()  # passes, and has from within the budget
    SLOW = auto()  # passes, but recovered only after the budget
    LATE = auto()  # completes fresh requests, but after their deadline
    LOSSY = auto()  # completes some fresh requests and never others
    DARK = auto()  # completes none
    UNDECIDED = auto()  # evidence does not tell

    @property
    def wedged(self) -> bool:
        """Fresh requests no longer complete."""
        return self in (State.DARK, State.LOSSY)


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


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a set of canaries says."""

    state: State
    why: str
    since_ns: int
    recovered_ns: int | None
    culprits: tuple[Seen, ...]


def path_run(facts: Facts, path: ev.Path, window: Window, doubt: Doubt) -> PathRun:
    """Judge one path in one window."""
    plan = facts.plan
    begun = [c for c in facts.by_path.get(path.id, ()) if window.anchor_ns <= c.begun_ns < window.until_ns]
    seen = look_all(begun, window.horizon_ns, ns(plan.canary_deadline_s), doubt)
    reading = _read(path, seen, window, plan)
    died = _died(facts, path) if reading.state is State.UNDECIDED and reading.culprits else None
    if died is not None:
        reading = _read(path, seen, window, plan, died)
    doubted = False
    if reading.state not in (State.SERVES, State.UNDECIDED) and any(s.doubtful for s in seen if s.fate.bad):
        # Only what our own trouble cannot explain may accuse the target.
        kept = [s for s in seen if not (s.doubtful and s.fate.bad)]
        without = _read(path, kept, window, plan)
        if without.state in (State.SERVES, State.UNDECIDED):
            why = f"{reading.why}, but our own machine was in trouble at that time"
            reading = _Reading(State.UNDECIDED, why, window.anchor_ns, reading.recovered_ns, reading.culprits)
            doubted = True
        else:
            reading = without
    bad = reading.state not in (State.SERVES, State.UNDECIDED)
    stood = _before_hanging_up(facts, path, window, begun, doubt) if bad else None
    if stood is not None:
        was = "nothing of that was there before" if stood is State.SERVES else "it was too early to tell when"
        why = f"{reading.why}, but {was} we hung up on open requests in the teardown"
        reading = _Reading(State.UNDECIDED, why, window.anchor_ns, reading.recovered_ns, reading.culprits)
    cut = cut_short(facts) if reading.state in (State.SERVES, State.UNDECIDED) else None
    if cut is not None and not shown_since(facts, path.id, cut, passes_needed(path, seen, plan)):
        before = reading if reading.state is State.SERVES else _up_to(cut.at_ns, facts, path, window, begun, doubt)
        if before.state is State.SERVES:
            why = f"served until we hung up on open requests on leaving; {since_then(facts, path.id, cut)}"
            reading = _Reading(State.UNDECIDED, why, window.anchor_ns, before.recovered_ns, ())
    lost = lost_before(facts, path)
    if reading.state is State.LOSSY and lost.lost:
        why = f"{reading.why}, but {lost.text}"
        reading = _Reading(State.UNDECIDED, why, window.anchor_ns, reading.recovered_ns, reading.culprits)
    if reading.state not in (State.SERVES, State.UNDECIDED) and not _served_before(facts, path, window, reading):
        why = "no fresh request had ever passed there before, so nothing shows that it was ever able to serve"
        reading = _Reading(State.UNDECIDED, why, window.anchor_ns, reading.recovered_ns, reading.culprits)
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


def in_a_row(seen: Sequence[Seen], from_ns: int) -> int:
    """Passes in a row up to the last canary, begun at or after `from_ns`.

    A canary that still waits while a later one has passed breaks the row: on a deployment of which one rank is stuck,
    every other canary looks just like that until its deadline.
    """
    row = 0
    for one in reversed(seen):
        if one.fate is Fate.PASS:
            row += one.begun_ns >= from_ns
        elif one.fate is not Fate.VOID and (one.fate is not Fate.YOUNG or row):
            break
    return row


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


@dataclass(frozen=True, slots=True)
class _Died:
    """A process on a path that is dead at the end, and not by our hand."""

    since_ns: int
    seen_ns: int  # when somebody looked last


def _died(facts: Facts, path: ev.Path) -> _Died | None:
    nodes = facts.nodes_of(path)
    found = [dead for dead in dead_processes(facts) if dead.node in nodes and not dead.ours]
    first = min(found, key=lambda dead: dead.at_ns, default=None)
    return None if first is None else _Died(first.at_ns, facts.processes[first.node][-1].t_ns)


def _read(path: ev.Path, seen: Sequence[Seen], window: Window, plan: ev.Plan, died: _Died | None = None) -> _Reading:
    budget_ns = window.budget_ns(plan)
    telling = [s for s in seen if s.fate not in (Fate.YOUNG, Fate.VOID)]
    if not telling:
        return _Reading(State.UNDECIDED, "no canary told anything", window.anchor_ns, None, ())
    lost = _lossy(path, telling, budget_ns, plan)
    if lost:
        some = len([s for s in telling if s.begun_ns >= lost[0].begun_ns])
        why = f"{len(lost)} of {some} fresh requests did not complete while others did"
        return _Reading(State.LOSSY, why, lost[0].begun_ns, None, lost)
    first = _first_of_final_run(telling)
    if first is None:
        return _not_passing(telling, window, plan, died)
    bads = tuple(s for s in telling if s.fate.bad and s.until_ns > budget_ns and s.begun_ns < first.begun_ns)
    took = between(window.anchor_ns, first.until_ns)
    if _in_time(first, bads, budget_ns):
        why = f"passes again since {took}" if window.disrupted else "passes from beginning to end"
        return _Reading(State.SERVES, why, window.anchor_ns, first.until_ns, ())
    if bads:
        why = f"passed again only {took} {window.later} (limit {span(plan.recover_within_s)})"
        return _Reading(State.SLOW, why, window.anchor_ns, first.until_ns, bads)
    why = f"the first pass came only {took} {window.later}, and nothing was asked that failed past the budget"
    return _Reading(State.UNDECIDED, why, window.anchor_ns, first.until_ns, ())


def _in_time(first: Seen, bads: Sequence[Seen], budget_ns: int) -> bool:
    """Whether a path serves again from within its budget: an answer came by then, or was asked for by then.

    That one came in its own time, and nothing that had been sent before it failed any later.
    """
    return first.until_ns <= budget_ns or (not bads and first.begun_ns <= budget_ns)


def _first_of_final_run(telling: Sequence[Seen]) -> Seen | None:
    """The first pass after the last bad canary, in the order they were sent."""
    first = None
    for one in reversed(telling):
        if one.fate.bad:
            break
        first = one
    return first


def _not_passing(telling: Sequence[Seen], window: Window, plan: ev.Plan, died: _Died | None) -> _Reading:
    """The last thing heard of the path is bad: is it dark, late, or is it too early to say?

    Where a process on it has died, fewer failures tell that, and it has been so since then.
    """
    enough = ENOUGH_DEAD if died is None else ENOUGH_WITH_THE_DEAD
    horizon, budget_ns, deadline_ns = window.horizon_ns, window.budget_ns(plan), ns(plan.canary_deadline_s)
    recovered = None
    if horizon <= budget_ns:
        why = f"fails, but its budget of {span(plan.recover_within_s)} was not over when the watch ended"
        return _Reading(State.UNDECIDED, why, window.anchor_ns, recovered, ())
    answered = [s for s in telling if s.fate.answered]
    last_ok_ns = max((s.until_ns for s in answered), default=window.anchor_ns)
    newest = max((s.begun_ns for s in answered), default=window.anchor_ns)
    dead = tuple(
        s
        for s in telling
        if s.fate.dead
        and s.until_ns > max(budget_ns, last_ok_ns)
        # One that was overtaken is lost; it says nothing about the requests that came after.
        and (s.begun_ns >= newest or s.fate is Fate.FAILED)
    )
    if dead:
        first_dead_ns = min(s.begun_ns for s in telling if s.fate.dead and s.until_ns > last_ok_ns)
        dark_ns = max(
            window.anchor_ns, last_ok_ns, first_dead_ns if died is None else min(died.since_ns, first_dead_ns)
        )
        late = [s for s in answered if s.fate is Fate.LATE and s.until_ns > budget_ns]
        slowest_ns = max((round(SLOWEST_TIMES * (s.until_ns - s.begun_ns)) for s in late), default=0)
        patience_ns = min(slowest_ns, ns(plan.watch_s))  # what the engine's own timeouts did not free is not slow
        long_enough = horizon - dark_ns >= max(deadline_ns, patience_ns)
        if len(dead) >= enough and (long_enough or _failed_between(dead, died)):
            why = f"no fresh request has completed for {between(dark_ns, horizon)}"
            return _Reading(State.DARK, why, dark_ns, recovered, dead)
    late_ones = tuple(s for s in telling if s.fate is Fate.LATE and s.until_ns > budget_ns)
    if late_ones:
        worst = max(s.age_s for s in late_ones)
        why = f"fresh requests complete, but after up to {span(worst)} (limit {span(plan.canary_deadline_s)})"
        return _Reading(State.LATE, why, window.anchor_ns, recovered, late_ones)
    why = f"{count(max(len(dead), 1), 'fresh request')} failed at the end of the watch: too few to call it a state"
    return _Reading(State.UNDECIDED, why, window.anchor_ns, recovered, dead)


def _failed_between(dead: Sequence[Seen], died: _Died | None) -> bool:
    """Whether a request was sent to a dead process and had its error before the process was seen dead once more.

    That is an answer, and no moment between two lives: nothing need be waited for.
    """
    return died is not None and any(
        s.fate is Fate.FAILED and s.begun_ns >= died.since_ns and s.until_ns <= died.seen_ns for s in dead
    )


def _lossy(path: ev.Path, telling: Sequence[Seen], budget_ns: int, plan: ev.Plan) -> tuple[Seen, ...]:
    """The failed canaries of a path that completes some fresh requests and not others; empty when it is not so.

    Failures that lie in one stretch are an outage that healed (or did not); failures between passes, more than once,
    are what a stuck rank looks like.
    """
    if in_a_row(telling, 0) >= passes_needed(path, telling, plan):
        return ()
    recent = max(len(telling) - RECENT_ROWS * passes_for(path, plan), 0)
    failed = [
        (i, s)
        for i, s in enumerate(telling)
        if i >= recent
        and s.fate.dead
        and s.until_ns > budget_ns
        and s.begun_ns >= budget_ns - ns(plan.canary_deadline_s)
    ]
    return tuple(s for _, s in failed) if len(_blocks(failed, telling)) >= ENOUGH_DEAD else ()


def passes_for(path: ev.Path, plan: ev.Plan) -> int:
    """How many passes in a row a path must show: each rank that its canaries take in turn must have been asked."""
    return max(plan.canaries_in_a_row, path.ranks)


def passes_needed(path: ev.Path, seen: Sequence[Seen], plan: ev.Plan) -> int:
    """How many passes in a row show that a path serves again, by more than luck.

    With one of eight ranks stuck, five passes in a row happen half of the time. So the more often passes were mixed
    among the failures, the longer the row must be.
    """
    dead = [i for i, s in enumerate(seen) if s.fate.dead]
    if not dead:
        return passes_for(path, plan)
    share = len(dead) / (dead[-1] - dead[0] + 1)
    by_luck = 1 if share >= 1 else math.ceil(math.log(LUCK) / math.log(1 - share))
    return max(passes_for(path, plan), by_luck)


def _blocks(picked: Sequence[tuple[int, Seen]], telling: Sequence[Seen]) -> list[int]:
    """The first indexes of stretches of picked canaries with no pass between."""
    starts: list[int] = []
    last = None
    for i, _ in picked:
        if last is None or any(telling[j].fate is Fate.PASS for j in range(last + 1, i)):
            starts.append(i)
        last = i
    return starts


def _before_hanging_up(
    facts: Facts, path: ev.Path, window: Window, begun: Sequence[Canary], doubt: Doubt
) -> State | None:
    """How a path stood up to our own unplanned disconnect; None when there was none, or it was ill by then."""
    cut_ns = hung_up_ns(facts)
    if cut_ns is None or not window.anchor_ns < cut_ns < window.horizon_ns:
        return None
    stood = _up_to(cut_ns, facts, path, window, begun, doubt).state
    return stood if stood in (State.SERVES, State.UNDECIDED) else None


def _up_to(cut_ns: int, facts: Facts, path: ev.Path, window: Window, begun: Sequence[Canary], doubt: Doubt) -> _Reading:
    """What a path's canaries had shown by a moment."""
    known = [canary for canary in begun if canary.begun_ns <= cut_ns]
    seen = look_all(known, cut_ns, ns(facts.plan.canary_deadline_s), doubt)
    return _read(path, seen, replace(window, until_ns=cut_ns + 1, horizon_ns=cut_ns), facts.plan)


def _served_before(facts: Facts, path: ev.Path, window: Window, reading: _Reading) -> bool:
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


def _confirmed(reading: _Reading, window: Window, plan: ev.Plan) -> bool:
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
