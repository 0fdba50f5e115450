"""Whether a wave met what it aimed at: what the census and the counters are worth."""

from __future__ import annotations

import math

import msgspec
import pytest
from build import SECOND, plan, play

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome


def beats(events: list[ev.AnyEvent]) -> list[ev.HarnessHealth]:
    """What the load's agent said of itself."""
    return [e for e in events if isinstance(e, ev.HarnessHealth) and e.who == "agent:agents"]


def fired_ns(events: list[ev.AnyEvent]) -> int:
    """When the wave was ordered."""
    return next(e.ordered_ns for e in events if isinstance(e, ev.WaveFired))


def renumbered(events: list[ev.AnyEvent]) -> list[ev.AnyEvent]:
    """The journal as it would be had only these events been written."""
    return [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(events, 1)]


@pytest.mark.parametrize(("silent_s", "landed"), [(1.0, Answer.YES), (2.0, Answer.UNKNOWN), (100.0, Answer.UNKNOWN)])
def test_a_census_of_an_agent_that_was_not_heard_of_before_the_wave_shows_nothing(silent_s, landed):
    events = play().load().wave().recovered().finish()
    hit_ns = fired_ns(events)
    silent = [e for e in beats(events) if hit_ns - silent_s * SECOND < e.t_ns <= hit_ns]
    verdict = judge(renumbered([e for e in events if e not in silent]))
    assert landed == verdict.waves[0].landed
    assert (Outcome.HEALTHY if landed is Answer.YES else Outcome.INCONCLUSIVE) == verdict.outcome


def test_a_census_of_an_agent_that_stood_still_shows_nothing():
    events = play().load().wave().recovered().finish()
    hit_ns = fired_ns(events)
    slow = [
        msgspec.structs.replace(e, lag_max_ms=2500.0)
        if isinstance(e, ev.HarnessHealth) and e.who == "agent:agents" and e.t_ns <= hit_ns
        else e
        for e in events
    ]
    verdict = judge(slow)
    assert Answer.UNKNOWN == verdict.waves[0].landed
    assert "lagged behind by 2500 ms" in verdict.waves[0].unmet[0]


@pytest.mark.parametrize(("before_s", "landed"), [(0.8, Answer.YES), (3.0, Answer.UNKNOWN)])
def test_an_agent_that_has_only_just_sent_its_first_request_need_not_have_been_heard_of(before_s, landed):
    told = play().load()
    sent = told.now - before_s
    told.tell(
        ev.RequestStarted(
            t_ns=0, req="agents-s0-r0", kind="load", path="routed", group="agents", intended_ns=told.ns(sent)
        ),
        sent,
    )
    events = told.wave().recovered().finish()
    early = [e for e in beats(events) if e.t_ns <= fired_ns(events)]
    assert landed == judge(renumbered([e for e in events if e not in early])).waves[0].landed


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1.7e308, -1.7e308])
def test_a_counter_that_says_nonsense_tells_nothing_and_breaks_nothing(value):
    told = play(observes=("liveness", "metrics")).load().wave()
    events = told.recovered().finish()
    broken = [
        msgspec.structs.replace(
            e,
            zero=(),
            samples=tuple(
                ev.Sample(name=s, labels=f"rank={rank}", value=value)
                for s in ("aborted", "tokens", "backlog", "taken")
                for rank in (0, 1)
            ),
        )
        if isinstance(e, ev.Scrape) and e.t_ns > fired_ns(events)
        else e
        for e in events
    ]
    verdict = judge(broken)
    assert verdict.waves[0].server_aborts is None
    assert Outcome.INCONCLUSIVE == verdict.outcome


def test_poison_that_hangs_is_told_with_its_fault():
    planned = ev.PlannedFault(id="no-text", kind="poison", how="3 x empty (chat)")
    told = play(plan=plan(faults=(planned,), cycles=1)).load()
    told.tell(ev.WaveCensus(t_ns=0, wave="no-text", phases={"streaming": 6}))
    for stage, measured in (("applied", {"kind": "empty"}), ("verified", {"answered": "1", "hanging": "2"})):
        step = ev.FaultStep(t_ns=0, fault="no-text", kind="poison", stage=stage, ok=True, measured=measured)  # type: ignore[arg-type]
        told.tell(step)
    verdict = judge(told.recovered().finish())
    assert {"answered": 1, "hanging": 2} == verdict.waves[0].ends
    assert "no-text of cycle 1 was sent while sessions were 6 streaming: 1 answered and 2 hanging" in verdict.reasons


def aborts_told(*, unread: str = "", mute: str = "", aborts: int = 0) -> int | None:
    """What a wave is told to have made the servers abort, with one worker's log unread, or of a silent engine."""
    events = play().load().wave(aborts=aborts).recovered().finish()
    kept = [e for e in events if not (unread and isinstance(e, ev.LogCovered) and e.node == unread)]
    seen = next(at for at, event in enumerate(kept) if isinstance(event, ev.DeploymentSeen))
    deployment = kept[seen]
    assert isinstance(deployment, ev.DeploymentSeen)
    nodes = tuple(
        msgspec.structs.replace(node, logs_aborts=node.id != mute, observes=("liveness", "log"))
        for node in deployment.nodes
    )
    kept[seen] = msgspec.structs.replace(deployment, nodes=nodes, metrics=())
    return judge(kept).waves[0].server_aborts


def test_that_no_server_aborted_anything_is_known_only_where_each_that_would_log_it_was_read():
    assert 0 == aborts_told()
    assert None is aborts_told(unread="prefill-0")
    assert None is aborts_told(mute="decode-0")
    assert 5 == aborts_told(unread="prefill-0", mute="router-0", aborts=5)
