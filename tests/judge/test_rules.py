"""Rules that only rare runs need, each by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from build import GOOD, HANG, METRICS, PLAN, REFUSED, SECOND, Play, Reply, faulted, late, numbered, play, waved

from chaos.judge import Facts, floors_settle_ns, judge, unsettled_floors
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome

if TYPE_CHECKING:
    from chaos.model.verdict import Finding, Verdict

FOUR = ("router-0", "prefill-0", "decode-0", "decode-1")


def finding(verdict: Verdict, question: str) -> Finding:
    return next(found for found in verdict.findings if found.id == question)


# ---------------------------------------------------------------------------------- our own trouble


@pytest.mark.parametrize(("lag_ms", "outcome"), [(300.0, Outcome.SLOW_RECOVERY), (500.0, Outcome.INCONCLUSIVE)])
def test_lag_below_a_tenth_of_the_deadline_explains_no_late_answer(lag_ms, outcome):
    told = waved().go(15)
    told.reply, told.lag_ms = late(4.05), lag_ms
    told.go(1)
    told.reply, told.lag_ms = GOOD, 2.0
    assert outcome == judge(told.recovered().finish()).outcome


def references(events: list[ev.AnyEvent], *, by_ns: int, failing: tuple[int, int]) -> list[ev.AnyEvent]:
    """Our own beats at other moments; the reference canary fails in those that then lie in a stretch."""
    out = []
    for event in events:
        if isinstance(event, ev.HarnessHealth) and event.who == "harness":
            at = event.t_ns + by_ns
            event = msgspec.structs.replace(  # noqa: PLW2901
                event, t_ns=at, reference_ok=not failing[0] <= at < failing[1]
            )
        out.append(event)
    return numbered(sorted(out, key=lambda e: (e.t_ns, isinstance(e, ev.RunEnded))))


def test_a_reference_that_failed_a_second_away_explains_a_quick_failure():
    told = waved().go(15)
    start = told.now
    told.reply = REFUSED
    told.go(20)
    events = told.finish()
    failing = (told.ns(start - 1), told.ns(told.now + 10))
    assert Outcome.WEDGED == judge(references(events, by_ns=SECOND // 2, failing=(0, 0))).outcome
    assert Outcome.INCONCLUSIVE == judge(references(events, by_ns=SECOND // 2, failing=failing)).outcome


def test_a_reference_that_failed_long_before_explains_nothing():
    told = Play().baseline(60).load().wave()
    told.reply = HANG
    events = told.go(30).finish()
    assert Outcome.WEDGED == judge(references(events, by_ns=0, failing=(0, told.ns(64)))).outcome


def test_canaries_whose_end_may_be_among_missing_events_accuse_nobody():
    events = waved().go(14).recovered().finish()
    ends = [e for e in events if isinstance(e, ev.RequestEnded) and e.kind == "canary"]
    verdict = judge([e for e in events if e not in ends[-12:-4]])
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert verdict.wedge is None


# ---------------------------------------------------------------------------------- what is cited


def test_an_accusation_cites_the_canaries_that_make_it():
    told = waved()
    told.reply = HANG
    events = told.go(45).finish()
    (evidence,) = finding(judge(events), "wedged").evidence
    cited = [event for event in events if event.seq in evidence.seqs]
    assert {"canary"} == {event.kind for event in cited}


# ---------------------------------------------------------------------------------- landing


@pytest.mark.parametrize(
    ("intended", "delivered", "landed"),
    [(60, 60, Answer.YES), (60, 54, Answer.YES), (60, 40, Answer.UNKNOWN), (3, 1, Answer.YES), (300, 268, Answer.YES)],
)
def test_a_wave_against_a_load_that_was_never_delivered_has_not_landed(intended, delivered, landed):
    events = [
        msgspec.structs.replace(e, intended=intended, delivered=delivered)
        if isinstance(e, ev.HarnessHealth) and e.who == "agent:agents"
        else e
        for e in waved().recovered().finish()
    ]
    verdict = judge(events)
    assert landed == verdict.waves[0].landed
    assert (Outcome.HEALTHY if landed is Answer.YES else Outcome.INCONCLUSIVE) == verdict.outcome


def test_each_of_two_faults_has_its_own_nodes_and_its_own_proof():
    told = faulted(nodes=FOUR)
    two = (*told.plan.faults, msgspec.structs.replace(told.plan.faults[0], id="second"))
    told.plan = msgspec.structs.replace(told.plan, faults=two)
    told.fault("decode-1").phase("recovery")
    events = told.recovered().finish()
    verdict = judge([msgspec.structs.replace(events[0], plan=told.plan), *events[1:]])
    assert [("fault", ("decode-1",), Answer.YES), ("second", (), Answer.NO)] == [
        (wave.wave, wave.nodes, wave.landed) for wave in verdict.waves
    ]


def test_a_failed_stage_without_a_reason_shows_what_was_measured():
    told = faulted()
    step = ev.FaultStep(
        t_ns=0, fault="fault", kind="signal", stage="verified", ok=False, measured={"decode-0": "3 of 9 stopped"}
    )
    told.fault("decode-0", stages=("applied",)).tell(step).phase("recovery")
    assert ("not verified: decode-0 3 of 9 stopped",) == judge(told.recovered().finish()).waves[0].unmet


# ---------------------------------------------------------------------------------- our deeds


def test_a_queue_that_the_process_we_replaced_no_longer_shows_is_not_missed():
    """A new process shows a queue of a rank only once something was in it."""

    def run(*, ours: bool) -> Outcome:
        told = faulted(kind="restart")
        if ours:
            told.fault("decode-0", "restart", ends=True).restart("decode-0")
        else:
            told.fault("prefill-0", "restart", ends=True).restart("prefill-0")
        events = told.phase("recovery").recovered().finish()
        load = next(e.t_ns for e in events if isinstance(e, ev.PhaseEntered) and e.phase == "load")
        more = ev.Sample(name="backlog", labels="rank=1", value=0.0)
        return judge(
            [
                msgspec.structs.replace(e, samples=(*e.samples, more))
                if isinstance(e, ev.Scrape) and e.node == "decode-0" and e.t_ns <= load
                else e
                for e in events
            ]
        ).outcome

    assert (Outcome.HEALTHY, Outcome.INCONCLUSIVE) == (run(ours=True), run(ours=False))


def test_a_process_that_somebody_else_stopped_is_no_excuse():
    def left(stopped: str) -> Outcome:
        told = faulted(nodes=FOUR)
        told.fault("decode-1", reversal="CONT").phase("recovery")
        told._states[stopped] = "stopped"
        pair = f"prefill-0>{stopped}"
        told.reply = HANG
        told.paths = (ev.Path(id=pair, kind="direct", nodes=("prefill-0", stopped)),)
        events = told.go(45).finish()
        seen = next(i for i, e in enumerate(events) if isinstance(e, ev.DeploymentSeen))
        path = msgspec.structs.replace(events[seen], paths=told.paths)
        return judge(with_baseline(pair, [*events[:seen], path, *events[seen + 1 :]])).outcome

    assert (Outcome.INCONCLUSIVE, Outcome.WEDGED) == (left("decode-1"), left("decode-0"))


def with_baseline(path: str, events: list[ev.AnyEvent]) -> list[ev.AnyEvent]:
    """The routed canaries told as those of another path."""
    return [
        msgspec.structs.replace(event, path=path)
        if isinstance(event, ev.RequestStarted | ev.RequestOverdue | ev.RequestEnded)
        else event
        for event in events
    ]


# ---------------------------------------------------------------------------------- floors


def test_a_run_waits_for_floors_that_are_above_and_may_yet_be_freed():
    holding = (msgspec.structs.replace(METRICS[0], holds_s=30.0), *METRICS[1:])
    told = play(metrics=holding).load().wave()
    broken = told.now
    told.backlog["decode-0"] = 5.0
    told.recovered().phase("teardown").go(1).phase("idle").quietly(5)
    facts = Facts().feed_all(told.events())
    assert told.ns(broken + 30) == floors_settle_ns(facts)
    assert "decode-0" in unsettled_floors(facts)
    told.backlog["decode-0"] = 0.0
    told.quietly(30)
    assert [] == unsettled_floors(Facts().feed_all(told.events()))


# ---------------------------------------------------------------------------------- work, and whose it is


@pytest.mark.parametrize(("alive", "outcome"), [(True, Outcome.OVERLOADED), (False, Outcome.SLOW_RECOVERY)])
def test_tokens_that_are_counted_for_dead_sessions_are_no_work_of_users(alive, outcome):
    """A decode that goes on for clients that are gone is busy, and nobody has anything of it."""
    told = play().load()
    told.token_rate = 300.0
    request = {"t_ns": 0, "req": "users-s1-r0", "kind": "load", "path": "routed", "group": "users"}
    told.tell(ev.RequestStarted(**request, intended_ns=told.ns(told.now), sent_ns=told.ns(told.now)))
    told.wave()
    if not alive:
        told.tell(ev.RequestEnded(**request, sent_ns=told.ns(told.now), error="cancelled", ended_by="fault"))
    told.reply = late(6)
    told.backlog["prefill-0"], told.backlog_rate = 38.0, -0.7
    told.go(30).token_rate = 0.0
    assert outcome == judge(told.finish()).outcome


@pytest.mark.parametrize(("rate", "outcome"), [(300.0, Outcome.OVERLOADED), (0.0, Outcome.SLOW_RECOVERY)])
def test_work_that_stood_still_with_our_canaries_does_not_explain_that_they_were_late(rate, outcome):
    """What is still starting is not busy, though users queue behind it and are served once it has begun."""
    told = play().load().wave()
    told.backlog["prefill-0"], told.backlog_rate = 38.0, -0.7
    told.reply, told.token_rate = Reply(at=told.now + 20), rate
    told.go(12).token_rate = 300.0
    told.go(18).token_rate = 0.0
    told.backlog = dict.fromkeys(told.backlog, 0.0)
    request = {"t_ns": 0, "req": "users-s1-r0", "kind": "load", "path": "routed", "group": "users"}
    told.tell(ev.RequestStarted(**request, intended_ns=told.ns(14), sent_ns=told.ns(14)), 14)
    told.tell(ev.RequestEnded(**request, sent_ns=told.ns(14), tokens=9), told.now)
    assert outcome == judge(told.finish()).outcome


@pytest.mark.parametrize(("tokens", "outcome"), [(60.0, Outcome.INCONCLUSIVE), (70.0, Outcome.WEDGED)])
def test_a_counter_that_shows_no_more_than_a_probe_does_not_show_that_users_were_served(tokens, outcome):
    told = play(deaf=frozenset({"canary", "agent"}), observes=("metrics",)).load(1)
    told.wave(waiting=60)
    told.deaf, told.reply = frozenset(), HANG
    events = [
        msgspec.structs.replace(
            e, samples=tuple(msgspec.structs.replace(s, value=tokens) if s.name == "tokens" else s for s in e.samples)
        )
        if isinstance(e, ev.Scrape)
        else e
        for e in told.go(45).finish()
    ]
    assert outcome == judge(events).outcome


# ---------------------------------------------------------------------------------- losses, and lateness


def test_losses_of_long_ago_are_not_the_state_of_a_path():
    told = waved().go(12)
    told.turns = (GOOD, HANG)
    told.go(8)
    told.turns = ()
    told.go(45)
    told.reply = late(5)
    told.go(1)
    told.reply = GOOD
    verdict = judge(told.go(2).finish())
    assert Outcome.SLOW_RECOVERY == verdict.outcome, verdict.headline


def test_a_path_that_answers_ever_more_slowly_is_not_dark_before_its_next_answer_is_due():
    """Answers took 20 s each up to 57 s; the next one may well take 30."""
    told = waved()
    told.reply = late(20)
    told.go(36)
    told.reply = HANG
    verdict = judge(told.go(30).finish(idle=False))
    assert Outcome.SLOW_RECOVERY == verdict.outcome, verdict.headline
    assert Outcome.WEDGED == judge(told.go(60).finish(idle=False)).outcome


def test_a_path_that_was_late_by_little_is_soon_known_to_be_dark():
    told = waved()
    told.reply = late(10)
    told.go(20).reply = HANG
    verdict = judge(told.go(30).finish(idle=False))  # 20 s after the last answer, where the next was due after 15
    assert Outcome.WEDGED == verdict.outcome, verdict.headline


@pytest.mark.parametrize(("hangs_s", "outcome"), [(34, Outcome.SLOW_RECOVERY), (44, Outcome.WEDGED)])
def test_what_the_engines_own_timeouts_did_not_free_is_no_longer_slow(hangs_s, outcome):
    """Answers took 31 s each, so that the next may take 46; but after 40 s the engine would have freed it."""
    told = waved()
    told.reply = late(31)
    told.go(20).reply = HANG
    told.go(30)
    assert outcome == judge(told.go(hangs_s).finish(idle=False)).outcome


@pytest.mark.parametrize(("refused_s", "outcome"), [(10, Outcome.HEALTHY), (14, Outcome.SLOW_RECOVERY)])
def test_what_was_asked_within_the_budget_and_answered_in_its_own_time_recovered_in_time(refused_s, outcome):
    """The budget is 12 s: whoever asked after 11 s had the answer after 13.5 s."""
    told = waved()
    told.reply = REFUSED
    told.go(refused_s)
    told.reply = late(2.5)
    assert outcome == judge(told.go(10).recovered().finish()).outcome


def test_a_share_of_losses_asks_for_a_longer_row():
    told = waved()
    told.turns = (GOOD, GOOD, GOOD, Reply(after=0.1, error="status"))
    told.go(24)
    told.turns = ()
    assert Outcome.WEDGED == judge(told.go(6).finish()).outcome


# ---------------------------------------------------------------------------------- processes


def started(events: list[ev.AnyEvent], *, before: float, after: float) -> list[ev.AnyEvent]:
    """The same processes with start times, which read otherwise once load has begun."""
    load = next(e.t_ns for e in events if isinstance(e, ev.PhaseEntered) and e.phase == "load")
    out: list[ev.AnyEvent] = []
    for event in events:
        if isinstance(event, ev.ProcessSeen):
            event = msgspec.structs.replace(event, start_time=before if event.t_ns <= load else after)  # noqa: PLW2901
        elif isinstance(event, ev.DeploymentSeen):
            nodes = tuple(msgspec.structs.replace(node, start_time=before) for node in event.nodes)
            event = msgspec.structs.replace(event, nodes=nodes)  # noqa: PLW2901
        out.append(event)
    return out


@pytest.mark.parametrize(("moved_s", "outcome"), [(1.5, Outcome.HEALTHY), (30.0, Outcome.RESTARTED)])
def test_a_start_time_that_moved_a_little_is_that_of_the_same_process(moved_s, outcome):
    events = waved().recovered().finish()
    assert outcome == judge(started(events, before=100.0, after=100.0 + moved_s)).outcome


def with_a_helper(*moments: float) -> list[ev.AnyEvent]:
    """A run in which a helper stood beside decode's scheduler at these moments of a baseline of 24 s."""
    told = Play().baseline(24)
    scheduler = ev.Child(pid=abs(told._pids["decode-0"]) + 1, name="scheduler", alive=True)
    helper = ev.Child(pid=999, name="helper", alive=True)
    for at in moments:
        look = ev.ProcessSeen(t_ns=0, node="decode-0", pid=told._pids["decode-0"], alive=True, state="sleeping")
        told.tell(msgspec.structs.replace(look, children=(scheduler, helper)), at)
    return told.load().wave().recovered().finish()


@pytest.mark.parametrize(
    ("moments", "outcome"),
    [
        ((21.0, 22.0, 23.0), Outcome.HEALTHY),  # often, and not for long
        ((11.0, 23.0), Outcome.HEALTHY),  # for long, and not often
        ((11.0, 17.0, 23.0), Outcome.DAMAGED),
    ],
)
def test_a_helper_belongs_to_a_node_that_had_it_often_and_for_long(moments, outcome):
    assert outcome == judge(with_a_helper(*moments)).outcome


@pytest.mark.parametrize(("after_us", "outcome"), [(False, Outcome.DAMAGED), (True, Outcome.INCONCLUSIVE)])
@pytest.mark.parametrize("what", ["process", "child"])
def test_a_death_counts_from_when_it_was_first_seen(what, after_us, outcome):
    told = waved(deaf=frozenset({"process"})).go(14)

    def look(*, alive: bool) -> None:
        for node in told.nodes:
            pid, well = told._pids[node], alive or node != "decode-0"
            child = ev.Child(pid=pid + 1, name="scheduler", alive=well or what == "process")
            main = well or what == "child"
            seen = ev.ProcessSeen(t_ns=0, node=node, pid=pid, alive=main, state="sleeping" if main else "zombie")
            told.tell(msgspec.structs.replace(seen, children=(child,)))

    for at in (2.0, 9.0):
        now, told.now = told.now, at
        look(alive=True)
        told.now = now
    look(alive=after_us)
    told.phase("teardown").hang_up().go(1)
    look(alive=False)
    assert outcome == judge(told.finish()).outcome


def test_a_node_that_we_hold_stopped_now_is_no_excuse_for_an_earlier_cycle():
    pair = ev.Path(id="prefill-0>decode-1", kind="direct", nodes=("prefill-0", "decode-1"))
    told = faulted(nodes=FOUR, paths=(ev.Path(id="routed", kind="routed"), pair), cycles=2)
    told.fault("decode-1", reversal="CONT").phase("recovery").replies[pair.id] = HANG
    told.go(30).load().freeze("decode-1").phase("recovery")
    assert Outcome.WEDGED == judge(told.go(30).finish()).outcome


def test_one_refused_reading_does_not_show_that_nobody_listens():
    only_health = msgspec.structs.replace(PLAN, faults=(ev.PlannedFault(id="wave", kind="kill", group="agents"),))

    def asked(times: int) -> Outcome:
        told = waved(plan=only_health, observes=("liveness",))
        told.reply, told.deaf = REFUSED, frozenset({"liveness"})
        told.go(20)
        for node in told.nodes:
            for _ in range(times):
                told.tell(
                    ev.Liveness(t_ns=0, node=node, endpoint="/health", status=None, took_ms=1.0, error="refused: x")
                )
        return judge(told.go(20).finish()).outcome

    assert (Outcome.WEDGED, Outcome.CRASHED) == (asked(1), asked(2))


# ---------------------------------------------------------------------------------- what is told of it


def test_a_cause_cites_its_lines():
    told = waved().fatal()
    told.reply = HANG
    events = told.go(45).finish()
    (cause,) = judge(events).causes
    assert ["control-thread-died"] == [e.signature for e in events if e.seq in cause.seqs and isinstance(e, ev.LogHit)]


def test_the_order_in_which_events_come_is_not_the_order_in_which_they_happened():
    told = waved()
    told.reply = HANG
    events = told.go(45).finish()
    assert judge(events) == judge(events[::-1])
