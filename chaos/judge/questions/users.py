"""How the load's own requests fared: a run whose users failed, for whatever reason, was not the run it claims to be."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from chaos.judge.questions.answers import Answered, Question, fact, no, not_applicable, yes
from chaos.judge.units import count
from chaos.model.outcomes import Outcome

if TYPE_CHECKING:
    from chaos.judge.case import Case
    from chaos.judge.facts import LoadRequest
    from chaos.model.events import LoadTold

TOLERATED_SHARE = 0.01
"""One odd failure in a hundred is a detail of a long run; more is not the load that the scenario describes."""


def _users_served(case: Case) -> Answered:
    """Requests that a fault may have touched are not counted; those that we hung up on at last never were answered."""
    touched = [_touched(case, window.cycle, window.budget_ns(case.facts.plan)) for window in case.windows]
    counted = [
        request
        for request in case.facts.load.values()
        if request.ended_ns is not None
        and request.ended_by != "fault"
        and not any(request.begun_ns <= end and request.ended_ns >= start for start, end in touched)
    ]
    told = [
        load
        for load in case.facts.loads
        if load.completed is not None and not any(load.from_ns <= e and load.t_ns >= s for s, e in touched)
    ]
    lost = [load for load in told if load.failed and load.failed > TOLERATED_SHARE * _ended(load)]
    if lost:
        many = "; ".join(f"{load.failed} of {count(_ended(load), 'user request')}" for load in lost)
        text = f"{many} failed where no fault explains it"
        return no(fact(text, [load.seq for load in lost]), outcome=Outcome.INCONCLUSIVE)
    if not counted and not told:
        return not_applicable(fact("no user request is known to have ended outside the reach of a fault"))
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


def _ended(load: LoadTold) -> int:
    return (load.completed or 0) + (load.failed or 0)


def _touched(case: Case, cycle: int, until_ns: int) -> tuple[int, int]:
    """From the first touch of the cycle's faults to the end of its budget; empty where nothing was broken."""
    starts = [fired.ordered_ns for (of, _), fired in case.facts.fired.items() if of == cycle]
    starts += [step.t_ns for step in case.facts.steps if step.cycle == cycle and step.stage == "applied" and step.ok]
    return (min(starts), until_ns) if starts else (until_ns, until_ns - 1)


def _why(failed: list[LoadRequest]) -> str:
    causes = Counter((request.error, request.detail) for request in failed)
    (error, detail), times = min(causes.items(), key=lambda item: (-item[1], item[0]))
    return f"{times} x {error}" + (f" ({detail[:120]})" if detail else "")


USERS = (Question("users-served", "Were the load's own requests served, apart from what a fault hit?", _users_served),)
