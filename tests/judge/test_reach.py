"""Nodes that answered before and do not any more, while their peers answer every fresh request."""

from __future__ import annotations

import msgspec
import pytest
from build import HANG, faulted, play

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome

NODES = ("router-0", "prefill-0", "decode-0", "decode-1")


def whole_run(*, asked_last: int, status: int | None = None, node: str = "decode-1") -> list[ev.AnyEvent]:
    """A run that serves to the end, in which the last so many looks at a node's endpoints got no good answer."""
    events = play(nodes=NODES).load().wave().recovered().finish()
    seen = [e for e in events if isinstance(e, ev.Liveness) and e.node == node]
    read = [e for e in events if isinstance(e, ev.Scrape) and e.node == node]
    bad: dict[int, ev.AnyEvent] = {}
    if asked_last:
        bad |= {e.seq: msgspec.structs.replace(e, status=status, error="refused") for e in seen[-asked_last:]}
        bad |= {e.seq: msgspec.structs.replace(e, ok=False, samples=(), zero=()) for e in read[-asked_last:]}
    return [bad.get(e.seq, e) for e in events]


@pytest.mark.parametrize("status", [None, 503])
def test_a_node_that_answers_no_more_is_never_health_and_accuses_nobody(status):
    verdict = judge(whole_run(asked_last=3, status=status))
    assert Outcome.INCONCLUSIVE == verdict.outcome
    found = next(f for f in verdict.findings if f.id == "still-answer")
    assert (Answer.UNKNOWN, None) == (found.answer, found.outcome)
    assert [
        "/health of decode-1 answered before anything was broken, and not 3 times in a row up to the end",
        "the metrics endpoint of decode-1 answered before anything was broken, and not 3 times in a row up to the end",
    ] == [evidence.text for evidence in found.evidence]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_answer_that_was_missed_once_or_twice_is_no_news(number):
    assert Outcome.HEALTHY == judge(whole_run(asked_last=number)).outcome


def test_an_endpoint_that_was_asked_only_once_since_and_did_not_answer_is_doubt():
    events = whole_run(asked_last=0)
    load = next(e.t_ns for e in events if isinstance(e, ev.PhaseEntered) and e.phase == "load")
    after = [e for e in events if isinstance(e, ev.Liveness) and e.node == "decode-1" and e.t_ns > load]
    kept = [e for e in events if e not in after[:-1]]
    kept = [msgspec.structs.replace(e, status=None) if e == after[-1] else e for e in kept]
    verdict = judge([msgspec.structs.replace(e, seq=seq) for seq, e in enumerate(kept, 1)])
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert "when it was last asked" in verdict.headline


def test_red_health_that_was_red_before_is_no_news():
    verdict = judge(play(health=503).load().wave().recovered().finish())
    assert Outcome.HEALTHY == verdict.outcome


def test_a_node_that_we_ended_ourselves_is_not_missed():
    told = faulted(kind="signal", nodes=NODES)
    told.fault("decode-1", ends=True).die("decode-1")
    told.phase("recovery")
    events = told.recovered().finish()
    dead = next(e.t_ns for e in events if isinstance(e, ev.FaultStep))
    red = [
        msgspec.structs.replace(e, status=None)
        if isinstance(e, ev.Liveness) and e.node == "decode-1" and e.t_ns >= dead
        else e
        for e in events
    ]
    found = next(f for f in judge(red).findings if f.id == "still-answer")
    assert Answer.YES == found.answer


def test_a_wedge_with_red_health_is_no_doubt_about_the_run():
    told = play().load().wave()
    told.reply, told.health = HANG, 503
    verdict = judge(told.go(45).finish())
    assert Outcome.WEDGED == verdict.outcome
    assert not [reason for reason in verdict.reasons if "still answer" in reason]
