"""A thread that was there before the load and is gone: evidence of damage, and why a path is wedged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from build import FATAL, HANG, INSIDE, Play, play

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome

if TYPE_CHECKING:
    from chaos.model.verdict import Finding, Verdict

WITHOUT = {**INSIDE, "prefill-0": ("MainThread",)}


def seen_before(**changes: object) -> Play:
    """A play whose threads were read before the load, up to its wave."""
    return play(threads=INSIDE, **changes).look_inside().load().wave()


def asked(verdict: Verdict) -> Finding:
    return next(finding for finding in verdict.findings if finding.id == "threads-alive")


def ended(told: Play, *, wedged: bool = False) -> Verdict:
    if wedged:
        told.reply = HANG
        told.go(45)
    else:
        told.recovered()
    return judge(told.look_inside().finish())


def test_a_thread_that_is_gone_is_damage_although_every_canary_passes() -> None:
    verdict = ended(replace(seen_before(), threads=WITHOUT))
    assert (Outcome.DAMAGED, Answer.NO) == (verdict.outcome, asked(verdict).answer)
    assert "prefill-0: thread Thread-6 (control) was there before the load and is gone: its control thread" in (
        verdict.headline
    )


def test_a_thread_that_is_still_there_is_no_damage() -> None:
    verdict = ended(seen_before())
    assert (Outcome.HEALTHY, Answer.YES) == (verdict.outcome, asked(verdict).answer)


@pytest.mark.parametrize(
    ("when", "outcome", "answer"),
    [
        ("before", Outcome.INCONCLUSIVE, Answer.UNKNOWN),  # it worked, and what it would have shown is lost
        ("after", Outcome.HEALTHY, Answer.NOT_APPLICABLE),
    ],
)
def test_names_that_were_read_before_the_load_only_are_lost_and_without_those_nothing_is_told(
    when: str, outcome: Outcome, answer: Answer
) -> None:
    told = play(threads=INSIDE)
    told = (told.look_inside() if when == "before" else told).load().wave().recovered()
    told = replace(told, threads=WITHOUT)
    verdict = judge((told.look_inside() if when == "after" else told).finish())
    assert (outcome, answer) == (verdict.outcome, asked(verdict).answer)
    assert "prefill-0" in asked(verdict).evidence[0].text
    assert any(thing.startswith("prefill-0: its threads were not looked at") for thing in verdict.not_examined)


def test_without_threads_that_matter_the_question_does_not_arise() -> None:
    assert Answer.NOT_APPLICABLE == asked(judge(play().load().wave().recovered().finish())).answer


def test_names_by_the_kernel_are_no_names_of_the_interpreter() -> None:
    told = seen_before()
    told.tell(ev.ProcessSeen(t_ns=0, node="prefill-0", pid=110, alive=True, threads=("python x4",)))
    assert Answer.UNKNOWN == asked(judge(told.recovered().finish())).answer


def test_a_silent_wedge_without_a_log_line_has_its_side_and_cause_from_the_thread() -> None:
    verdict = ended(replace(seen_before(), threads=WITHOUT), wedged=True)
    assert verdict.wedge is not None
    assert (Outcome.WEDGED, "prefill") == (verdict.outcome, verdict.wedge.side)
    assert [("thread-gone", "prefill")] == [(cause.signature, cause.side) for cause in verdict.causes]
    assert any("thread Thread-6 (control)" in reason for reason in verdict.reasons)


def test_a_line_that_says_that_the_thread_ended_remains_the_cause() -> None:
    told = replace(seen_before(), threads=WITHOUT).fatal()
    verdict = ended(told, wedged=True)
    assert [FATAL["signature"]] == [cause.signature for cause in verdict.causes]
    assert any("thread Thread-6 (control)" in reason for reason in verdict.reasons)


def test_one_of_two_ranks_that_lost_its_thread_is_found_though_both_have_the_same_name() -> None:
    both = {**INSIDE, "prefill-0": ("MainThread", "Thread-6 (control)", "MainThread", "Thread-6 (control)")}
    told = play(threads=both).look_inside().load().wave()
    verdict = ended(replace(told, threads=INSIDE))
    assert (Outcome.DAMAGED, 1) == (verdict.outcome, len(asked(verdict).evidence))


def test_a_thread_under_another_number_took_its_place() -> None:
    other = {**INSIDE, "prefill-0": ("MainThread", "Thread-9 (control)")}
    assert Outcome.HEALTHY == ended(replace(seen_before(), threads=other)).outcome


def test_a_dead_process_is_told_as_dead_and_not_as_a_thread_that_is_gone() -> None:
    told = seen_before()
    told.reply = HANG
    told.die("prefill-0").go(45)
    verdict = judge(told.finish())
    assert Outcome.CRASHED == verdict.outcome
    assert Answer.NO != asked(verdict).answer


def test_a_process_that_we_replaced_has_other_threads_and_lost_none() -> None:
    told = seen_before()
    told.tell(
        ev.FaultStep(t_ns=0, fault="wave", kind="restart", stage="applied", ok=True, nodes=("prefill-0",), ends=True)
    )
    told.restart("prefill-0")
    assert Answer.NO != asked(ended(replace(told, threads=WITHOUT))).answer


def test_a_thread_of_a_role_that_does_not_need_it_is_not_missed() -> None:
    inside = {**INSIDE, "decode-0": ("MainThread", "Thread-6 (control)")}
    told = play(threads=inside).look_inside().load().wave()
    assert Outcome.HEALTHY == ended(replace(told, threads=INSIDE)).outcome


def test_what_was_saved_is_listed_with_what_it_shows_and_what_it_lacks() -> None:
    told = replace(seen_before(), threads=WITHOUT)
    told.go(2).look_inside()
    told.tell(
        ev.ForensicsTaken(
            t_ns=0,
            folder="forensics/1-fatal-line",
            reason="fatal-line",
            files=("prefill-0-stacks.txt",),
            size=9,
            stacks={"prefill-0": 14},
            missing=("decode-0: thread stacks: py-spy is not permitted to look at it",),
        )
    )
    verdict = ended(told)
    (saved,) = verdict.saved
    assert ("prefill-0: thread Thread-6 (control) gone, 14 stacks saved",) == saved.shows
    assert "decode-0: thread stacks: py-spy is not permitted to look at it" in verdict.not_examined


def snapshot_without(*what: str) -> ev.ForensicsTaken:
    missing = tuple(f"decode-0: {one}: refused" for one in what)
    return ev.ForensicsTaken(t_ns=0, folder="forensics/1-process-gone", reason="process-gone", missing=missing)


def test_what_is_not_there_since_we_ended_the_process_is_told_as_our_doing_until_another_is_there() -> None:
    for kind in ("signal", "restart"):
        told = seen_before().fault("decode-0", kind, ends=True, stages=("applied",)).die("decode-0").go(1)
        told.tell(snapshot_without("metrics", "processes")).go(1).restart("decode-0").go(2)
        told.fault("decode-0", kind, ends=True, stages=("verified",)).go(8).tell(snapshot_without("metrics"))
        verdict = judge(told.finish())
        ours = "decode-0: metrics and processes could not be saved, since we had ended its process (fault)"
        assert [(ours,), ("decode-0: metrics: refused",)] == [saved.missing for saved in verdict.saved]
        assert {ours, "decode-0: metrics: refused"} <= set(verdict.not_examined)


def test_what_a_node_did_not_say_while_we_held_it_stopped_is_told_as_our_doing() -> None:
    told = seen_before().freeze("decode-0").go(1).tell(snapshot_without("metrics")).thaw("decode-0").go(1)
    verdict = judge(told.tell(snapshot_without("metrics")).finish())
    ours = "decode-0: metrics: refused (we had stopped its process: fault)"
    assert [(ours,), ("decode-0: metrics: refused",)] == [saved.missing for saved in verdict.saved]
