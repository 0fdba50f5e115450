"""Whom of the load's users the verdict counts, and by which crowd it measures those that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build import REFUSED, Play, faulted, play

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Outcome

if TYPE_CHECKING:
    from chaos.model.verdict import Finding, Verdict

NOBODY = "users after the last fault: nobody's requests but our canaries were sent"


def user(told: Play, name: str, *, sent: float, took: float, group: str = "users", **end: object) -> Play:
    """One request, told when it ended."""
    same = {"t_ns": 0, "req": f"{group}-{name}", "kind": "load", "path": "routed", "group": group}
    told.tell(ev.RequestStarted(**same, intended_ns=told.ns(sent), sent_ns=told.ns(sent)), sent)  # type: ignore[arg-type]
    told.tell(ev.RequestEnded(**same, sent_ns=told.ns(sent), **end), sent + took)  # type: ignore[arg-type]
    return told


def served(verdict: Verdict) -> Finding:
    return next(finding for finding in verdict.findings if finding.id == "users-served")


def someone_waits(told: Play, waits_s: float) -> Verdict:
    """A user's stream stands still from the fault on, and ends in an error so many seconds later."""
    struck = told.now
    user(told, "well", sent=struck - 4, took=1)
    user(told, "stuck", sent=struck - 1, took=1 + waits_s, last_ns=told.ns(struck), tokens=3, error="reset")
    return judge(told.go(35).finish())


@pytest.mark.parametrize(("waits_s", "outcome"), [(11.0, Outcome.HEALTHY), (13.0, Outcome.INCONCLUSIVE)])
def test_who_was_there_before_other_clients_went_away_must_be_answered_within_the_budget(waits_s, outcome):
    """Streams of those that stayed may stall for good while fresh canaries pass."""
    verdict = someone_waits(play().load().wave(), waits_s)
    assert outcome == verdict.outcome, verdict.headline
    if outcome is Outcome.HEALTHY:
        told = served(verdict).evidence[0].text
        assert "1 of 1 user requests were served; 1 more failed within the reach of a fault" == told


def test_who_was_on_a_node_that_we_broke_may_wait_for_the_routers_own_timeout():
    assert Outcome.HEALTHY == someone_waits(faulted().fault("decode-0").phase("recovery"), 13.0).outcome


@pytest.mark.parametrize(("of", "outcome"), [("few", Outcome.INCONCLUSIVE), ("crowd", Outcome.HEALTHY)])
def test_a_crowd_that_is_served_hides_no_group_that_is_not(of, outcome):
    told = play().load().wave()
    for number in range(300):
        user(told, f"{number}", sent=told.now + 5, took=1, group="crowd")
    for number in range(2):
        user(told, f"{number}", sent=told.now - 4, took=1, group="few")
    for number in range(2):
        user(told, f"bad-{number}", sent=told.now + 5, took=1, group=of, error="status", status=500)
    verdict = judge(told.recovered(20).finish())
    assert outcome == verdict.outcome
    if outcome is Outcome.INCONCLUSIVE:
        assert "2 of 4 user requests of few failed where no fault explains it" in verdict.headline


def test_what_was_served_before_a_fault_hides_nobody_who_is_not_after_it():
    told = play().load()
    for number in range(300):
        user(told, f"{number}", sent=told.now - 3, took=1)
    told.wave().go(5)
    for number in range(3):
        user(told, f"bad-{number}", sent=told.now, took=1, error="status", status=500)
    verdict = judge(told.recovered(20).finish())
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert "3 of 3 user requests since failed where no fault explains it" in verdict.headline


def test_where_no_user_is_left_to_tell_that_is_said():
    told = play().load()
    user(told, "early", sent=told.now - 3, took=1)
    assert NOBODY in judge(told.wave().recovered().finish()).not_examined
    told = play().load().wave().go(5)
    user(told, "late", sent=told.now, took=1)
    assert NOBODY not in judge(told.recovered().finish()).not_examined


@pytest.mark.parametrize(("busy", "outcome"), [(REFUSED, Outcome.INCONCLUSIVE), (None, Outcome.WEDGED)])
def test_a_router_that_turned_requests_away_under_load_before_the_fault_is_not_accused_of_it_after(busy, outcome):
    told = play()
    told.turns = (told.reply, busy or told.reply)
    told.load(8).wave()
    told.turns = (told.reply, REFUSED)
    verdict = judge(told.go(45).finish())
    assert outcome == verdict.outcome, verdict.headline
