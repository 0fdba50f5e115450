"""Which stretch of time is judged for each cycle: from the last disruption of the cycle to the next cycle's load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.judge.deeds import gone_ns
from chaos.judge.units import ns
from chaos.model.outcomes import RunStatus

if TYPE_CHECKING:
    from chaos.judge.facts import Facts
    from chaos.model import events as ev


@dataclass(frozen=True, slots=True)
class Window:
    """One cycle's recovery: canaries begun in [anchor, until) belong to it; `horizon` is as far as is seen."""

    cycle: int
    anchor_ns: int
    until_ns: int
    horizon_ns: int
    after: str  # "after wave 1", "since load began"
    disrupted: bool  # something was broken; False: a run or a cycle in which no wave was fired

    @property
    def later(self) -> str:
        """As `after`, to follow a duration: "5 s after wave 1", "5 s after load began"."""
        return self.after.replace("since ", "after ", 1)

    def budget_ns(self, plan: ev.Plan) -> int:
        """When the path must have recovered."""
        return self.anchor_ns + ns(plan.recover_within_s)


def first_fault_ns(facts: Facts) -> int | None:
    """When a fault first touched anything."""
    moments = [fired.ordered_ns for fired in facts.fired.values()]
    moments += [step.t_ns for step in facts.steps if step.stage == "applied" and step.ok]
    return min(moments, default=None)


def windows(facts: Facts, now_ns: int | None = None) -> tuple[Window, ...]:
    """The windows of all cycles begun so far, in order; `now_ns` is the horizon while a run still watches."""
    horizon = max(facts.last_ns or 0, now_ns or 0)
    loads = _load_starts(facts)
    cycles = sorted(set(loads) | {cycle for cycle, _ in facts.fired})
    if not cycles and facts.run and not facts.plan.faults and facts.phases:
        # Nothing is planned and no load phase is told: the whole of what was seen is one window.
        return (Window(0, facts.phases[0].t_ns, horizon + 1, horizon, "since the run began", disrupted=False),)
    found = []
    for at, cycle in enumerate(cycles):
        after = cycles[at + 1] if at + 1 < len(cycles) else None
        until = horizon + 1 if after is None else min(_begin(facts, loads, after), horizon + 1)
        hit = _last_effect(facts, cycle, horizon)
        if hit is None and now_ns is None and _stopped_early(facts):
            # Nothing was broken, and what we do to a load that nobody waits for is not the target's life.
            until = min([until, *(e.t_ns for e in facts.phases if e.phase == "teardown")])
        anchor = hit if hit is not None else _begin(facts, loads, cycle)
        found.append(
            Window(cycle, anchor, until, min(until, horizon), _after(facts, cycle, hit), disrupted=hit is not None)
        )
    return tuple(found)


def baseline_window(facts: Facts, now_ns: int) -> Window:
    """The time before anything was broken, for who asks while still in it."""
    anchor = facts.phases[0].t_ns if facts.phases else (facts.first_ns or 0)
    return Window(0, anchor, now_ns + 1, now_ns, "in the baseline", disrupted=False)


def load_start(facts: Facts) -> int | None:
    """When load (else the first wave) first touched the deployment; None when nothing ever did."""
    starts = [*_load_starts(facts).values(), *(fired.ordered_ns for fired in facts.fired.values())]
    return min(starts, default=None)


def in_vain_s(facts: Facts) -> float:
    """After how long without a token a request waits for nothing: no timeout of the engine will end it any more.

    A watch that was told to be shorter than these timeouts does not shorten them.
    """
    timeouts = facts.deployment.timeouts if facts.deployment else ()
    return max([facts.plan.watch_s, *(timeout.seconds for timeout in timeouts)])


def _stopped_early(facts: Facts) -> bool:
    """Whether a run with faults to make did not go to its end."""
    return bool(facts.plan.faults) and (facts.ended is None or facts.ended.status != RunStatus.COMPLETED)


def _load_starts(facts: Facts) -> dict[int, int]:
    starts: dict[int, int] = {}
    for entered in facts.phases:
        if entered.phase == "load":
            starts[entered.cycle] = min(starts.get(entered.cycle, entered.t_ns), entered.t_ns)
    return starts


def _begin(facts: Facts, loads: dict[int, int], cycle: int) -> int:
    if cycle in loads:
        return loads[cycle]
    return min(fired.ordered_ns for (of, _), fired in facts.fired.items() if of == cycle)


def _last_effect(facts: Facts, cycle: int, horizon: int) -> int | None:
    """When the last disruptive fault of the cycle last touched something.

    One that we undo after a time counts until it was measured to be gone, and up to the horizon while it stands or may
    stand: nothing can be expected of a deployment that we still hold. One that we leave as it is counts from when it
    took effect; that we clean it up at the end of the run is no event of the deployment's life.
    """
    harmless = {fault.id for fault in facts.plan.faults if not fault.disruptive}
    timed = {fault.id for fault in facts.plan.faults if fault.lasts_s is not None}
    moments = [
        fired.last_ns
        if fired.last_ns is not None
        else fired.first_ns
        if fired.first_ns is not None
        else fired.ordered_ns
        for (of, wave), fired in facts.fired.items()
        if of == cycle and wave not in harmless
    ]
    ours = [step for step in facts.steps if step.cycle == cycle and step.fault not in harmless and step.ok]
    # Without a wave.fired of its own (a fault of nodes) the moment it was applied is its effect, and where that takes
    # a while (a restart), the moment at which it was measured to be over.
    moments += [step.t_ns for step in ours if step.kind != "kill" and step.stage in ("applied", "verified")]
    standing = {step.fault for step in ours if step.stage == "applied"} & timed
    moments += [horizon if (gone := gone_ns(facts, cycle, fault)) is None else gone for fault in standing]
    return max(moments, default=None)


def _after(facts: Facts, cycle: int, hit: int | None) -> str:
    if hit is None:
        return "since load began" if facts.plan.cycles <= 1 else f"since the load of cycle {cycle} began"
    if len(facts.plan.faults) <= 1:
        if all(fault.kind == "kill" for fault in facts.plan.faults):
            return f"after wave {cycle}"
        name = facts.plan.faults[0].id
        return f"after {name}" if facts.plan.cycles <= 1 else f"after {name} of cycle {cycle}"
    return f"after the faults of cycle {cycle}"
