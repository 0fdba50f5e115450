"""What the target does of our own clumsy end of a run is not what the faults did to it."""

from __future__ import annotations

import pytest
from build import GOOD, HANG, INSIDE, Play, play, waved

from chaos.judge import judge
from chaos.model.outcomes import Answer, Outcome


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
