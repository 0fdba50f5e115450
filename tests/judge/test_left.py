"""What a cut of our own way left on the target, and whoever waits behind it, accuses nobody; for a time."""

from __future__ import annotations

import pytest
from build import GOOD, HANG, Play, Reply, late, waved

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Outcome


def cut(told: Play, from_s: float, to_s: float, *, probe: str = "way", node: str = "decode-0") -> Play:
    """Tell of a cut between two moments of the play. No canary of these plays goes straight to its host."""
    return told.tell(
        ev.EvidenceLost(t_ns=0, probe=probe, node=node, from_ns=told.ns(from_s), to_ns=told.ns(to_s), cause="cut")
    )


def disturbed(reply: Reply, *, probe: str = "way", node: str = "decode-0", at: float = 15.0) -> Outcome:
    told = waved()
    told.reply = reply
    told.go(25.0)
    told.reply = GOOD
    return judge(cut(told, at, at + 1.0, probe=probe, node=node).recovered().finish()).outcome


@pytest.mark.parametrize("how", ["late", "turned away"])
def test_who_waits_behind_what_a_cut_left_accuses_nobody(how: str) -> None:
    reply = late(6.0) if how == "late" else Reply(after=0.2, error="status")
    assert Outcome.INCONCLUSIVE == disturbed(reply)
    assert Outcome.INCONCLUSIVE == disturbed(reply, probe="ssh", node="load")
    assert Outcome.SLOW_RECOVERY == disturbed(reply, probe="ssh")  # requests went another way
    assert Outcome.SLOW_RECOVERY == disturbed(reply, probe="way-late")  # nothing was lost
    assert Outcome.SLOW_RECOVERY == disturbed(reply, at=5.0)  # before the load: nothing to speak of was lost


def test_a_port_that_refuses_is_not_busy() -> None:
    assert Outcome.SLOW_RECOVERY == disturbed(Reply(after=0.2, error="refused"))


@pytest.mark.parametrize(("disconnected", "outcome"), [(False, Outcome.OVERLOADED), (True, Outcome.INCONCLUSIVE)])
def test_an_overload_of_our_own_making_is_doubt(*, disconnected: bool, outcome: Outcome) -> None:
    told = waved(token_rate=300.0)
    told.reply, told.received_rate = late(6.0), 100
    told.backlog["prefill-0"], told.backlog_rate = 38.0, -0.7
    if disconnected:
        cut(told, 16.0, 18.0)
    assert outcome == judge(told.go(30).finish()).outcome


def test_what_hangs_for_longer_than_anything_that_was_left_is_wedged() -> None:
    told = waved()
    for _ in range(3):  # what lies in several cuts is counted once
        cut(told, 15.0, 16.0)
    told.reply = HANG
    assert Outcome.WEDGED == judge(told.go(100).finish()).outcome


@pytest.mark.parametrize(("seconds", "outcome"), [(10.0, Outcome.INCONCLUSIVE), (50.0, Outcome.LEAKING)])
def test_a_queue_that_may_hold_what_a_cut_left_does_not_leak_yet(seconds: float, outcome: Outcome) -> None:
    told = cut(waved(), 15.0, 16.0)
    told.backlog["decode-0"] = 5.0
    verdict = judge(told.recovered(seconds).finish())
    assert outcome == verdict.outcome
    (leaking,) = (finding for finding in verdict.findings if finding.id == "leaking")
    ours = "that may be what our own way to decode-0 left behind when it was cut"
    assert (outcome is Outcome.INCONCLUSIVE) is (ours in [evidence.text for evidence in leaking.evidence])
