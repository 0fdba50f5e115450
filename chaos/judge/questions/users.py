"""How the load's own requests fared: a run whose users failed, for whatever reason, was not the run it claims to be."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.judge.paths import shown_by
from chaos.judge.questions.answers import Answered, Question, fact, no, not_applicable, unknown, yes
from chaos.judge.units import count, ns
from chaos.model.failures import failure_words
from chaos.model.outcomes import Outcome

if TYPE_CHECKING:
    from chaos.judge.case import Case
    from chaos.judge.facts import LoadRequest
    from chaos.judge.windows import Window
    from chaos.model.events import LoadTold

TOLERATED_SHARE = 0.01
"""One odd failure in a hundred is a detail of a long run; more is not the load that the scenario describes."""


def _users_served(case: Case) -> Answered:
    """Requests that a fault may have touched are not counted; those that we hung up on at last never were answered.

    Where a person could not wait for their end, they tell nothing.
    """
    left_ns = case.facts.phase_start("leaving")
    reaches = [reach for window in case.windows for reach in _reaches(case, window)]
    counted = [
        request
        for request in case.facts.load.values()
        if request.ended_ns is not None
        and request.ended_by != "fault"
        and not (left_ns is not None and request.ended_by == "harness" and request.ended_ns >= left_ns)
        and not _cut_at_once(case, request)
        and not any(reach.touched(request.begun_ns, request.ended_ns) for reach in reaches)
    ]
    told = [
        load
        for load in case.facts.loads
        if load.completed is not None and not any(reach.overlaps(load.from_ns, load.t_ns) for reach in reaches)
    ]
    lost = [load for load in told if load.failed and load.failed > TOLERATED_SHARE * _ended(load)]
    if lost:
        many = "; ".join(f"{load.failed} of {count(_ended(load), 'user request')}" for load in lost)
        text = f"{many} failed where no fault explains it"
        return no(fact(text, [load.seq for load in lost]), outcome=Outcome.INCONCLUSIVE)
    if not _had_load(case):
        return unknown(fact("no user request is known to have been sent: whatever was to be shown under load was not"))
    if not counted and not told:
        return not_applicable(fact("no user request is known to have ended outside the reach of a fault"))
    mute = [request for request in counted if _never_answered(case, request)]
    if mute:
        text = f"{len(mute)} of {count(len(counted), 'user request')} never got a token, until we hung up"
        return no(fact(text, [request.seq for request in mute]), outcome=Outcome.INCONCLUSIVE)
    failed = [request for request in counted if not request.ok]
    if len(failed) <= TOLERATED_SHARE * len(counted):
        number = len(counted) + sum(map(_ended, told))
        served = number - len(failed) - sum(load.failed or 0 for load in told)
        return yes(fact(f"{served} of {number} user requests were served"))
    return no(
        fact(
            f"{len(failed)} of {count(len(counted), 'user request')} failed where no fault explains it: {_why(failed)}",
            [request.seq for request in failed],
        ),
        outcome=Outcome.INCONCLUSIVE,
    )


def _had_load(case: Case) -> bool:
    """Whether any load that was planned was delivered; what people collected of an incident may tell of none."""
    facts = case.facts
    delivered = any(beat.delivered for who, beats in facts.health.items() if who != "harness" for beat in beats)
    return bool(facts.load or facts.loads or delivered or facts.imported or not facts.plan.groups)


def _never_answered(case: Case, request: LoadRequest) -> bool:
    """Whether a user waited in vain for longer than any canary may: no odd failure, however many had more luck."""
    waited_ns = (request.ended_ns or request.begun_ns) - request.begun_ns
    in_vain = request.ended_by == "harness" and not request.ok and not request.tokens
    return in_vain and waited_ns > ns(case.facts.plan.canary_deadline_s)


def _cut_at_once(case: Case, request: LoadRequest) -> bool:
    """Whether we hung up in the teardown before a request had had the time that every canary has."""
    teardown_ns, ended_ns = case.facts.phase_start("teardown"), request.ended_ns or request.begun_ns
    late = teardown_ns is not None and ended_ns >= teardown_ns and request.error == "cancelled"
    return late and ended_ns - request.begun_ns <= ns(case.facts.plan.canary_deadline_s)


def _ended(load: LoadTold) -> int:
    return (load.completed or 0) + (load.failed or 0)


@dataclass(frozen=True, slots=True)
class _Reach:
    """When a cycle's faults may be why a request failed."""

    start_ns: int  # their first touch
    asked_ns: int  # when the last of the canaries that show that all serves again was sent
    end_ns: int  # when the last of them was answered; the end of the budget at the latest

    def touched(self, begun_ns: int, ended_ns: int) -> bool:
        """Whether the faults may explain a request's fate.

        Who asks after those canaries and still waits when they have their answers is owed one, too: a target that has
        become slower for good would else excuse itself with the slowness of the canaries.
        """
        owed = begun_ns > self.asked_ns and ended_ns > self.end_ns
        return self.overlaps(begun_ns, ended_ns) and not owed

    def overlaps(self, from_ns: int, until_ns: int) -> bool:
        """Whether a stretch of time has a moment in common with it."""
        return from_ns <= self.end_ns and until_ns >= self.start_ns


def _reaches(case: Case, window: Window) -> list[_Reach]:
    """From the first touch of the cycle's faults until all serves again; none where nothing was broken."""
    facts, cycle = case.facts, window.cycle
    starts = [fired.ordered_ns for (of, _), fired in facts.fired.items() if of == cycle]
    starts += [step.t_ns for step in facts.steps if step.cycle == cycle and step.stage == "applied" and step.ok]
    if not starts:
        return []
    end_ns = asked_ns = window.budget_ns(facts.plan)
    back = [shown_by(run) for run in case.runs if run.window is window]
    shown = [seen for seen in back if seen is not None]
    if shown and len(shown) == len(back):
        end_ns = min(end_ns, max(seen.until_ns for seen in shown))
        asked_ns = max(seen.begun_ns for seen in shown)
    return [_Reach(min(starts), asked_ns, end_ns)]


def _why(failed: list[LoadRequest]) -> str:
    causes = Counter((request.error, request.detail) for request in failed)
    (error, detail), times = min(causes.items(), key=lambda item: (-item[1], item[0]))
    return f"{count(times, 'time')} {failure_words(error)}" + (f" ({detail[:120]})" if detail else "")


USERS = (Question("users-served", "Were the load's own requests served, apart from what a fault hit?", _users_served),)
