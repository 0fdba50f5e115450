"""A sweep becomes one whole scenario per dose, or problems at the place of the dose."""

from __future__ import annotations

import pytest
from model_samples import SCENARIO

from chaos.model.errors import InvalidFile
from chaos.model.loading import parse_scenario, parse_variants
from chaos.model.repetition import MOST_RUNS
from chaos.model.variants import SWEEPABLE

CHANCE = "nobody can tell a slower target from chance"
SHARE = "9:22: `slower_by` must be a share such as 25%, not 25 (10% is the least that can be told)"
UNKNOWN = "9:11: unknown key `slower_than` (did you mean slower_by?)"
LIMIT = "500 is the limit (fewer doses or fewer trials)"
TOO_FEW = "`max_sessions` is 50, fewer than the 60 sessions the group begins with"


def swept(text: str) -> str:
    return f"{SCENARIO}{text}\n"


def problems(text: str, *overrides: str) -> list[str]:
    with pytest.raises(InvalidFile) as caught:
        parse_scenario(swept(text), "s.yaml", overrides)
    return [line.removeprefix("s.yaml:") for line in str(caught.value).split("\n")]


def test_each_dose_is_a_whole_scenario_of_its_own() -> None:
    text = swept("sweep: {load.agents.sessions: [10, 20], timeline.wave.give_up: [30s, 2m]}")
    found = parse_variants(text, "s.yaml", ("load.agents.rounds=3",))
    assert [
        "load.agents.sessions=10, timeline.wave.give_up=30s",
        "load.agents.sessions=20, timeline.wave.give_up=2m",
    ] == [dose for dose, _ in found]
    told = [(s.load[0].sessions, s.load[0].rounds, s.timeline[0].give_up, s.sweep) for _, s in found]
    assert [(10, 3, 30.0, None), (20, 3, 120.0, None)] == told


def test_a_list_of_one_needs_no_name() -> None:
    found = parse_variants(swept("sweep: {load.sessions: [10, 20]}"), "s.yaml")
    assert [10, 20] == [scenario.load[0].sessions for _, scenario in found]
    told = parse_scenario(SCENARIO, "s.yaml", ("load.sessions=7", "timeline.aim.waiting=>= 3"))
    assert (7, {"waiting": ">= 3"}) == (told.load[0].sessions, told.timeline[0].aim)


def test_a_list_of_several_needs_one() -> None:
    text = SCENARIO.replace("load:\n", "load:\n  - {name: others}\n") + "sweep: {load.sessions: [10]}\n"
    with pytest.raises(InvalidFile, match=r"s\.yaml:9:25: with load\.sessions=10: there is no 'sessions' in the list"):
        parse_scenario(text, "s.yaml")


def test_without_a_sweep_there_is_one_variant_without_a_dose() -> None:
    ((dose, scenario),) = parse_variants(SCENARIO, "s.yaml")
    assert ("", parse_scenario(SCENARIO, "s.yaml")) == (dose, scenario)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sweep: {}", ["8:8: `sweep` must not be empty"]),
        ("sweep: {load.sessions: []}", ["8:24: `load.sessions` must not be empty"]),
        (
            "sweep: {load.sessions: [10, 20], load.rounds: [1]}",
            ["8:47: `load.sessions` has 2 doses, and `load.rounds` has 1 (what is swept together changes together)"],
        ),
        (
            "sweep: {load.sessions: [10, 20, 20]}",
            ["8:33: the doses of `load.sessions` must grow (smallest first, each once)"],
        ),
        (
            "sweep: {canary.every: [2s, 1m, 3s]}",
            ["8:32: the doses of `canary.every` must grow (smallest first, each once)"],
        ),
        (
            "sweep: {timeline.wave.kill.how: [rst, fin]}",
            [
                "8:34: a dose of `timeline.wave.kill.how` must be a number, a duration or a rate",
                "8:39: a dose of `timeline.wave.kill.how` must be a number, a duration or a rate",
            ],
        ),
        (
            "sweep: {expect.recover_within: [10s]}",
            [f"8:9: `expect.recover_within` is no dose (it may be something under {', '.join(SWEEPABLE)})"],
        ),
        (
            "sweep: {load.sesions: [1, 2]}",
            [
                "8:24: with load.sesions=1: unknown key `sesions` (did you mean sessions?)",
                "8:27: with load.sesions=2: unknown key `sesions` (did you mean sessions?)",
            ],
        ),
        (
            "sweep: {load.saturate.max_sessions: [50, 60], load.saturate.waiting: [5, 5]}",
            [
                f"8:38: with load.saturate.max_sessions=50, load.saturate.waiting=5: {TOO_FEW}",
            ],
        ),
        (
            f"trials: {{count: {MOST_RUNS // 2 + 1}}}\nsweep: {{load.sessions: [1, 2]}}",
            ["9:8: 2 doses with 251 trials each are 502 runs; 500 is the limit (fewer doses or fewer trials)"],
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_sweep_is_told_at_its_dose(text: str, told: list[str]) -> None:
    assert told == problems(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "control: true",
            [f"8:1: with fewer than 4 trials {CHANCE} (trials: {{count: 4}} and as many of the control)"],
        ),
        ("trials: {count: 4}\ncontrol: {count: 3}", ["9:18: `count` must be at least 4, not 3"]),
        ("trials: {count: 4}\ncontrol: {slower_by: 25}", [SHARE]),
        ("trials: {count: 4}\ncontrol: {slower_than: 5%}", [UNKNOWN]),
        ("trials: {count: 4}\ncontrol: yes", ["9:10: `control` must be a mapping (key: value), not the text 'yes'"]),
        (
            "trials: {count: 100}\ncontrol: {count: 200}\nsweep: {load.sessions: [1, 2]}",
            [f"10:8: 2 doses with 100 trials and 200 of the control each are 600 runs; {LIMIT}"],
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_control_is_told_at_its_place(text: str, told: list[str]) -> None:
    assert told == problems(text)


def test_a_control_without_a_fault_to_leave_out_is_refused() -> None:
    text = "version: 1\nname: soak\nload: [{name: a}]\ntrials: {count: 4}\ncontrol: true\n"
    with pytest.raises(InvalidFile, match=r"s\.yaml:5:1: `control` leaves out the fault, and there is none"):
        parse_scenario(text, "s.yaml")
    assert parse_scenario(text.replace("true", "false"), "s.yaml").control is None


def test_what_is_wrong_without_any_dose_is_told_once_and_not_again_for_each() -> None:
    assert [
        "8:25: with load.sessions=0: `sessions` must be at least 1, not 0",
        "9:20: watching 1 s cannot tell whether paths recover within 60 s (watch longer or set expect.recover_within)",
    ] == problems("sweep: {load.sessions: [0, 5]}\nobserve: {at_most: 1s}")


HIT = "sessions can never be hit: the group 'agents' has"
MORE = "at most (write sessions: all, or give the group more: `sessions`, or `saturate.max_sessions`)"


def wave(sessions: int, text: str) -> str:
    return swept(text).replace("{group: agents}", f"{{group: agents, how: rst, sessions: {sessions}}}")


def test_what_a_dose_makes_of_a_group_is_what_a_wave_may_ask_for() -> None:
    fits = parse_variants(wave(70, "sweep: {load.sessions: [80, 90]}"), "s.yaml")
    assert [80, 90] == [one.load[0].sessions for _, one in fits]
    with pytest.raises(InvalidFile) as caught:
        parse_scenario(wave(70, "sweep: {load.sessions: [50, 60, 80]}"), "s.yaml")
    assert [
        f"s.yaml:8:25: with load.sessions=50: 70 {HIT} 50 {MORE}",
        f"s.yaml:8:29: with load.sessions=60: 70 {HIT} 60 {MORE}",
    ] == str(caught.value).split("\n")


def test_a_wave_that_is_too_large_whatever_the_dose_is_told_once_at_its_place() -> None:
    with pytest.raises(InvalidFile) as caught:
        parse_scenario(wave(70, "sweep: {canary.every: [1s, 2s]}"), "s.yaml")
    assert [f"s.yaml:6:58: 70 {HIT} 60 {MORE}"] == str(caught.value).split("\n")
