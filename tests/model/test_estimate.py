"""How long a run takes by its own waits."""

from __future__ import annotations

import pytest
from model_samples import PACK, SCENARIO, TARGET

from chaos.model.estimate import START_S, longest_s, shortest_s
from chaos.model.loading import parse_pack, parse_scenario, parse_target
from chaos.model.plan import resolve_plan


def estimated(*overrides: str, scale: float = 1.0) -> tuple[float, float]:
    scenario = parse_scenario(SCENARIO, "s.yaml", overrides)
    plan = resolve_plan(scenario, parse_target(TARGET, "t.yaml", [f"time_scale={scale}"]), parse_pack(PACK, "p.yaml"))
    return shortest_s(scenario, plan), longest_s(scenario, plan)


def test_the_least_is_the_sum_of_the_planned_waits() -> None:
    # baseline 10, settle 10, quiet 10, five canaries 5, idle 60
    assert pytest.approx(START_S + 10 + 10 + 10 + 5 + 60) == estimated()[0]
    # of two cycles, with a rest of 40 between them
    assert pytest.approx(START_S + 10 + 2 * 25 + 40 + 60) == estimated("cycles.count=2")[0]


def test_a_ramp_a_fixed_moment_and_a_freeze_take_their_time() -> None:
    base = estimated()[0]
    assert pytest.approx(base + 7) == estimated("load.agents.arrival.ramp=7s")[0]
    step = "{id: wave, signal: {where: {role: decode}, send: STOP}, for: 20s, at: 30s}"
    assert pytest.approx(base + 30 + 20) == estimated(f"timeline=[{step}]")[0]


def test_the_most_has_every_trigger_at_its_last_moment_and_the_whole_watch() -> None:
    least, most = estimated()
    # give_up 60, settle 10, watch 300 + 35 + 15, drain 120, a last canary 20
    assert pytest.approx(least + 60 + 10 + 350 + 120 + 20) == most


def test_a_lab_with_shortened_clocks_is_faster() -> None:
    assert estimated(scale=0.1)[0] < estimated()[0] / 3
