"""The shipped scenarios load against the shipped packs, and say what they are for."""

from __future__ import annotations

import pytest

from chaos import library
from chaos.model.outcomes import Outcome
from chaos.model.plan import resolve_plan
from chaos.model.target import Target

NAMES = library.names("scenarios")
CONTEXT_TOKENS = 8192
"""Context and KV pool of the smallest engine that the scenarios are meant for (the CPU lab's tiny model)."""


def target(time_scale: float) -> Target:
    return Target.model_validate(
        {
            "version": 1,
            "name": "here",
            "router": {"url": "http://127.0.0.1:1"},
            "prefill": [{"url": "http://127.0.0.1:2"}],
            "decode": [{"url": "http://127.0.0.1:3"}],
            "time_scale": time_scale,
        }
    )


def test_the_three_scenarios_are_there() -> None:
    assert {"abort-cascade", "abort-cascade-decode-phase", "soak-no-fault"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_loads_is_named_as_its_file_and_allows_only_health(name: str) -> None:
    scenario = library.load_scenario(name).value
    assert name == scenario.name
    assert scenario.about
    assert [Outcome.HEALTHY] == scenario.expect.allow


@pytest.mark.parametrize("name", NAMES)
def test_a_session_fits_the_smallest_context(name: str) -> None:
    for group in library.load_scenario(name).value.load:
        if group.rounds <= 10:
            assert CONTEXT_TOKENS > group.rounds * (group.prompt_tokens + group.max_tokens)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_a_scenario_resolves_on_a_cluster_and_on_a_lab(name: str, scale: float) -> None:
    pack = library.load_pack("sglang").value
    plan = resolve_plan(library.load_scenario(name).value, target(scale), pack)
    assert plan.watch_s > 300 * scale
    assert plan.rest_s >= 35 * scale
    assert plan.idle_s > 35 * scale


def test_the_cascade_kills_waiting_sessions_twice_and_spares_the_bystanders() -> None:
    scenario = library.load_scenario("abort-cascade").value
    agents, bystanders = scenario.load
    assert (60, 400) == (agents.sessions, agents.saturate.max_sessions if agents.saturate else 0)
    assert 2 == scenario.cycles.count
    (wave,) = scenario.timeline
    assert ("agents", "sigkill", "all") == (wave.kill.group, wave.kill.how, wave.kill.sessions)
    assert {"waiting": ">= 20", "server_aborts": ">= 1"} == wave.aim
    assert bystanders.timeout > 300


def test_the_decode_phase_scenario_aims_at_what_its_few_streams_cannot_cause() -> None:
    scenario = library.load_scenario("abort-cascade-decode-phase").value
    (wave,) = scenario.timeline
    assert {"streaming": ">= 4"} == wave.when
    assert ">= 1" == wave.aim["server_aborts"]
    assert 4 == sum(group.sessions for group in scenario.load)


def test_the_soak_breaks_nothing_and_hangs_up_on_nobody() -> None:
    scenario = library.load_scenario("soak-no-fault").value
    assert [] == scenario.timeline
    assert all(group.timeout > 300 for group in scenario.load)


def test_a_wave_is_only_said_to_have_landed_where_the_servers_told_of_aborts() -> None:
    """Trap 18: short requests free their slots by themselves, and every scenario passes for the wrong reason."""
    waves = [
        (load, step)
        for load in map(library.load_scenario, NAMES)
        for step in load.value.timeline
        if step.kill and step.kill.how == "sigkill"
    ]
    assert len(waves) >= 3
    for load, wave in waves:
        assert ">= 1" == wave.aim["server_aborts"], load.value.name
        (group,) = (group for group in load.value.load if group.name == wave.kill.group)
        assert group.max_tokens >= 1000, f"{load.value.name}: streams that end before the wave"


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_either_side_is_replaced_under_load(role: str) -> None:
    """Trap 45: replacing an idle node works where replacing one in use does not."""
    scenario = library.load_scenario(f"restart-{role}-under-load").value
    (step,) = scenario.timeline
    assert role == step.restart.where.role
    assert all(group.rounds * group.think_time > scenario.expect.recover_within for group in scenario.load)
