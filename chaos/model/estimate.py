"""How long a run takes by its own waits: no less than the one number, and with bad luck as long as the other.

What the load needs where no timeline ends it depends on the deployment and is in neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.model.events import Plan
    from chaos.model.scenario import Scenario

START_S = 5.0
"""A lab's start and end, and the reports."""


def shortest_s(scenario: Scenario, plan: Plan) -> float:
    """A run in which every trigger comes at once and every path recovers as fast as can be shown."""
    proof_s = plan.settle_s + plan.quiet_s + plan.canaries_in_a_row * plan.canary_interval_s
    cycle_s = _until_fired_s(scenario, wait=False) + _standing_s(plan) + proof_s
    baseline_s = max(scenario.observe.baseline * plan.time_scale, plan.canaries_in_a_row * plan.canary_interval_s)
    return START_S + baseline_s + plan.cycles * cycle_s + (plan.cycles - 1) * plan.rest_s + plan.idle_s


def longest_s(scenario: Scenario, plan: Plan) -> float:
    """A run in which every trigger comes at the last moment and nothing recovers before the watch is over."""
    drain_s = max((group.timeout for group in scenario.load), default=0.0)
    cycle_s = _until_fired_s(scenario, wait=True) + _standing_s(plan) + plan.settle_s + plan.watch_s
    return shortest_s(scenario, plan) + plan.cycles * cycle_s + drain_s + plan.canary_deadline_s


def _until_fired_s(scenario: Scenario, *, wait: bool) -> float:
    """From the beginning of the load to the last step."""
    ramp_s = max((group.arrival.ramp for group in scenario.load), default=0.0)
    at_s = max((step.at for step in scenario.timeline if step.at is not None), default=0.0)
    waits_s = sum(step.give_up for step in scenario.timeline if step.when) if wait else 0.0
    return max(ramp_s, at_s) + waits_s


def _standing_s(plan: Plan) -> float:
    return sum(fault.lasts_s or 0.0 for fault in plan.faults)
