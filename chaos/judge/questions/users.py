"""How the load's own requests fared: a run whose users failed, for whatever reason, was not the run it claims to be."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.judge.deeds import WAVES
from chaos.judge.paths import shown_by
from chaos.judge.questions.answers import Answered, Question, fact, no, not_applicable, unknown, yes
from chaos.judge.units import count, ns
from chaos.model.failures import failure_words
from chaos.model.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.judge.case import Case
    from chaos.judge.facts import LoadRequest
    from chaos.judge.windows import Window
    from chaos.model.events import LoadTold

TOLERATED_SHARE = 0.01
"""One odd failure in a hundred is a detail of a long run; more is not the load that the scenario describes."""
GOODPUT_LEAST = 0.9
"""A load that gets through less than this share of what it did before is not served as before."""


def _users_served(case: Case) -> Answered:
    """Requests that a fault may have touched are not counted; those that we hung up on at last never were answered.

    Where a person could not wait for their end, they tell nothing.
    """
    reaches = [reach for window in case.windows for reach in _reaches(case, window)]
    counted, aside = _counted(case, reaches)
    told = _told(case, reaches)
    spoilt = _spoilt(case, told, reaches)
    if spoilt is not None:
        return spoilt
    if not _had_load(case):
        return unknown(fact("no user request is known to have been sent: whatever was to be shown under load was not"))
    if not counted and not told:
        return not_applicable(fact("no user request is known to have ended outside the reach of a fault"))
    mute = [request for request in counted if _never_answered(case, request)]
    if mute:
        text = f"{len(mute)} of {count(len(counted), 'user request')} never got a token, until we hung up"
        return no(fact(text, [request.seq for request in mute]), outcome=Outcome.INCONCLUSIVE)
    for requests, which in _shares(counted, reaches):
        failed = [request for request in requests if not request.ok]
        if len(failed) > TOLERATED_SHARE * len(requests):
            many = f"{len(failed)} of {count(len(requests), 'user request')}{which}"
            text = f"{many} failed where no fault explains it: {_why(failed)}"
            return no(fact(text, [request.seq for request in failed]), outcome=Outcome.INCONCLUSIVE)
    number = len(counted) + sum(map(_ended, told))
    served = sum(request.ok for request in counted) + sum(load.completed or 0 for load in told)
    hit = sum(not request.ok for request in aside)
    more = f"; {hit} more failed within the reach of a fault" if hit else ""
    return yes(fact(f"{served} of {number} user requests were served{more}"))


def _told(case: Case, reaches: list[_Reach]) -> list[LoadTold]:
    """Loads that somebody counted as a whole, apart from every fault."""
    return [
        load
        for load in case.facts.loads
        if load.completed is not None and not any(reach.overlaps(load.from_ns, load.t_ns) for reach in reaches)
    ]


def _spoilt(case: Case, told: list[LoadTold], reaches: list[_Reach]) -> Answered | None:
    """What loads that were counted as a whole say against the target; None: nothing."""
    lost = [load for load in told if load.failed and load.failed > TOLERATED_SHARE * _ended(load)]
    if lost:
        many = "; ".join(f"{load.failed} of {count(_ended(load), 'user request')}" for load in lost)
        text = f"{many} failed where no fault explains it"
        return no(fact(text, [load.seq for load in lost]), outcome=Outcome.INCONCLUSIVE)
    poor = [load for load in case.facts.loads if _poor(load, reaches)]
    if poor:
        text = f"users got through {poor[0].goodput:.0%} of what they did before, and no fault explains it any more"
        return no(fact(text, [load.seq for load in poor]), outcome=Outcome.INCONCLUSIVE)
    outlived = [load for load in case.facts.loads if load not in told and _outlived(load, reaches)]
    if outlived:
        many = f"{outlived[0].failed} of {count(_ended(outlived[0]), 'user request')}"
        text = f"{many} failed in a time of which a fault explains but a part, and nobody noted when"
        return unknown(fact(text, [load.seq for load in outlived]))
    return None


def _counted(case: Case, reaches: list[_Reach]) -> tuple[list[LoadRequest], list[LoadRequest]]:
    """The requests that tell how users fare, and those that a fault may have touched, though it did not end them."""
    left_ns = case.facts.phase_start("leaving")
    counted: list[LoadRequest] = []
    aside: list[LoadRequest] = []
    for request in case.facts.load.values():
        if request.ended_ns is None or request.ended_by == "fault" or _cut_at_once(case, request):
            continue
        if left_ns is not None and request.ended_by == "harness" and request.ended_ns >= left_ns:
            continue
        touched = any(reach.touched(request.begun_ns, request.ended_ns) for reach in reaches)
        (aside if touched else counted).append(request)
    return counted, aside


def _shares(counted: list[LoadRequest], reaches: list[_Reach]) -> Iterator[tuple[list[LoadRequest], str]]:
    """Each group by itself, whole and since the last fault was over: a crowd that is served hides none that is not."""
    over_ns = max((reach.end_ns for reach in reaches), default=0)
    for group in sorted({request.group for request in counted}):
        requests = [request for request in counted if request.group == group]
        name = f" of {group}" if len({request.group for request in counted}) > 1 else ""
        yield requests, name
        yield [request for request in requests if (request.ended_ns or 0) > over_ns], f"{name} since"


def unasked_users(case: Case) -> list[str]:
    """For the verdict's list: faults after which no user is left to tell, so that canaries alone show what serves."""
    facts = case.facts
    reaches = [reach for window in case.windows for reach in _reaches(case, window)]
    if facts.imported or not reaches:
        return []
    over_ns = max(reach.start_ns for reach in reaches)
    asked = any(request.begun_ns > over_ns for request in facts.load.values())
    asked = asked or any(load.t_ns > over_ns for load in facts.loads)
    return [] if asked else ["users after the last fault: nobody's requests but our canaries were sent"]


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
    """Whether we hung up in the teardown before a request had had the time that a canary has, or amid its tokens."""
    teardown_ns, ended_ns = case.facts.phase_start("teardown"), request.ended_ns or request.begun_ns
    late = teardown_ns is not None and ended_ns >= teardown_ns and request.error == "cancelled"
    return late and ended_ns - (request.last_ns or request.begun_ns) <= ns(case.facts.plan.canary_deadline_s)


def _poor(load: LoadTold, reaches: list[_Reach]) -> bool:
    """Whether users got through much less than before, once every fault was over."""
    after = reaches and all(load.from_ns > reach.end_ns for reach in reaches)
    return bool(after) and load.goodput is not None and load.goodput < GOODPUT_LEAST


def _outlived(load: LoadTold, reaches: list[_Reach]) -> bool:
    """Whether more failed of a load than is a detail, and it began before or went on after what may explain that."""
    if load.completed is None or not load.failed or load.failed <= TOLERATED_SHARE * _ended(load):
        return False
    return not any(reach.start_ns <= load.from_ns and load.t_ns <= reach.end_ns for reach in reaches)


def _ended(load: LoadTold) -> int:
    return (load.completed or 0) + (load.failed or 0)


@dataclass(frozen=True, slots=True)
class _Reach:
    """When a cycle's faults may be why a request failed."""

    start_ns: int  # their first touch
    asked_ns: int  # when the last of the canaries that show that all serves again was sent
    end_ns: int  # when the last of them was answered; the end of the budget at the latest
    limit_ns: int | None  # when whoever was there before must have been answered or told; None: never

    def touched(self, begun_ns: int, ended_ns: int) -> bool:
        """Whether the faults may explain a request's fate.

        Who asks after those canaries and still waits when they have their answers is owed one, too: a target that has
        become slower for good would else excuse itself with the slowness of the canaries. So is, in the end, whoever
        was already waiting when the faults struck.
        """
        owed = begun_ns > self.asked_ns and ended_ns > self.end_ns
        late = self.limit_ns is not None and ended_ns > self.limit_ns
        return self.overlaps(begun_ns, ended_ns) and not owed and not late

    def overlaps(self, from_ns: int, until_ns: int) -> bool:
        """Whether a stretch of time has a moment in common with it."""
        return from_ns <= self.end_ns and until_ns >= self.start_ns


def _reaches(case: Case, window: Window) -> list[_Reach]:
    """From the first touch of the cycle's faults until all serves again; none where nothing was broken."""
    facts, cycle = case.facts, window.cycle
    starts = [fired.ordered_ns for (of, _), fired in facts.fired.items() if of == cycle]
    steps = [step for step in facts.steps if step.cycle == cycle and step.stage == "applied" and step.ok]
    starts += [step.t_ns for step in steps]
    if not starts:
        return []
    end_ns = asked_ns = window.budget_ns(facts.plan)
    # What lay on a node that was broken may be stuck until the router's own timeout, which may be half an hour; that
    # other clients went away is no reason at all.
    limit_ns = None if any(step.kind not in WAVES for step in steps) else end_ns
    back = [shown_by(run) for run in case.runs if run.window is window]
    shown = [seen for seen in back if seen is not None]
    if shown and len(shown) == len(back):
        end_ns = min(end_ns, max(seen.until_ns for seen in shown))
        asked_ns = max(seen.begun_ns for seen in shown)
    return [_Reach(min(starts), asked_ns, end_ns, limit_ns)]


def _why(failed: list[LoadRequest]) -> str:
    causes = Counter((request.error, request.detail) for request in failed)
    (error, detail), times = min(causes.items(), key=lambda item: (-item[1], item[0]))
    return f"{count(times, 'time')} {failure_words(error)}" + (f" ({detail[:120]})" if detail else "")


USERS = (Question("users-served", "Were the load's own requests served, apart from what a fault hit?", _users_served),)
