"""Traps: what fooled people, told as journals (docs/traps.md has the whole list, with the source of each)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from build import GOOD, HANG, REFUSED, Play, late, plan, play, waved

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.model.verdict import Verdict

PAIR = ev.Path(id="prefill-0>decode-0", kind="direct", nodes=("prefill-0", "decode-0"))


def answer(verdict: Verdict, question: str) -> Answer:
    return next(finding.answer for finding in verdict.findings if finding.id == question)


def changed(events: list[ev.AnyEvent], kind: type, change: Callable[[ev.AnyEvent], ev.AnyEvent]) -> list[ev.AnyEvent]:
    return [change(event) if isinstance(event, kind) else event for event in events]


# ---------------------------------------------------------------------------------- health


@pytest.mark.parametrize("status", [200, 503, None])
def test_what_health_says_decides_nothing(status):
    """Traps 1 and 2: an endpoint that cannot see the transfer, or says 200 whatever happens."""
    assert Outcome.HEALTHY == judge(play(health=status).load().wave().recovered().finish()).outcome
    wedged = play(health=status).load().wave()
    wedged.reply = HANG
    assert Outcome.WEDGED == judge(wedged.go(45).finish()).outcome


# ---------------------------------------------------------------------------------- gauges


@pytest.mark.parametrize(("comes_back", "outcome"), [(True, Outcome.HEALTHY), (False, Outcome.LEAKING)])
def test_a_gauge_is_believed_only_once_its_lag_has_gone_by(comes_back, outcome):
    """Trap 3: the last batch's level stays on show for a while at idle; the builder's gauges lag by 3 s."""
    told = waved().recovered()
    told.backlog["decode-0"] = 24.0
    told.phase("teardown").go(1.0).phase("idle").quietly(2.5)
    if comes_back:
        told.backlog["decode-0"] = 0.0
    told.quietly(7.5).phase("last-canaries")
    assert outcome == judge(told.go(6).finish(idle=False)).outcome


@pytest.mark.parametrize("level", [0.0, 24.0])
def test_a_frozen_gauge_hides_no_wedge_and_makes_none_overload(level):
    """Trap 4: nothing is written while a queue is stuck, so a stale 0 may be a wedge and a stale 24 may be well."""
    told = waved(backlog={"decode-0": level, "prefill-0": level})
    told.reply = HANG
    assert Outcome.WEDGED == judge(told.go(45).finish()).outcome
    slow = waved(backlog={"decode-0": level, "prefill-0": level}, token_rate=300.0)
    slow.reply, slow.received_rate = late(6), 100
    verdict = judge(slow.go(30).finish())
    assert Outcome.SLOW_RECOVERY == verdict.outcome
    assert "no queue gauge changed, so none can be believed" in " ".join(
        evidence.text for finding in verdict.findings for evidence in finding.evidence
    )


def test_ranks_are_neither_summed_nor_averaged():
    """Trap 8: what one rank keeps is not made good by what another one gave back."""

    def ranks(event: ev.Scrape, one: float, two: float) -> ev.Scrape:
        told = tuple(ev.Sample(name="backlog", labels=f"rank={rank}", value=v) for rank, v in ((0, one), (1, two)))
        return msgspec.structs.replace(event, samples=(*(s for s in event.samples if s.name != "backlog"), *told))

    events = waved().recovered().finish()
    load = next(e.t_ns for e in events if isinstance(e, ev.PhaseEntered) and e.phase == "load")
    moved = changed(events, ev.Scrape, lambda e: ranks(e, 9, 0) if e.t_ns <= load else ranks(e, 0, 9))
    assert Outcome.HEALTHY == judge(changed(events, ev.Scrape, lambda e: ranks(e, 9, 0))).outcome
    verdict = judge(moved)
    assert Outcome.LEAKING == verdict.outcome
    assert "(rank=1) is 9 at rest, was 0" in verdict.headline


@pytest.mark.parametrize(("number", "told"), [(1, True), (2, False)])
def test_ranks_that_no_metric_tells_of_are_listed(number, told):
    """Trap 7: only the first rank exports anything, unless the engine is told otherwise."""
    events = waved().recovered().finish()
    ranked = changed(
        events,
        ev.DeploymentSeen,
        lambda e: msgspec.structs.replace(
            e,
            nodes=tuple(
                msgspec.structs.replace(n, ranks=("dp0.tp0", "dp1.tp0")) for n in e.nodes if n.role != "router"
            ),
        ),
    )
    both = changed(
        ranked,
        ev.Scrape,
        lambda e: msgspec.structs.replace(
            e,
            samples=tuple(
                ev.Sample(name=s.name, labels=f"rank={r}", value=s.value) for s in e.samples for r in range(number)
            ),
        ),
    )
    line = "decode-0: its metrics tell of 1 of 2 ranks"
    assert told is (line in judge(both).not_examined)


# ---------------------------------------------------------------------------------- work that is none


def test_tokens_of_our_own_probes_are_no_progress_of_users():
    """Traps 13 and 26: log lines and counters go on, and all that moves them is our own asking."""
    told = waved()
    told.reply = late(6)
    told.backlog["prefill-0"], told.backlog_rate = 38.0, -0.7
    verdict = judge(told.go(30).finish())
    assert Outcome.SLOW_RECOVERY == verdict.outcome
    assert any(
        "no progress counter rose by more than our own probes explain" in evidence.text
        for finding in verdict.findings
        for evidence in finding.evidence
    )


# ---------------------------------------------------------------------------------- time


def test_a_wedge_that_ends_when_users_give_up_is_no_recovery_in_time():
    """Trap 16: clients that hang up free what was stuck; that is told as a late recovery with their failures."""
    told = waved()
    told.reply = HANG
    told.go(25)
    for number in range(20):
        sent = told.ns(told.now - 20)
        request = {
            "t_ns": 0,
            "req": f"bystanders-s{number}-r0",
            "kind": "load",
            "path": "routed",
            "group": "bystanders",
        }
        told.tell(ev.RequestStarted(**request, intended_ns=sent, sent_ns=sent), told.now - 20)
        told.tell(ev.RequestEnded(**request, sent_ns=sent, error="timeout", ended_by="harness"))
    told.reply = GOOD
    verdict = judge(told.recovered().finish())
    assert Outcome.SLOW_RECOVERY == verdict.outcome


def test_a_deployment_that_answers_everything_late_does_not_pass():
    """Trap 42: complete and correct, after a quarter of an hour."""
    told = waved()
    told.reply = late(35)
    verdict = judge(told.go(60).finish())
    assert Outcome.SLOW_RECOVERY == verdict.outcome
    assert "up to 35 s (limit 4.0 s)" in " ".join(verdict.reasons)


@pytest.mark.parametrize("log_time", ["", "2026-06-20 21:44:02", "not a time"])
def test_a_log_line_is_dated_by_when_it_was_read_and_not_by_what_it_says(log_time):
    """Trap 27: engines log local time, routers UTC, wrappers put a stamp of their own before it."""
    events = changed(
        play().load().wave().recovered().finish(),
        ev.LogHit,
        lambda e: msgspec.structs.replace(e, log_time=log_time),
    )
    verdict = judge(events)
    assert (Outcome.HEALTHY, 23) == (verdict.outcome, verdict.waves[0].server_aborts)


def test_ranks_that_log_a_second_apart_tell_of_one_abort():
    """Trap 28: there is nothing to be read from which rank was first."""
    told = play().load().wave(aborts=0)
    for rank in range(2):
        for room in range(5):
            told.hit("decode-0", "aborted", "abort", key=f"room-{room}", after=0.2 + 0.9 * rank)
    verdict = judge(told.recovered().finish())
    assert (Outcome.HEALTHY, 5) == (verdict.outcome, verdict.waves[0].server_aborts)


# ---------------------------------------------------------------------------------- lines that are not there


def test_a_wedge_that_nothing_was_logged_of_is_a_wedge():
    """Trap 25: a watchdog that is only awake inside a batch says nothing; its silence is no evidence."""
    told = waved()
    told.reply = HANG
    verdict = judge(told.go(45).finish())
    assert (Outcome.WEDGED, ()) == (verdict.outcome, verdict.causes)


@pytest.mark.parametrize("cycle", [1, 2])
def test_a_line_that_a_process_prints_only_once_makes_no_cycle_worse_than_another(cycle):
    """Trap 22: it is in the log of the first wave and of no later one."""
    told = play(plan=plan(cycles=2))
    for number in (1, 2):
        told.load().wave()
        if number == cycle:
            told.hit("decode-0", "timed-out-once", "symptom", after=1.0)
        told.recovered()
    verdict = judge(told.finish())
    assert Outcome.HEALTHY == verdict.outcome
    assert {Answer.YES} == {wave.landed for wave in verdict.waves}


# ---------------------------------------------------------------------------------- what never worked


@pytest.mark.parametrize("reply", [HANG, REFUSED])
def test_a_path_that_no_canary_could_ever_take_accuses_nobody(reply):
    """Traps 35 and 37: a probe that cannot work for a role, and a configuration that never worked."""
    told = Play(paths=(ev.Path(id="routed", kind="routed"), PAIR), replies={PAIR.id: reply}).baseline()
    verdict = judge(told.load().wave().go(45).finish())
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert Answer.NO == answer(verdict, "baseline-served")
    assert verdict.wedge is None


# ---------------------------------------------------------------------------------- idle


def dies_when_idle(told: Play) -> list[ev.AnyEvent]:
    told.phase("teardown").go(1.0).phase("idle").quietly(5.0)
    told.die("prefill-0").fatal().quietly(5.0)
    told.reply = REFUSED
    return told.phase("last-canaries").go(6).finish(idle=False)


def test_a_server_that_dies_only_once_it_is_idle_is_found():
    """Trap 38: a check for leaks that runs when nothing else does."""
    verdict = judge(dies_when_idle(waved().recovered()))
    assert verdict.outcome.violation
    assert "prefill-0" in verdict.headline


@pytest.mark.parametrize(
    ("died", "looked", "outcome"),
    [
        (True, True, Outcome.CRASHED),
        (True, False, Outcome.DAMAGED),  # it may have been down for a moment only
        (False, False, Outcome.INCONCLUSIVE),  # two errors within a second or two are not yet a state
    ],
)
def test_one_error_between_two_looks_at_a_dead_process_is_enough_however_soon_the_run_ends(died, looked, outcome):
    told = waved().recovered()
    told.phase("teardown").go(1.0).phase("idle").quietly(6.0)
    told.phase("last-canaries").reply = REFUSED
    if died:
        told.die("prefill-0").interval = 100.0
    told.go(1.5)
    if looked:
        told.die("prefill-0")
    assert outcome == judge(told.finish(idle=False)).outcome


@pytest.mark.parametrize(("deaf", "outcome"), [("agent", Outcome.INCONCLUSIVE), ("", Outcome.HEALTHY)])
def test_a_soak_that_sent_no_user_request_showed_nothing(deaf, outcome):
    told = play(plan=plan(faults=()), deaf=frozenset({deaf})).load(20).recovered()
    verdict = judge(told.finish())
    assert outcome == verdict.outcome
    assert ("no user request is known to have been sent" in verdict.headline) is bool(deaf)


# ---------------------------------------------------------------------------------- one in a hundred


def with_users(*, hung: int, waited_s: float = 30.0, tokens: int = 0) -> list[ev.AnyEvent]:
    """A thousand users of a run that breaks nothing; on some of them we hung up at the end, before they had a token."""
    told = play(plan=plan(faults=())).load(1)
    sent, hung_up = told.now, told.now + waited_s
    for number in range(1000):
        ours = number < hung
        ended = ev.RequestEnded(
            t_ns=0,
            req=f"users-s{number}-r0",
            kind="load",
            path="routed",
            group="users",
            sent_ns=told.ns(sent),
            last_ns=None if ours else told.ns(sent + 1),
            tokens=tokens if ours else 9,
            error="cancelled" if ours else "",
            ended_by="harness" if ours else "server",
        )
        told.tell(ended, hung_up if ours else sent + 1)
    return told.go(40).finish()


def test_ten_of_a_thousand_users_that_never_got_a_token_are_no_detail():
    """Trap 41: every percentile is fine, and ten never end."""
    assert Outcome.HEALTHY == judge(with_users(hung=0)).outcome
    verdict = judge(with_users(hung=10))
    assert (Outcome.INCONCLUSIVE, Answer.NO) == (verdict.outcome, answer(verdict, "users-served"))
    assert "10 of 1000 user requests never got a token" in verdict.headline


@pytest.mark.parametrize(("waited_s", "tokens"), [(3.0, 0), (30.0, 5)])
def test_a_user_who_was_cut_off_young_or_in_mid_answer_was_not_left_without_one(waited_s, tokens):
    assert Outcome.HEALTHY == judge(with_users(hung=10, waited_s=waited_s, tokens=tokens)).outcome


def test_a_stream_that_a_fault_cut_off_between_two_tokens_is_the_faults_doing():
    """Its last token came before the fault; it was cut off after."""
    told = play().load().go(3)
    sent = told.now
    told.go(2)
    for number in range(5):
        cut = ev.RequestEnded(
            t_ns=0,
            req=f"users-s{number}-r0",
            kind="load",
            path="routed",
            group="users",
            sent_ns=told.ns(sent),
            last_ns=told.ns(told.now) - 1_000_000,
            tokens=9,
            error="truncated",
        )
        told.tell(cut, told.now + 0.05)
    verdict = judge(told.wave().go(40).finish())
    assert (Outcome.HEALTHY, Answer.NOT_APPLICABLE) == (verdict.outcome, answer(verdict, "users-served"))
