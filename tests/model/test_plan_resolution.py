"""A scenario becomes a plan in the deployment's own time, for the reasons written in `chaos.model.plan`."""

from __future__ import annotations

from typing import Any

import pytest
from model_samples import PACK, SCENARIO, TARGET

from chaos.model.events import Bound, EngineTimeout
from chaos.model.loading import parse_pack, parse_scenario, parse_target
from chaos.model.plan import engine_timeouts, gauge_lag_s, resolve_plan, unmet_requirements

PACK_MODEL = parse_pack(PACK, "p.yaml")  # waiting 300 s, bootstrap 100 s, gauges lag 35 s


def plan_of(*overrides: str, target: tuple[str, ...] = ()) -> Any:
    scenario = parse_scenario(SCENARIO, "s.yaml", overrides)
    return resolve_plan(scenario, parse_target(TARGET, "t.yaml", target), PACK_MODEL)


def test_on_a_real_cluster_durations_are_what_the_scenario_says() -> None:
    plan = plan_of("cycles.rest=40s", "cycles.count=2", "cycles.until=wedged")
    assert (10.0, 10.0, 60.0, 60.0) == (plan.settle_s, plan.quiet_s, plan.idle_s, plan.recover_within_s)
    assert (40.0, 2, "wedged") == (plan.rest_s, plan.cycles, plan.until)
    assert (1.0, 20.0, 5) == (plan.canary_interval_s, plan.canary_deadline_s, plan.canaries_in_a_row)
    assert ("healthy",) == plan.allow
    assert 1.0 == plan.time_scale


def test_a_lab_scales_what_waits_for_the_engine_and_leaves_the_rest() -> None:
    plan = plan_of("cycles.rest=40s", target=("time_scale=0.1",))
    assert pytest.approx((1.0, 1.0, 6.0, 6.0, 4.0)) == (
        plan.settle_s,
        plan.quiet_s,
        plan.idle_s,
        plan.recover_within_s,
        plan.rest_s,
    )
    assert 1.0 == plan.canary_interval_s


def test_a_wedge_is_watched_past_the_longest_engine_timeout_the_gauge_lag_and_the_proof_of_recovery() -> None:
    assert 300 + 35 + 10 + 5 * 1 == plan_of().watch_s
    assert pytest.approx(30 + 3.5 + 1 + 5 * 1) == plan_of(target=("time_scale=0.1",)).watch_s


def test_what_the_target_states_is_not_scaled() -> None:
    stated = ("time_scale=0.1", "timeouts.waiting=40s", "gauge_lag=2s")
    assert pytest.approx(40 + 2 + 1 + 5) == plan_of(target=stated).watch_s
    target = parse_target(TARGET, "t.yaml", stated)
    assert (
        EngineTimeout(name="bootstrap", seconds=10.0, source="pack default"),
        EngineTimeout(name="waiting", seconds=40.0, source="target"),
    ) == engine_timeouts(target, PACK_MODEL)
    assert 2.0 == gauge_lag_s(target, PACK_MODEL)


def test_a_timeout_that_only_the_target_knows_counts() -> None:
    assert 900 + 35 + 15 == plan_of(target=("timeouts.other=900s",)).watch_s


def test_a_watch_limit_given_as_a_duration_is_scaled_and_never_shorter_than_the_proof() -> None:
    assert 120.0 == plan_of("observe.at_most=120s").watch_s
    assert pytest.approx(12.0) == plan_of("observe.at_most=120s", target=("time_scale=0.1",)).watch_s
    assert 60 + 10 + 5 == plan_of("observe.at_most=60s").watch_s


def test_where_only_a_router_can_be_asked_the_watch_is_long_enough_to_miss_one_of_many_workers() -> None:
    def watch_s(decode: int, paths: str = "routed-only") -> float:
        servers = ", ".join(f"{{url: 'http://127.0.0.1:{n}'}}" for n in range(100, 100 + decode))
        scenario = parse_scenario(SCENARIO, "s.yaml", ["observe.at_most=60s"])
        pack = PACK_MODEL.model_copy(update={"paths": paths})
        return resolve_plan(scenario, parse_target(TARGET, "t.yaml", [f"decode=[{servers}]"]), pack).watch_s

    assert 60 + 15 == watch_s(1) == watch_s(8, "direct")
    # an equal worker of two misses 8 in a row once in 256, of eight 51 in a row once in 900; twice that is watched
    assert 60 + 2 * 8 == watch_s(2)
    assert 60 + 2 * 51 == watch_s(8)


def test_rest_is_at_least_the_gauge_lag() -> None:
    assert 35.0 == plan_of("cycles.rest=1s").rest_s


def test_a_canary_deadline_is_at_most_the_recovery_budget_and_at_least_two_seconds() -> None:
    assert 20.0 == plan_of().canary_deadline_s
    assert pytest.approx(6.0) == plan_of(target=("time_scale=0.1",)).canary_deadline_s
    assert 2.0 == plan_of("expect.recover_within=1s").canary_deadline_s
    assert 2.0 == plan_of("canary.deadline=500ms").canary_deadline_s


def test_each_step_becomes_a_planned_fault_with_its_aim_as_bounds() -> None:
    fault = plan_of("timeline.wave.aim={waiting: '>= 20', server_aborts: '>0'}", "timeline.wave.kill.how=rst").faults[0]
    assert ("wave", "kill", "rst", "agents", True) == (fault.id, fault.kind, fault.how, fault.group, fault.disruptive)
    assert (
        Bound(name="waiting", op=">=", value=20.0),
        Bound(name="server_aborts", op=">", value=0.0),
    ) == fault.aim


def test_requirements_that_a_target_does_not_meet_are_told() -> None:
    target = parse_target(TARGET, "t.yaml", ["engine=engine"])
    packs = {"engine": PACK_MODEL}
    fits = parse_scenario(SCENARIO, "s.yaml", ["requires={packs: [engine], metrics: [prefill_queue]}"])
    assert [] == unmet_requirements(fits, target, packs)
    misses = parse_scenario(SCENARIO, "s.yaml", ["requires={packs: [vllm], metrics: [kv_free]}"])
    assert [
        "the target does not use the pack vllm",
        "no pack of the target knows the metric kv_free",
    ] == unmet_requirements(misses, target, packs)


def test_load_in_a_language_that_the_router_does_not_speak_is_told() -> None:
    target = parse_target(TARGET, "t.yaml", ["engine=engine", "router_engine=mute"])
    scenario = parse_scenario(SCENARIO, "s.yaml", ["load.agents.api=generate"])
    speaks = PACK_MODEL.endpoints.model_copy(update={"chat": "/chat", "generate": ""})
    packs = {"engine": PACK_MODEL, "mute": PACK_MODEL.model_copy(update={"name": "mute", "endpoints": speaks})}
    assert [
        "load agents asks for generate, for which the pack mute names no endpoint (--with load.agents.api=chat)"
    ] == unmet_requirements(scenario, target, packs)
