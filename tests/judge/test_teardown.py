"""What the target does of our own clumsy end of a run is not what the faults did to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build import GOOD, HANG, INSIDE, REFUSED, Play, plan, play, waved

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


@pytest.mark.parametrize(("lost", "outcome"), [(0, Outcome.LEAKING), (1, Outcome.INCONCLUSIVE)])
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


# ---------------------------------------------------------------------------------------------- a run that was stopped


def stopped(told: Play, *, at_once: bool = True) -> Play:
    """A person ends the run; at once, while two users' requests wait and one streams, or only after these ended."""
    told.phase("teardown", "SIGINT").go(1)
    return told.phase("leaving", "SIGINT").hang_up(0).hang_up(1).hang_up(2, tokens=7) if at_once else told


def left(told: Play) -> Verdict:
    told.tell(ev.RunEnded(t_ns=0, status="aborted", cleanup="clean", reason="SIGINT"), told.now + 0.5)
    return judge(told.events())


HUNG_UP = "3 open requests (2 waiting for the first token, 1 streaming)"


def test_whoever_leaves_at_once_is_told_what_that_did_and_that_nobody_looked_since():
    told = left(stopped(waved().recovered())).leaving
    assert told is not None
    assert (2, 1, 0, 0) == (told.waiting, told.streaming, told.unknown, told.canaries)
    assert (
        f"asked to leave at once, we ourselves hung up on {HUNG_UP}",
        "that is a disturbance of the same kind as a wave: it may have broken the target",
        "nothing was looked at since: what state it left the paths in is unknown",
    ) == told.told


@pytest.mark.parametrize("told", [lambda: play().load(), lambda: waved().recovered()], ids=["no wave", "a wave"])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_path_that_served_until_we_hung_up_on_leaving_is_not_said_to_serve(told, at_once):
    path = left(stopped(told(), at_once=at_once)).paths[0]
    assert (Answer.UNKNOWN if at_once else Answer.YES) == path.serves
    assert ("served until we hung up on open requests on leaving; nobody looked since" == path.note) is at_once


@pytest.mark.parametrize(
    ("reply", "known"),
    [
        (GOOD, "was answered, which is too little to tell"),
        (HANG, "had no answer in the 1.0 s until we left"),
        (REFUSED, "failed: the connection was refused"),
    ],
    ids=["answered", "not answered", "refused"],
)
def test_one_last_request_after_we_hung_up_is_told_and_proves_nothing(reply, known):
    told = stopped(waved().recovered())
    told.interval, told.reply = 100.0, reply
    verdict = left(told.go(1).go(2))
    assert Answer.UNKNOWN == verdict.paths[0].serves
    assert verdict.paths[0].note.endswith(f"one fresh request 1.0 s later {known}")
    assert verdict.leaving is not None
    assert f"routed: one fresh request 1.0 s later {known}" in verdict.leaving.told[2]


def test_passes_enough_after_we_hung_up_show_that_a_path_serves():
    assert Answer.YES == left(stopped(waved().recovered()).go(12)).paths[0].serves


def test_passes_among_which_one_fails_after_we_hung_up_show_nothing():
    told = stopped(play().load()).go(8)
    told.reply = REFUSED
    told.go(1).reply = GOOD
    assert Answer.UNKNOWN == left(told.go(8)).paths[0].serves


def test_our_own_way_that_broke_on_leaving_is_no_hanging_up():
    told = waved().recovered()
    told.phase("teardown", "SIGINT").phase("leaving", "SIGINT").hang_up(error="way")
    assert left(told).leaving is None


def test_an_overdue_canary_that_ends_with_a_gentle_run_is_no_hanging_up_on_leaving():
    told = stopped(waved().recovered(), at_once=False)
    told.tell(
        ev.RequestEnded(t_ns=0, req="canary-9", kind="canary", path="routed", error="cancelled", ended_by="harness")
    )
    assert left(told).leaving is None


def test_cycles_that_a_stopped_run_did_not_begin_are_not_laid_to_a_target_that_had_not_recovered():
    reasons = left(stopped(play(plan=plan(cycles=2)).load())).reasons
    assert "1 planned cycle never began, for the run was stopped" in reasons
    assert not any("had not recovered" in why for why in reasons)


def test_a_load_that_did_not_end_in_time_after_one_ctrl_c_is_told_too():
    told = waved().recovered()
    told.phase("teardown", "SIGINT").go(1).hang_up(0).phase("last-canaries")
    verdict = left(told)
    assert verdict.leaving is not None
    assert not verdict.leaving.at_once
    assert verdict.leaving.told[0].startswith("stopped, and the load did not end in time, we ourselves hung up on 1 ")
    assert Answer.UNKNOWN == verdict.paths[0].serves


def test_a_run_that_goes_to_its_end_watches_after_hanging_up_and_is_told_nothing_of_it():
    told = waved().recovered()
    told.phase("teardown").hang_up()
    verdict = judge(told.recovered().finish())
    assert (None, Answer.YES) == (verdict.leaving, verdict.paths[0].serves)


def test_what_the_servers_log_after_we_left_is_our_doing_and_explains_nothing_that_was_seen_before():
    verdict = left(stopped(play().load()).fatal(after=0.3))
    assert verdict.leaving is not None
    assert "since then prefill-0 logged: the control thread died of an abort frame" == verdict.leaving.told[3]
    assert () == verdict.causes


def test_users_whose_end_nobody_waited_for_did_not_fail():
    findings = {finding.id: finding for finding in left(stopped(play().load())).findings}
    assert Answer.NO != findings["users-served"].answer


@pytest.mark.parametrize(
    ("told", "amid"),
    [
        (play, "in the baseline, before any fault struck: what the faults would have done is unknown"),
        (
            lambda: play(plan=plan(cycles=2)).load(),
            "under load, before any fault struck: what the faults would have done is unknown",
        ),
        (waved, "while the recovery was watched: whether routed recovers after wave 1 is unknown"),
        (lambda: waved().recovered(), "while the recovery was watched: whether it stays so at rest is unknown"),
        (
            lambda: waved(plan=plan(cycles=3)).recovered(),
            "in the rest between two cycles: what 2 more cycles would have done is unknown",
        ),
    ],
    ids=["baseline", "load", "wave", "recovered", "rest"],
)
def test_an_interrupted_run_says_by_what_amid_what_and_what_that_leaves_unknown(told, amid):
    verdict = left(stopped(told(), at_once=False))
    assert f"INCONCLUSIVE: interrupted by SIGINT (Ctrl-C) {amid}" == verdict.headline
    assert f"the run was interrupted by SIGINT (Ctrl-C) {amid.split(':')[0]}" in verdict.reasons


def test_a_run_that_was_interrupted_before_it_asked_anything_says_so():
    told = play().events()[:1]
    ended = ev.RunEnded(t_ns=told[0].t_ns + 1, seq=2, status="aborted", cleanup="clean", reason="SIGTERM")
    assert (
        "INCONCLUSIVE: interrupted by SIGTERM before anything was asked: what the faults would have done is unknown"
    ) == judge([*told, ended]).headline


def test_a_run_that_was_interrupted_by_no_signal_says_why():
    told = stopped(play().load(), at_once=False)
    told.tell(ev.RunEnded(t_ns=0, status="aborted", cleanup="clean", reason="run r2 has stolen the lock of x"))
    assert judge(told.events()).headline.startswith(
        "INCONCLUSIVE: interrupted under load, before any fault struck, since run r2 has stolen the lock of x: what"
    )


def test_what_we_hung_up_on_is_in_the_headline():
    assert left(stopped(play().load())).headline.endswith(
        f"; we hung up on {HUNG_UP} ourselves, and what that did to the target is unknown"
    )


def test_a_run_that_was_interrupted_after_it_had_seen_a_wedge_says_both():
    told = waved()
    told.reply = HANG
    verdict = left(stopped(told.go(45)))
    assert Outcome.WEDGED == verdict.outcome
    assert verdict.headline.startswith("WEDGED: after wave 1 no fresh request has completed")
    assert verdict.headline.endswith("(the run was interrupted by SIGINT (Ctrl-C) while the recovery was watched)")
    assert Answer.NO == verdict.paths[0].serves


@pytest.mark.parametrize(
    ("hung_s", "told"), [(0.0, "nothing of that was there before"), (5.0, "it was too early to tell when")]
)
def test_of_a_path_that_was_about_to_fail_when_we_hung_up_nobody_says_that_it_was_well(hung_s, told):
    play = waved().recovered()
    play.reply = HANG
    play.go(hung_s).phase("teardown").hang_up()
    verdict = judge(play.go(45).finish())
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert f"but {told} we hung up on open requests in the teardown" in verdict.paths[0].note
