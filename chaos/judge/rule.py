"""The rule of recovery: what the canaries of one path say of it, from the last disruption to the end of the watch.

This is the one place that says when a path serves again, when it recovered too late, and when it is wedged. Whether
such a reading may be held against the target is said in `paths.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from chaos.judge.canaries import Fate
from chaos.judge.units import between, count, ns, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.judge.canaries import Seen
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
class Reading:
    """What a set of canaries says."""

    state: State
    why: str
    since_ns: int
    recovered_ns: int | None
    culprits: tuple[Seen, ...]


@dataclass(frozen=True, slots=True)
class Died:
    """A process on a path that is dead at the end, and not by our hand."""

    since_ns: int
    seen_ns: int  # when somebody looked last


def read(path: ev.Path, seen: Sequence[Seen], window: Window, plan: ev.Plan, died: Died | None = None) -> Reading:
    """Read the canaries of one path up to the horizon of a window; with `died` fewer failures tell that it is dark."""
    budget_ns = window.budget_ns(plan)
    telling = [s for s in seen if s.fate not in (Fate.YOUNG, Fate.VOID)]
    if not telling:
        return Reading(State.UNDECIDED, "no canary told anything", window.anchor_ns, None, ())
    lost = _lossy(path, telling, budget_ns, plan)
    if lost:
        some = len([s for s in telling if s.begun_ns >= lost[0].begun_ns])
        why = f"{len(lost)} of {some} fresh requests did not complete while others did"
        return Reading(State.LOSSY, why, lost[0].begun_ns, None, lost)
    first = _first_of_final_run(telling)
    if first is None:
        return _not_passing(telling, window, plan, died)
    bads = tuple(s for s in telling if s.fate.bad and s.until_ns > budget_ns and s.begun_ns < first.begun_ns)
    took = between(window.anchor_ns, first.until_ns)
    if _in_time(first, bads, budget_ns):
        why = f"passes again since {took}" if window.disrupted else "passes from beginning to end"
        return Reading(State.SERVES, why, window.anchor_ns, first.until_ns, ())
    if bads:
        why = f"passed again only {took} {window.later} (limit {span(plan.recover_within_s)})"
        return Reading(State.SLOW, why, window.anchor_ns, first.until_ns, bads)
    why = f"the first pass came only {took} {window.later}, and nothing was asked that failed past the budget"
    return Reading(State.UNDECIDED, why, window.anchor_ns, first.until_ns, ())


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


def _not_passing(telling: Sequence[Seen], window: Window, plan: ev.Plan, died: Died | None) -> Reading:
    """The last thing heard of the path is bad: is it dark, late, or is it too early to say?

    Where a process on it has died, fewer failures tell that, and it has been so since then.
    """
    enough = ENOUGH_DEAD if died is None else ENOUGH_WITH_THE_DEAD
    horizon, budget_ns, deadline_ns = window.horizon_ns, window.budget_ns(plan), ns(plan.canary_deadline_s)
    recovered = None
    if horizon <= budget_ns:
        why = f"fails, but its budget of {span(plan.recover_within_s)} was not over when the watch ended"
        return Reading(State.UNDECIDED, why, window.anchor_ns, recovered, ())
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
            return Reading(State.DARK, why, dark_ns, recovered, dead)
    late_ones = tuple(s for s in telling if s.fate is Fate.LATE and s.until_ns > budget_ns)
    if late_ones:
        worst = max(s.age_s for s in late_ones)
        why = f"fresh requests complete, but after up to {span(worst)} (limit {span(plan.canary_deadline_s)})"
        return Reading(State.LATE, why, window.anchor_ns, recovered, late_ones)
    why = f"{count(max(len(dead), 1), 'fresh request')} failed at the end of the watch: too few to call it a state"
    return Reading(State.UNDECIDED, why, window.anchor_ns, recovered, dead)


def _failed_between(dead: Sequence[Seen], died: Died | None) -> bool:
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
