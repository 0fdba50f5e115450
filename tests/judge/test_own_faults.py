"""What we did to nodes ourselves is told apart from what they did, and only what was verified counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from build import FATAL, GOOD, HANG, REFUSED, Play, faulted, waved

from chaos.judge import Facts, judge, recovery
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome

if TYPE_CHECKING:
    from chaos.model.verdict import Verdict

FOUR = ("router-0", "prefill-0", "prefill-1", "decode-0", "decode-1")
PAIRS = (
    ev.Path(id="routed", kind="routed", nodes=FOUR),
    ev.Path(id="prefill-0>decode-0", kind="direct", nodes=("prefill-0", "decode-0")),
    ev.Path(id="prefill-0>decode-1", kind="direct", nodes=("prefill-0", "decode-1")),
)


def two_of_each(**changes: object) -> Play:
    return faulted(nodes=FOUR, paths=PAIRS, **changes)


def answer(verdict, question: str) -> Answer:
    return next(finding.answer for finding in verdict.findings if finding.id == question)


# ---------------------------------------------------------------------------------------------- deaths


def one_of_two_killed() -> Play:
    told = two_of_each().fault("decode-1", ends=True).die("decode-1").phase("recovery")
    told.replies["prefill-0>decode-1"] = REFUSED
    return told


def test_a_survivor_that_serves_is_healthy_and_the_killed_nodes_path_is_not_expected_to() -> None:
    verdict = judge(one_of_two_killed().recovered().finish())
    assert Outcome.HEALTHY == verdict.outcome
    assert ("fault", ("decode-1",), Answer.YES) == (
        verdict.waves[0].wave,
        verdict.waves[0].nodes,
        verdict.waves[0].landed,
    )
    (given_up,) = [path for path in verdict.paths if path.serves is Answer.NOT_APPLICABLE]
    assert "prefill-0>decode-1" == given_up.path
    assert any("decode-1 is zombie, which is our doing" in text for text in verdict.not_examined)


def test_a_survivor_that_fails_with_the_one_we_killed_is_wedged_not_crashed() -> None:
    told = one_of_two_killed()
    told.reply = HANG
    verdict = judge(told.go(45).finish())
    assert Outcome.WEDGED == verdict.outcome
    assert ("routed", "prefill-0>decode-0") == verdict.wedge.paths
    assert verdict.headline.startswith("WEDGED: after fault no fresh request")


def test_the_silence_of_a_survivor_is_not_broken_by_the_one_we_killed() -> None:
    told = one_of_two_killed()
    told.reply = HANG
    told.go(45).tell(ev.Liveness(t_ns=0, node="decode-1", endpoint="/health", status=503, took_ms=1.0))
    assert judge(told.finish()).wedge.silent
    for tenth in range(2):  # twice in a row: somebody would have been warned
        at = told.now - 30 + tenth / 10
        told.tell(ev.Liveness(t_ns=0, node="decode-0", endpoint="/health", status=503, took_ms=1.0), at)
    assert not judge(told.events()).wedge.silent


def test_a_run_stops_watching_once_every_path_that_is_expected_to_serve_does() -> None:
    events = one_of_two_killed().go(12).cut()
    assert recovery(Facts().feed_all(events), events[-1].t_ns).recovered
    survivor_fails = one_of_two_killed()
    survivor_fails.replies["prefill-0>decode-0"] = HANG
    events = survivor_fails.go(12).cut()
    assert not recovery(Facts().feed_all(events), events[-1].t_ns).recovered


def test_the_only_node_of_a_role_that_we_killed_and_nobody_brought_back_accuses_nobody() -> None:
    told = faulted().fault("decode-0", ends=True).die("decode-0").phase("recovery")
    told.reply = REFUSED
    verdict = judge(told.go(45).finish())
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert Answer.UNKNOWN == answer(verdict, "wedged")


def test_what_dies_after_a_freeze_died_by_itself() -> None:
    told = faulted(lasts_s=5.0).freeze("decode-0").go(5).thaw("decode-0").die("decode-0").phase("recovery")
    told.reply = REFUSED
    verdict = judge(told.go(45).finish())
    assert Outcome.CRASHED == verdict.outcome


def test_another_process_that_dies_beside_the_one_we_killed_is_a_crash() -> None:
    told = one_of_two_killed().go(3).die("prefill-0")
    told.reply = REFUSED
    assert Outcome.CRASHED == judge(told.go(45).finish()).outcome


def test_a_parent_that_goes_down_with_the_child_we_killed_is_our_doing() -> None:
    told = two_of_each()
    step = ev.FaultStep(
        t_ns=0, fault="fault", kind="signal", stage="applied", ok=True, nodes=("decode-1",), pids=(141,), ends=True
    )  # the builder's child of a process has the next pid
    told.tell(step).tell(msgspec.structs.replace(step, stage="verified", measured={"decode-1": "gone"}))
    told.die("decode-1").phase("recovery")
    told.replies["prefill-0>decode-1"] = REFUSED
    assert Outcome.HEALTHY == judge(told.recovered().finish()).outcome


def test_words_of_a_process_that_we_ended_are_no_damage_and_no_cause() -> None:
    def logged(after: float) -> Outcome:
        told = one_of_two_killed().hit("decode-1", after=after, **FATAL)
        return judge(told.recovered().finish()).outcome

    assert (Outcome.HEALTHY, Outcome.DAMAGED) == (logged(1.0), logged(8.0))


def test_what_still_waits_for_the_process_that_we_ended_is_lost_and_no_leak() -> None:
    def held(at_rest: float, *, sent_before: bool) -> Outcome:
        told = faulted(kind="restart").fault("decode-0", "restart", ends=True, stages=("applied",)).die("decode-0")
        told.reply = HANG if sent_before else GOOD
        told.go(3).restart("decode-0").fault("decode-0", "restart", ends=True, stages=("verified",)).phase("recovery")
        told.reply = GOOD
        told.backlog["prefill-0"] = at_rest
        return judge(told.recovered().finish()).outcome

    assert (Outcome.HEALTHY, Outcome.LEAKING) == (held(3, sent_before=True), held(5, sent_before=True))
    assert Outcome.LEAKING == held(3, sent_before=False)


# ---------------------------------------------------------------------------------------------- restarts


def restarted(node: str = "prefill-0", seconds: float = 6.0) -> Play:
    told = faulted(kind="restart").fault(node, "restart", ends=True, stages=("applied",)).die(node).go(seconds)
    return told.restart(node).fault(node, "restart", ends=True, stages=("verified",)).phase("recovery")


def test_a_restart_of_ours_that_serves_is_healthy_and_not_restarted() -> None:
    verdict = judge(restarted().recovered().finish())
    assert (Outcome.HEALTHY, Answer.NO) == (verdict.outcome, answer(verdict, "replaced"))


def without_the_deed(told: Play) -> list[ev.AnyEvent]:
    """The finished run whose record lost that we ended a process."""
    return [e for e in told.finish() if not (isinstance(e, ev.FaultStep) and e.stage == "applied")]


def doubted(verdict: Verdict, question: str) -> bool:
    told = [e.text for finding in verdict.findings if finding.id == question for e in finding.evidence]
    return Answer.UNKNOWN is answer(verdict, question) and any("which may be our doing" in text for text in told)


def test_a_process_whose_replacement_may_be_among_missing_events_accuses_nobody() -> None:
    verdict = judge(without_the_deed(restarted().recovered()))
    assert (Outcome.INCONCLUSIVE, True) == (verdict.outcome, doubted(verdict, "replaced"))


def test_a_process_whose_end_may_be_among_missing_events_accuses_nobody() -> None:
    told = faulted().fault("prefill-0", ends=True).die("prefill-0").phase("recovery")
    told.reply = REFUSED
    verdict = judge(without_the_deed(told.go(45)))
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert [doubted(verdict, question) for question in ("crashed", "wedged", "damaged")] == [True, True, True]


def test_where_nothing_that_we_planned_ends_a_process_a_missing_event_hides_no_crash() -> None:
    told = waved().die("prefill-0")
    told.reply = REFUSED
    events = told.go(45).finish()
    lost = next(e for e in events if isinstance(e, ev.HarnessHealth))
    assert Outcome.CRASHED == judge([e for e in events if e is not lost]).outcome


def test_a_record_that_only_ends_early_still_tells_what_we_did_not_do() -> None:
    told = restarted().go(8).restart("prefill-0").go(20)
    assert Outcome.RESTARTED == judge(told.cut()).outcome


def test_recovery_counts_from_when_the_new_process_served() -> None:
    told = restarted(seconds=20.0)  # longer than the budget of 12 s
    assert Outcome.HEALTHY == judge(told.recovered().finish()).outcome


def test_a_process_that_is_replaced_once_more_after_our_restart_was_replaced_by_itself() -> None:
    told = restarted().go(4)
    told.die("prefill-0").go(2).restart("prefill-0")
    assert Outcome.RESTARTED == judge(told.recovered().finish()).outcome


def test_a_new_process_that_dies_after_our_restart_died_by_itself() -> None:
    told = restarted().go(2).die("prefill-0")
    told.reply = REFUSED
    assert Outcome.CRASHED == judge(told.go(45).finish()).outcome


def test_a_peer_that_does_not_find_the_restarted_one_is_wedged() -> None:
    told = restarted()
    told.reply = HANG
    assert Outcome.WEDGED == judge(told.go(45).finish()).outcome


def swapped() -> Play:
    """A node that was replaced by a variant of itself for a while, and has become itself again."""
    told = faulted(kind="restart", lasts_s=10.0)
    for stages in (("applied", "verified"), ("reverted", "revert-verified")):
        for stage in stages:
            told.fault("decode-0", "restart", ends=True, stages=(stage,), reversal="restart")
            if stage in ("applied", "reverted"):
                told.reply = HANG
                told.die("decode-0").go(3).restart("decode-0")
        told.go(10)
    return told.phase("recovery")


def test_a_variant_that_gave_way_to_the_node_itself_is_our_doing_and_recovery_counts_from_then() -> None:
    told = swapped()
    told.reply = GOOD
    verdict = judge(told.recovered().finish())
    assert (Outcome.HEALTHY, Answer.NO) == (verdict.outcome, answer(verdict, "replaced"))


def test_what_serves_no_more_after_a_variant_was_there_is_wedged() -> None:
    told = swapped()
    told.reply = HANG
    verdict = judge(told.go(45).finish())
    assert (Outcome.WEDGED, Answer.NO) == (verdict.outcome, answer(verdict, "replaced"))


# ---------------------------------------------------------------------------------------------- freezes


def test_recovery_counts_from_when_a_freeze_was_undone_and_not_before() -> None:
    told = faulted(lasts_s=25.0).freeze("decode-0")
    told.reply = HANG
    told.go(25).thaw("decode-0").phase("recovery")
    told.reply = GOOD
    verdict = judge(told.recovered().finish())
    assert Outcome.HEALTHY == verdict.outcome
    assert verdict.paths[0].recovered_s < 2.0


def test_a_worker_that_never_serves_again_after_a_freeze_is_wedged() -> None:
    told = faulted(lasts_s=5.0).freeze("decode-0").go(5).thaw("decode-0").phase("recovery")
    told.reply = HANG
    verdict = judge(told.go(45).finish())
    assert (Outcome.WEDGED, True) == (verdict.outcome, verdict.wedge.silent)


def test_a_process_that_we_hold_is_not_dead_and_a_record_cut_off_meanwhile_accuses_nobody() -> None:
    told = faulted(lasts_s=60.0).freeze("decode-0")
    told.reply = HANG
    verdict = judge(told.go(45).cut())
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert verdict.wedge is None


def test_requests_lost_while_one_of_two_is_frozen_accuse_nobody() -> None:
    told = two_of_each(lasts_s=60.0).freeze("decode-1")
    told.replies["routed"] = HANG
    assert Outcome.INCONCLUSIVE == judge(told.go(45).cut()).outcome
    told.thaw("decode-1").phase("recovery")
    del told.replies["routed"]
    assert Outcome.HEALTHY == judge(told.recovered().finish()).outcome


def test_a_node_that_we_leave_stopped_is_not_expected_to_serve_and_its_twin_is() -> None:
    def left_stopped(survivor) -> Outcome:
        told = two_of_each().freeze("decode-1").phase("recovery")
        told.replies["prefill-0>decode-1"] = HANG
        told.reply = survivor
        return judge(told.go(45).finish()).outcome

    assert (Outcome.HEALTHY, Outcome.WEDGED) == (left_stopped(GOOD), left_stopped(HANG))


# ---------------------------------------------------------------------------------------------- landing


@pytest.mark.parametrize(
    ("told", "unmet"),
    [
        (lambda told: told.fault("decode-0", ok=False), "not verified: measured something else"),
        (lambda told: told.fault("decode-0", stages=("applied",)), "nothing was measured that shows it took effect"),
        (lambda told: told.fault("decode-0", stages=("applied",), ok=False), "not applied: measured something else"),
        (lambda told: told, "never fired"),
    ],
)
def test_a_fault_that_was_not_verified_makes_the_run_inconclusive(told, unmet: str) -> None:
    verdict = judge(told(faulted()).phase("recovery").recovered().finish())
    assert (Outcome.INCONCLUSIVE, (unmet,)) == (verdict.outcome, verdict.waves[0].unmet)


def test_a_freeze_that_was_not_seen_to_be_undone_has_not_landed() -> None:
    told = faulted(lasts_s=5.0).freeze("decode-0").go(5)
    told.fault("decode-0", reversal="CONT", stages=("reverted",)).phase("recovery")
    verdict = judge(told.recovered().finish())
    assert (Outcome.INCONCLUSIVE, ("nothing was measured that shows it was undone",)) == (
        verdict.outcome,
        verdict.waves[0].unmet,
    )


@pytest.mark.parametrize("clean", ["no", "later", "never measured"])
@pytest.mark.parametrize("after", ["hangs", "serves"])
def test_what_may_still_stand_accuses_nobody(clean: str, after: str) -> None:
    """A partition whose undoing was not measured, or failed, goes on breaking what it broke."""
    told = faulted(kind="partition", lasts_s=5.0).part(("decode-0",), ("prefill-0",)).go(5)
    told.fault("decode-0", "partition", reversal="taken back", stages=("reverted",))
    if clean != "never measured":
        told.fault("decode-0", "partition", reversal="taken back", stages=("revert-verified",), ok=False)
    told.reply = HANG if after == "hangs" else GOOD
    told.phase("recovery").go(45)
    if clean == "later":  # by whoever tidied up at last
        told.mend(("decode-0",), ("prefill-0",))
    assert Outcome.INCONCLUSIVE == judge(told.finish(idle=False)).outcome


def test_what_goes_on_hanging_once_the_fault_was_measured_to_be_gone_is_wedged() -> None:
    told = faulted(kind="partition", lasts_s=5.0).part(("decode-0",), ("prefill-0",)).go(5)
    told.mend(("decode-0",), ("prefill-0",)).reply = HANG
    assert Outcome.WEDGED == judge(told.phase("recovery").go(45).finish()).outcome


def test_a_fault_of_nodes_can_aim_at_what_sessions_did_meanwhile() -> None:
    def met(waiting: int) -> Answer:
        told = faulted()
        (fault,) = told.plan.faults
        aim = (ev.Bound(name="waiting", op=">=", value=3),)
        told.plan = msgspec.structs.replace(told.plan, faults=(msgspec.structs.replace(fault, aim=aim),))
        told.tell(ev.WaveCensus(t_ns=0, wave="fault", phases={"waiting": waiting})).fault("decode-0")
        events = told.phase("recovery").recovered().finish()
        started = msgspec.structs.replace(events[0], plan=told.plan)
        return judge([started, *events[1:]]).waves[0].landed

    assert (Answer.YES, Answer.NO) == (met(3), met(2))


# ---------------------------------------------------------------------------------------------- frames


def test_a_process_that_we_replaced_is_told_to_be_another_by_our_doing() -> None:
    told = faulted(kind="restart").fault("decode-0", "restart", ends=True).restart("decode-0").phase("recovery")
    (replaced,) = [f for f in judge(told.recovered().finish()).findings if f.id == "replaced"]
    texts = [evidence.text for evidence in replaced.evidence]
    assert Answer.NO == replaced.answer
    assert [
        "decode-0 is another process now (pid 120 before, 1120 at the end), which is our doing",
        "every other process is the one it was before the load",
    ] == texts


def test_a_thread_that_dies_of_our_frame_is_a_wedge_without_an_upstream_bug_to_blame() -> None:
    def blamed(kind: str) -> tuple[Outcome, str, str]:
        told = faulted(kind=kind).fault("prefill-0", kind).fatal().phase("recovery")
        told.reply = HANG
        verdict = judge(told.go(45).finish())
        assert "prefill" == verdict.wedge.side
        return verdict.outcome, verdict.causes[0].upstream, verdict.causes[0].fixed_in

    assert (Outcome.WEDGED, "", "") == blamed("foreign-frame")
    assert (Outcome.WEDGED, "example/engine#1", "2.0") == blamed("abort-frame")


def test_a_thread_that_dies_of_a_variant_of_its_peer_is_not_blamed_on_an_upstream_bug() -> None:
    def blamed(reversal: str) -> str:
        told = faulted(kind="restart", lasts_s=10.0)
        told.fault("decode-0", "restart", ends=True, reversal=reversal).restart("decode-0").fatal().go(5)
        told.fault("decode-0", "restart", ends=True, reversal=reversal, stages=("reverted", "revert-verified"))
        told.restart("decode-0").phase("recovery").reply = HANG
        return judge(told.go(45).finish()).causes[0].upstream

    assert ("", "example/engine#1") == (blamed("restart"), blamed("none"))


def test_a_frame_that_is_ignored_is_healthy() -> None:
    told = faulted(kind="abort-frame").fault("prefill-0", "abort-frame").phase("recovery")
    assert Outcome.HEALTHY == judge(told.recovered().finish()).outcome
