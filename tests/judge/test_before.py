"""What the baseline must show before anything can be held against a target."""

from __future__ import annotations

import msgspec
import pytest
from build import GOOD, HANG, REFUSED, Play, Reply, play, waved

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome

ONE_OF_SEVEN = (GOOD, GOOD, GOOD, HANG, GOOD, GOOD, GOOD)


def lossy_from_the_start() -> Play:
    return play(turns=ONE_OF_SEVEN).load().wave()


def test_a_path_that_lost_requests_before_the_fault_is_not_accused_of_losing_them_after_it():
    verdict = judge(lossy_from_the_start().go(45).finish())
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert "1 of 10 fresh requests did not complete before anything was broken either" in verdict.headline


def test_the_same_losses_with_a_sound_baseline_are_a_partial_wedge():
    told = waved()
    told.turns = ONE_OF_SEVEN
    assert Outcome.WEDGED == judge(told.go(45).finish()).outcome


@pytest.mark.parametrize(("probe", "outcome"), [("way", Outcome.WEDGED), ("metrics", Outcome.INCONCLUSIVE)])
def test_what_our_own_way_lost_before_the_fault_excuses_nothing_after_it(probe, outcome):
    told = Play().baseline(5.0)
    told.reply = Reply(after=8.0, error="way")
    told.go(3.0)
    told.tell(ev.EvidenceLost(t_ns=0, probe=probe, node="router-0", from_ns=told.ns(5), to_ns=told.ns(16)))
    told.reply = GOOD
    told.go(14.0).load().wave()
    told.turns = ONE_OF_SEVEN
    assert outcome == judge(told.go(45).finish()).outcome


def test_total_darkness_after_the_fault_is_a_wedge_whatever_the_baseline_lost():
    told = lossy_from_the_start()
    told.turns, told.reply = (), HANG
    verdict = judge(told.go(45).finish())
    assert Outcome.WEDGED == verdict.outcome
    assert verdict.wedge is not None
    assert verdict.wedge.total


def test_a_baseline_that_lost_a_request_is_doubt_though_everything_passes_later():
    told = lossy_from_the_start()
    told.turns = ()
    verdict = judge(told.recovered().finish())
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert Answer.UNKNOWN == next(f.answer for f in verdict.findings if f.id == "baseline-served")


def test_failures_before_the_first_pass_are_those_of_a_target_that_was_starting():
    told = Play(reply=REFUSED).baseline(3)
    told.reply = GOOD
    verdict = judge(told.go(8).load().wave().recovered().finish())
    assert Outcome.HEALTHY == verdict.outcome


def test_a_canary_that_the_load_may_have_swallowed_says_nothing_of_the_baseline():
    told = Play().baseline(9.0)
    told.reply = HANG
    told.go(1).load(3).wave()
    told.turns = ONE_OF_SEVEN
    assert Outcome.WEDGED == judge(told.go(45).finish()).outcome


@pytest.mark.parametrize(
    ("node", "outcome"),
    [("prefill-0", Outcome.INCONCLUSIVE), ("decode-0", Outcome.INCONCLUSIVE), ("router-0", Outcome.HEALTHY)],
)
def test_a_workers_log_without_a_line_is_the_wrong_log_and_a_router_may_be_silent(node, outcome):
    events = waved().recovered().finish()
    assert Outcome.HEALTHY == judge(events).outcome
    silent = [
        msgspec.structs.replace(e, start=0, end=0, lines=0) if isinstance(e, ev.LogCovered) and e.node == node else e
        for e in events
    ]
    verdict = judge(silent)
    assert outcome == verdict.outcome
    if outcome is Outcome.INCONCLUSIVE:
        assert f"the log of {node} held not one line" in verdict.headline
