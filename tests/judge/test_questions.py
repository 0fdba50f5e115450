"""What each question alone notices, and how answers become an outcome."""

from __future__ import annotations

import pytest
import test_outcomes as situations
import test_workers
from build import GOOD, HANG, Play, Reply, late, play, waved
from test_reach import whole_run

from chaos.judge import QUESTIONS, judge
from chaos.judge.lattice import decide
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome
from chaos.model.verdict import Finding


def only_too_few_passes() -> list[ev.AnyEvent]:
    return waved().go(3).finish()


def no_last_canary() -> list[ev.AnyEvent]:
    told = waved().recovered()
    told.deaf = frozenset({"canary"})
    return told.finish()


def an_event_is_missing() -> list[ev.AnyEvent]:
    events = waved().recovered().finish()
    at = next(i for i, event in enumerate(events) if isinstance(event, ev.Liveness))
    return events[:at] + events[at + 1 :]


def a_short_baseline() -> list[ev.AnyEvent]:
    told = situations.Play().baseline(2)
    return told.load(1).wave().recovered().finish()


def late_with_progress_only() -> list[ev.AnyEvent]:
    told = waved(token_rate=300.0)
    told.reply, told.received_rate = late(6), 100
    told.backlog["prefill-0"], told.backlog_rate = 38.0, -0.7
    told.go(30)
    told.reply = GOOD
    return told.go(20).finish()


def users_ask(told: Play, numbers: range, failure: str = "", ended_by: ev.EndedBy = "server") -> Play:
    """One request a second, with these numbers; all of them served, or none."""
    for n in numbers:
        sent, req = told.ns(told.now), f"u{n}"
        told.tell(ev.RequestStarted(t_ns=0, req=req, kind="load", path="routed", intended_ns=sent, sent_ns=sent))
        told.go(1)
        by = ended_by if failure else "server"
        told.tell(
            ev.RequestEnded(t_ns=0, req=req, kind="load", path="routed", sent_ns=sent, error=failure, ended_by=by)
        )
    return told


def users_failed(
    *, failures: int = 3, error: str = "status", ended_by: ev.EndedBy = "server", when: str = "load"
) -> list[ev.AnyEvent]:
    told = users_ask(play().load(), range(4))
    if when == "wave":
        told.wave()
    users_ask(told, range(4, 4 + failures), error, ended_by)
    if when != "wave":
        told.go(1).wave()
    return told.recovered().finish()


ALONE = {
    "users-served": (users_failed, Outcome.INCONCLUSIVE),
    "crashed": (situations.a_process_died, Outcome.CRASHED),
    "wedged": (situations.nothing_completes_and_health_is_green, Outcome.WEDGED),
    "recovered-in-time": (situations.it_healed_at_the_engines_timeout, Outcome.SLOW_RECOVERY),
    "workers-serve": (test_workers.forgotten_for_good, Outcome.WEDGED),
    "overloaded": (late_with_progress_only, Outcome.OVERLOADED),
    "paths-serve": (only_too_few_passes, Outcome.INCONCLUSIVE),
    "last-canaries": (no_last_canary, Outcome.INCONCLUSIVE),
    "content-wrong": (situations.an_answer_with_someone_elses_text, Outcome.CORRUPTED),
    "replaced": (situations.a_process_was_replaced, Outcome.RESTARTED),
    "processes-known": (situations.the_processes_were_never_looked_at, Outcome.INCONCLUSIVE),
    "leaking": (situations.a_queue_keeps_what_it_did_not_hold, Outcome.LEAKING),
    "damaged": (situations.a_thread_died_and_everything_still_passes, Outcome.DAMAGED),
    "threads-alive": (situations.a_thread_is_gone_and_no_line_says_so, Outcome.DAMAGED),
    "still-answer": (lambda: whole_run(asked_last=3), Outcome.INCONCLUSIVE),
    "record-whole": (an_event_is_missing, Outcome.INCONCLUSIVE),
    "run-completed": (situations.the_run_was_stopped_by_a_person, Outcome.INCONCLUSIVE),
    "we-were-fit": (situations.nobody_watched_ourselves, Outcome.INCONCLUSIVE),
    "baseline-served": (a_short_baseline, Outcome.INCONCLUSIVE),
    "faults-landed": (situations.the_servers_saw_no_abort, Outcome.INCONCLUSIVE),
    "logs-read": (situations.a_log_lost_bytes, Outcome.INCONCLUSIVE),
    "probes-looked": (situations.the_canary_probe_was_blind_for_a_while, Outcome.INCONCLUSIVE),
}
"""What one question alone notices; `test_mutations.py` shows that it goes unnoticed without it."""
WITHOUT_CONTROL = "degraded"  # of one run never applicable: only a campaign has a control arm


def test_every_question_has_a_journal_that_depends_on_it():
    assert {question.id for question in QUESTIONS} == {*ALONE, WITHOUT_CONTROL}


@pytest.mark.parametrize("question", ALONE)
def test_what_one_question_alone_notices(question):
    situation, outcome = ALONE[question]
    verdict = judge(situation())
    assert outcome == verdict.outcome
    assert [question.id for question in QUESTIONS] == [finding.id for finding in verdict.findings]


@pytest.mark.parametrize("ended_by", ["server", "harness", "error"])
def test_users_that_failed_where_no_fault_explains_it_are_never_health(ended_by: ev.EndedBy):
    verdict = judge(users_failed(ended_by=ended_by))
    assert Outcome.INCONCLUSIVE == verdict.outcome
    why = "3 of 7 user requests failed where no fault explains it: 3 times an error was answered"
    assert why in verdict.reasons


def test_users_whose_way_we_lost_are_told_so_in_words():
    verdict = judge(users_failed(error="way", ended_by="harness"))
    assert any("explains it: 3 times our own way to the target broke" in why for why in verdict.reasons)


def test_users_that_failed_in_the_reach_of_a_wave_are_no_doubt_and_those_it_killed_neither():
    assert Outcome.HEALTHY == judge(users_failed(when="wave", failures=1)).outcome
    assert Outcome.HEALTHY == judge(users_failed(ended_by="fault")).outcome


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [pytest.param(GOOD, Outcome.INCONCLUSIVE, id="passes"), pytest.param(HANG, Outcome.HEALTHY, id="hangs")],
)
def test_who_asks_once_every_path_answers_canaries_again_is_owed_an_answer(reply, outcome):
    """Small canaries may pass where users' requests do not: their budget is over when all paths are back."""
    told = users_ask(play().load(), range(4)).wave()
    told.reply = reply
    told.go(1).reply = GOOD  # where no canary failed the first pass tells; else it takes a row of them
    users_ask(told, range(4, 7), "status")
    assert outcome == judge(told.recovered().finish()).outcome


@pytest.mark.parametrize(("waited", "outcome"), [(1.5, Outcome.HEALTHY), (3.5, Outcome.INCONCLUSIVE)])
def test_who_waits_longer_than_a_canary_that_was_sent_before_is_owed_an_answer(waited, outcome):
    """A target that serves slowly from the wave on would else excuse itself by how long its canaries take."""
    told = users_ask(play().load(), range(4)).wave()
    told.reply = late(3.5)
    sent = told.go(1).ns(told.now - 0.5)
    told.go(waited - 0.5).reply = GOOD  # to a whole second, when canaries are sent
    told.tell(
        ev.RequestEnded(t_ns=0, req="u9", kind="load", path="routed", sent_ns=sent, error="status", ended_by="server")
    )
    assert outcome == judge(told.recovered(20).finish()).outcome


@pytest.mark.parametrize(("waited", "outcome"), [(3.0, Outcome.HEALTHY), (8.0, Outcome.INCONCLUSIVE)])
def test_whom_we_hung_up_on_before_they_had_any_time_is_no_lost_user(waited, outcome):
    told = waved().recovered(20)
    told.phase("teardown").hang_up(sent=told.now - waited, tokens=3)
    assert outcome == judge(told.go(1).finish()).outcome


def test_the_question_of_slowness_does_not_arise_without_a_control_arm():
    verdict = judge(waved().recovered().finish())
    assert [Answer.NOT_APPLICABLE] == [f.answer for f in verdict.findings if f.id == WITHOUT_CONTROL]


# ---------------------------------------------------------------------------------- the lattice


def found(outcome: Outcome | None = None, answer: Answer = Answer.YES, *, required: bool = True) -> Finding:
    return Finding(id="x", question="?", answer=answer, outcome=outcome, required=required)


def test_the_worst_sound_finding_wins_over_every_doubt():
    doubt = found(answer=Answer.UNKNOWN)
    assert Outcome.LEAKING == decide([doubt, found(Outcome.OVERLOADED), found(Outcome.LEAKING), found()])


def test_crashed_and_wedged_are_equal_and_the_first_asked_wins():
    assert Outcome.CRASHED == decide([found(Outcome.CRASHED), found(Outcome.WEDGED)])
    assert Outcome.WEDGED == decide([found(Outcome.WEDGED), found(Outcome.CRASHED)])


def test_a_required_unknown_forbids_health_and_another_unknown_does_not():
    assert Outcome.INCONCLUSIVE == decide([found(), found(answer=Answer.UNKNOWN)])
    assert Outcome.HEALTHY == decide([found(), found(answer=Answer.UNKNOWN, required=False)])


def test_nothing_asked_is_no_health():
    assert Outcome.INCONCLUSIVE == decide([])


# ---------------------------------------------------------------------------------- a row that may be luck


def test_five_passes_in_a_row_do_not_clear_a_path_that_lost_one_of_four_before():
    def with_final_passes(seconds: int) -> Outcome:
        told = waved()
        told.turns = (GOOD, GOOD, GOOD, Reply(after=0.1, error="status"))
        told.go(24)
        told.turns = ()
        return judge(told.go(seconds).finish()).outcome

    assert Outcome.WEDGED == with_final_passes(6)
    assert Outcome.SLOW_RECOVERY == with_final_passes(25)


def test_one_lost_request_among_many_passes_is_a_violation_but_no_wedge():
    told = play().load().wave().go(15)
    told.reply = Reply()
    told.go(0.5)
    told.reply = GOOD
    verdict = judge(told.go(20).finish())
    assert Outcome.SLOW_RECOVERY == verdict.outcome
    assert "1 unfinished" in verdict.reasons[0]
