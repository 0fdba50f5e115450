"""Scenario + target + pack = plan: every duration in the deployment's own time, every condition as a bound.

What waits for the *engine's* clocks is multiplied by the target's time scale, because a lab shortens those clocks:
settle, quiet, idle, rest, the recovery budget, a watch limit given as a duration and how long a fault stands (a freeze
is long or short by the engine's heartbeats and leases). What depends on how fast the
machine computes is not: the load, a canary's interval and its deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.model.chance import DOUBT, tries_that_tell
from chaos.model.events import EngineTimeout, Plan, PlannedFault
from chaos.model.faults import Kill, Sham
from chaos.model.units import bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.model.pack import Pack
    from chaos.model.scenario import Scenario, Step
    from chaos.model.target import Target

MIN_CANARY_DEADLINE_S = 2.0
"""No deadline is shorter, whatever the budget: on a starved machine a healthy answer can take a second."""


def resolve_plan(scenario: Scenario, target: Target, pack: Pack) -> Plan:
    """The plan of a run of `scenario` on `target`, whose prefill and decode nodes `pack` describes."""
    scale = target.time_scale
    observe, canary = scenario.observe, scenario.canary
    budget_s = scenario.expect.recover_within * scale
    quiet_s = observe.quiet * scale
    lag_s = gauge_lag_s(target, pack)
    # Time to *show* recovery once it happened: the quiet after the last abort evidence, then canaries in a row.
    proof_s = quiet_s + canary.in_a_row * canary.every
    if observe.at_most == "engine-timeouts":
        # Until the longest timeout has gone by nothing may be called permanent; it starts when a request is admitted,
        # and what it frees shows in the gauges only a lag later.
        longest_s = max((timeout.seconds for timeout in engine_timeouts(target, pack)), default=0.0)
        watch_s = longest_s + lag_s + proof_s
    else:
        watch_s = observe.at_most * scale
    # Where only the router can be asked, it takes a row of requests to tell a lost worker from an unlucky one.
    row_s = _row_that_tells(target, pack) * canary.every
    return Plan(
        scenario=scenario.name,
        about=scenario.about,
        cycles=scenario.cycles.count,
        faults=tuple(_fault(step, scale) for step in scenario.timeline),
        groups=tuple(group.name for group in scenario.load),
        settle_s=observe.settle * scale,
        # Before the lag has gone by, a gauge still shows the cycle before.
        rest_s=max(scenario.cycles.rest * scale, lag_s),
        idle_s=observe.idle * scale,
        quiet_s=quiet_s,
        watch_s=max(watch_s, budget_s + max(proof_s, row_s)),
        recover_within_s=budget_s,
        # A canary slower than the whole budget cannot show recovery within it.
        canary_deadline_s=max(min(canary.deadline, budget_s), MIN_CANARY_DEADLINE_S),
        canary_interval_s=canary.every,
        canaries_in_a_row=canary.in_a_row,
        allow=tuple(outcome.value for outcome in scenario.expect.allow),
        time_scale=scale,
        until=scenario.cycles.until or "",
        measure_s=observe.measure,
        content=target.content,
    )


def _row_that_tells(target: Target, pack: Pack) -> int:
    """How many canaries the largest role needs until one that a worker never gets is no chance any more.

    Twice what an equal share needs, since a worker may get less than that; none where every pair is asked by itself.
    """
    several = [len(role) for role in (target.prefill, target.decode) if len(role) > 1]
    if pack.paths == "direct" or not several:
        return 0
    return 2 * tries_that_tell(1 / max(several), DOUBT / sum(several))


def engine_timeouts(target: Target, pack: Pack) -> tuple[EngineTimeout, ...]:
    """The engine's timeouts on this target: as the target states them, else the pack's default in the target's time."""
    stated = [EngineTimeout(name=name, seconds=seconds, source="target") for name, seconds in target.timeouts.items()]
    defaults = [
        EngineTimeout(name=timeout.name, seconds=timeout.default * target.time_scale, source="pack default")
        for timeout in pack.timeouts
        if timeout.name not in target.timeouts
    ]
    return tuple(sorted(stated + defaults, key=lambda timeout: timeout.name))


def gauge_lag_s(target: Target, pack: Pack) -> float:
    """How long a gauge may still show the past: as the target states it, else the pack's in the target's time."""
    return target.gauge_lag if target.gauge_lag is not None else pack.gauge_lag * target.time_scale


def unmet_requirements(scenario: Scenario, target: Target, packs: Mapping[str, Pack]) -> list[str]:
    """What the scenario requires and this target lacks, in words; empty when all is there."""
    used = {target.engine, target.router_engine}
    unmet = [f"the target does not use the pack {name}" for name in scenario.requires.packs if name not in used]
    metrics = {metric.name for name in used & packs.keys() for metric in packs[name].metrics}
    unmet += [
        f"no pack of the target knows the metric {name}" for name in scenario.requires.metrics if name not in metrics
    ]
    for role, wanted in scenario.requires.nodes.items():
        there = sum(server.role == role for server in target.servers)
        if there < wanted:
            unmet.append(f"it takes {wanted} {role} nodes, and the target has {there} (a lab: --set {role}={wanted})")
    if target.router_engine in packs:
        router = packs[target.router_engine]
        unmet += _unspoken(scenario, router)
        unmet += [
            f"{step.id} asks for {step.poison.api}, for which the pack {router.name} names no endpoint"
            for step in scenario.timeline
            if step.poison and step.poison.api not in router.endpoints.speaks
        ]
    unmet += _unabortable(scenario, target, packs)
    return unmet


def _unabortable(scenario: Scenario, target: Target, packs: Mapping[str, Pack]) -> list[str]:
    """Steps that have requests aborted, where no pack of the target says how, or no request can be named."""
    steps = [step.id for step in scenario.timeline if step.kill and step.kill.how == "abort-api"]
    used = [packs[name] for name in (target.router_engine, target.engine) if name in packs]
    if not steps or not used:
        return []
    if not any(pack.endpoints.abort for pack in used):
        why = f"no pack of the target ({', '.join(pack.name for pack in used)}) has endpoints.abort"
        return [f"{steps[0]} cannot have requests aborted: {why}"]
    if not used[0].rid:
        return [f"{steps[0]} cannot have requests aborted: {used[0].name} takes no `rid`, so they cannot be named"]
    return []


def _unspoken(scenario: Scenario, router: Pack) -> list[str]:
    """Groups whose language the router does not speak: all that they could get is errors."""
    spoken = router.endpoints.speaks
    return [
        f"load {group.name} asks for {group.api}, for which the pack {router.name} names no endpoint"
        + (f" (--with load.{group.name}.api={spoken[0]})" if spoken else "")
        for group in scenario.load
        if group.api not in spoken
    ]


def _fault(step: Step, scale: float) -> PlannedFault:
    action = step.action
    return PlannedFault(
        id=step.id,
        kind=action.kind,
        how=action.how if isinstance(action, Kill) else action.told,
        group=(action.group or "") if isinstance(action, Kill | Sham) else "",
        aim=bounds(step.aim),
        lasts_s=None if step.lasts is None else step.lasts * scale,
    )
