"""What the target does of our own clumsy end of a run is not what the faults did to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build import GOOD, HANG, INSIDE, Play, play, waved

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome

if TYPE_CHECKING:
    from chaos.model.verdict import Verdict


def well_up_to_the_teardown(*, hung_up: bool) -> Play:
    told = waved().recovered()
    told.phase("teardown")
    return (told.hang_up() if hung_up else told).go(1)


@pytest.mark.parametrize(("hung_up", "outcome"), [(False, Outcome.DAMAGED), (True, Outcome.INCONCLUSIVE)])
def test_a_fatal_line_after_we_hung_up_in_the_teardown_is_doubt(hung_up, outcome):
    verdict = judge(well_up_to_the_teardown(hung_up=hung_up).fatal().finish())
    assert outcome == verdict.outcome
    assert ("seen only after we hung up" in verdict.headline) is hung_up


@pytest.mark.parametrize(("hung_up", "outcome"), [(False, Outcome.DAMAGED), (True, Outcome.INCONCLUSIVE)])
def test_a_process_that_died_after_we_hung_up_in_the_teardown_is_doubt(hung_up, outcome):
    assert outcome == judge(well_up_to_the_teardown(hung_up=hung_up).die("decode-0").finish()).outcome


@pytest.mark.parametrize(("hung_up", "outcome"), [(False, Outcome.DAMAGED), (True, Outcome.INCONCLUSIVE)])
def test_a_thread_that_is_missed_only_after_we_hung_up_in_the_teardown_is_doubt(hung_up, outcome):
    told = Play(threads=dict(INSIDE)).baseline().look_inside().load().wave().recovered()
    told.phase("teardown")
    if hung_up:
        told.hang_up()
    told.threads["prefill-0"] = ("MainThread",)
    verdict = judge(told.go(1).look_inside().finish())
    assert outcome == verdict.outcome
    assert ("seen only after we hung up" in verdict.headline) is hung_up


@pytest.mark.parametrize(("hung_up", "outcome"), [(False, Outcome.LEAKING), (True, Outcome.INCONCLUSIVE)])
def test_a_queue_that_keeps_what_we_hung_up_on_is_doubt(hung_up, outcome):
    told = well_up_to_the_teardown(hung_up=hung_up)
    told.backlog["decode-0"] = 40.0
    assert outcome == judge(told.finish()).outcome


def stuck_since_the_wave(
    *,
    sent: float = 14.0,
    tokens: int = 0,
    freed: bool = False,
    asked_s: float = 14.0,
    watched_s: float = 20.0,
    timeout_s: float = 30.0,
    lost: int = 0,
    passing: float = 0.0,
) -> Verdict:
    """The wave is at 15 s. Three users' requests never end, a queue holds three, and we hang up on them at last."""
    told = Play(timeouts=(ev.EngineTimeout(name="waiting", seconds=timeout_s),)).baseline(7)
    told.backlog["prefill-0"] = passing  # canaries that happen to be in it when it is read
    told.go(1).backlog["prefill-0"] = 0.0
    told.go(2).load().wave()
    told.reply = HANG if lost else GOOD
    told.go(lost).reply = GOOD
    told.backlog["prefill-0"] = 3.0
    told.recovered(watched_s).phase("teardown").go(5)
    told.backlog["prefill-0"] = 0.0 if freed else 3.0
    told.go(5)
    told.backlog["prefill-0"] = 3.0
    for session in range(3):
        told.hang_up(session, sent=sent, tokens=tokens)
    return judge(told.go(asked_s).finish())


@pytest.mark.parametrize(
    "which",
    [
        pytest.param({}, id="sent before the wave"),
        pytest.param({"passing": 2.0}, id="with canaries passing through"),
        pytest.param({"sent": 16.0, "watched_s": 40.0}, id="waited longer than the engine's timeouts"),
    ],
)
def test_a_queue_that_kept_what_the_fault_left_stuck_before_we_hung_up_leaks(which):
    verdict = stuck_since_the_wave(**which)
    assert Outcome.LEAKING == verdict.outcome
    assert (
        f"LEAKING: backlog of prefill-0 is 3 at rest, was {which.get('passing', 0):g} before the load, "
        "and kept at least 3 from before we hung up on anybody"
    ) == verdict.headline


@pytest.mark.parametrize(("lost", "outcome"), [(0, Outcome.LEAKING), (1, Outcome.HEALTHY)])
def test_what_passing_canaries_may_have_left_in_a_gauge_is_no_leak_while_one_of_ours_keeps_it_from_being_written(
    lost, outcome
):
    assert outcome == stuck_since_the_wave(passing=2.0, lost=lost).outcome


@pytest.mark.parametrize(
    "otherwise",
    [
        pytest.param({"sent": 20.0}, id="sent after the wave"),
        pytest.param({"sent": 16.0, "watched_s": 40.0, "timeout_s": 90.0}, id="the engine may yet have ended it"),
        pytest.param({"tokens": 1}, id="had a token"),
        pytest.param({"freed": True}, id="the queue was empty once"),
        pytest.param({"asked_s": 4.0}, id="nobody asked since"),
    ],
)
def test_a_queue_that_may_keep_only_what_we_hung_up_on_is_doubt(otherwise):
    assert Outcome.INCONCLUSIVE == stuck_since_the_wave(**otherwise).outcome


@pytest.mark.parametrize(("hung_up", "outcome"), [(False, Outcome.WEDGED), (True, Outcome.INCONCLUSIVE)])
def test_a_path_that_fails_only_after_we_hung_up_in_the_teardown_is_doubt(hung_up, outcome):
    told = well_up_to_the_teardown(hung_up=hung_up)
    told.reply = HANG
    verdict = judge(told.go(30).finish())
    assert outcome == verdict.outcome
    assert (Answer.UNKNOWN if hung_up else Answer.NO) == verdict.paths[0].serves


def test_a_wedge_that_stood_before_we_hung_up_stays():
    told = waved()
    told.reply = HANG
    told.go(45).phase("teardown").hang_up().go(1).fatal()
    verdict = judge(told.finish())
    assert Outcome.WEDGED == verdict.outcome
    assert verdict.wedge is not None
    assert verdict.wedge.total
    assert verdict.wedge.confirmed


def test_damage_that_was_seen_before_we_hung_up_stays():
    told = waved().fatal().recovered()
    told.phase("teardown").hang_up()
    assert Outcome.DAMAGED == judge(told.fatal("decode-0").finish()).outcome


@pytest.mark.parametrize(("status", "outcome"), [("aborted", Outcome.INCONCLUSIVE), ("completed", Outcome.WEDGED)])
def test_a_run_stopped_before_its_first_fault_is_not_judged_by_its_teardown(status, outcome):
    told = play().load()
    told.phase("teardown").reply = HANG
    told.go(20)
    assert outcome == judge(told.finish(status=status)).outcome


def test_a_target_that_failed_under_load_before_a_person_stopped_the_run_is_still_accused():
    told = play().load()
    told.reply = HANG
    told.go(30).phase("teardown").reply = GOOD
    verdict = judge(told.go(10).finish(status="aborted"))
    assert Outcome.WEDGED == verdict.outcome
