"""Switching off a probe loses what it found or makes the run inconclusive; it never makes a run healthy.

A probe is switched off by taking its events out of a journal. Numbers that are missing are doubt already; so they are
given out anew, as if the probe had never run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
import test_outcomes as outcomes
import test_workers as workers
from build import HANG, INSIDE, Play, Reply, numbered, plan, play
from test_outcomes import TWO_PATHS

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.model.verdict import Verdict

Events = list[ev.AnyEvent]
PAIR = TWO_PATHS[1].id


def requests(path: str) -> Callable[[ev.AnyEvent], bool]:
    """Whether an event is of a canary on this path."""
    kinds = ev.RequestStarted | ev.RequestOverdue | ev.RequestEnded
    return lambda event: isinstance(event, kinds) and event.kind == "canary" and event.path == path


def without_reference(event: ev.AnyEvent) -> ev.AnyEvent:
    return msgspec.structs.replace(event, reference_ok=None) if isinstance(event, ev.HarnessHealth) else event


def without_content(event: ev.AnyEvent) -> ev.AnyEvent:
    if not isinstance(event, ev.RequestEnded):
        return event
    return msgspec.structs.replace(event, content="unchecked", whose="", digest="", prompt_tokens=None, mute=False)


def without_threads(event: ev.AnyEvent) -> ev.AnyEvent:
    return (
        msgspec.structs.replace(event, threads=(), threads_by="kernel") if isinstance(event, ev.ProcessSeen) else event
    )


GONE: dict[str, Callable[[ev.AnyEvent], bool]] = {
    "routed canary": requests("routed"),
    "direct canary": requests(PAIR),
    "liveness": lambda event: isinstance(event, ev.Liveness),
    "metrics": lambda event: isinstance(event, ev.Scrape),
    "logs": lambda event: isinstance(event, ev.LogHit | ev.LogCovered),
    "process": lambda event: isinstance(event, ev.ProcessSeen),
    "ourselves": lambda event: isinstance(event, ev.HarnessHealth) and event.who == "harness",
    "agents": lambda event: isinstance(event, ev.HarnessHealth) and event.who != "harness",
    "census": lambda event: isinstance(event, ev.WaveCensus),
    "faults": lambda event: isinstance(event, ev.FaultStep | ev.WaveFired),
}
"""Probes whose events are theirs alone."""
BLANKED: dict[str, Callable[[ev.AnyEvent], ev.AnyEvent]] = {
    "reference canary": without_reference,
    "content": without_content,
    "threads": without_threads,
}
"""Probes that write into events of others."""
PROBES = (*GONE, *BLANKED)


def switched_off(events: Events, probe: str) -> Events:
    """The journal as it would be had this probe never run."""
    if probe in BLANKED:
        return [BLANKED[probe](event) for event in events]
    return numbered([event for event in events if not GONE[probe](event)])


# ---------------------------------------------------------------------------------- what each of them found


def whole() -> Events:
    """A healthy run on which every probe looked."""
    told = Play(
        plan=plan(content="echo"), paths=TWO_PATHS, threads=dict(INSIDE), reply=Reply(after=0.4, content="ok")
    ).baseline()
    return told.look_inside().load().wave().recovered().look_inside().finish()


def only(path: str) -> Events:
    """Fresh requests hang on one path of two."""
    told = outcomes.waved(paths=TWO_PATHS)
    told.replies[path] = HANG
    return told.go(45).finish()


def a_thread_is_gone_in_a_wedge() -> Events:
    told = play(threads=INSIDE).look_inside().load().wave()
    told.reply = HANG
    return replace(told.go(45), threads={**INSIDE, "prefill-0": ("MainThread",)}).look_inside().finish()


class Found(NamedTuple):
    """A run in which a probe found something, and what is left of that without it."""

    probe: str
    events: Callable[[], Events]
    outcome: Outcome
    without: Outcome
    lost: Callable[[Verdict], object] = lambda verdict: verdict.outcome
    """What the probe alone could tell."""


FOUND = (
    Found("routed canary", lambda: only("routed"), Outcome.WEDGED, Outcome.INCONCLUSIVE),
    Found("direct canary", lambda: only(PAIR), Outcome.WEDGED, Outcome.INCONCLUSIVE),
    Found(
        "liveness",
        outcomes.nothing_completes_and_health_is_green,
        Outcome.WEDGED,
        Outcome.WEDGED,
        lambda verdict: verdict.wedge.silent,
    ),
    Found("metrics", outcomes.a_queue_keeps_what_it_did_not_hold, Outcome.LEAKING, Outcome.INCONCLUSIVE),
    Found("metrics", workers.forgotten_for_good, Outcome.WEDGED, Outcome.INCONCLUSIVE),
    Found("metrics", outcomes.late_behind_work_that_progresses, Outcome.OVERLOADED, Outcome.SLOW_RECOVERY),
    Found("logs", outcomes.a_thread_died_and_everything_still_passes, Outcome.DAMAGED, Outcome.INCONCLUSIVE),
    Found(
        "logs",
        outcomes.nothing_completes_and_health_is_green,
        Outcome.WEDGED,
        Outcome.WEDGED,
        lambda verdict: (verdict.causes, verdict.wedge.side),
    ),
    Found("process", outcomes.a_process_was_replaced, Outcome.RESTARTED, Outcome.INCONCLUSIVE),
    Found("process", outcomes.a_process_died_and_everything_still_passes, Outcome.DAMAGED, Outcome.INCONCLUSIVE),
    Found("process", outcomes.a_process_died, Outcome.CRASHED, Outcome.WEDGED),
    Found(
        "threads",
        a_thread_is_gone_in_a_wedge,
        Outcome.WEDGED,
        Outcome.WEDGED,
        lambda verdict: (verdict.causes, verdict.wedge.side),
    ),
    Found("content", outcomes.an_answer_without_what_the_baseline_always_had, Outcome.CORRUPTED, Outcome.INCONCLUSIVE),
    Found("ourselves", outcomes.the_hang_may_be_ours, Outcome.INCONCLUSIVE, Outcome.WEDGED),
    Found("ourselves", whole, Outcome.HEALTHY, Outcome.INCONCLUSIVE),
    Found("reference canary", outcomes.the_reference_canary_failed_too, Outcome.INCONCLUSIVE, Outcome.WEDGED),
    Found("agents", whole, Outcome.HEALTHY, Outcome.INCONCLUSIVE),
    Found("census", whole, Outcome.HEALTHY, Outcome.INCONCLUSIVE),
    Found("faults", whole, Outcome.HEALTHY, Outcome.INCONCLUSIVE),
    Found("liveness", whole, Outcome.HEALTHY, Outcome.INCONCLUSIVE),
    Found("metrics", whole, Outcome.HEALTHY, Outcome.INCONCLUSIVE),
    Found("logs", whole, Outcome.HEALTHY, Outcome.INCONCLUSIVE),
    Found("process", whole, Outcome.HEALTHY, Outcome.INCONCLUSIVE),
    Found("content", whole, Outcome.HEALTHY, Outcome.INCONCLUSIVE),
    Found("routed canary", whole, Outcome.HEALTHY, Outcome.INCONCLUSIVE),
    Found("direct canary", whole, Outcome.HEALTHY, Outcome.INCONCLUSIVE),
)
ROWS = [pytest.param(found, id=f"{found.probe}: {found.outcome}") for found in FOUND]


def test_every_probe_has_found_something():
    assert set(PROBES) == {found.probe for found in FOUND}


@pytest.mark.parametrize("found", ROWS)
def test_what_a_probe_found_is_lost_without_it_and_nothing_becomes_healthy(found):
    with_it, without = judge(found.events()), judge(switched_off(found.events(), found.probe))
    assert (found.outcome, found.without) == (with_it.outcome, without.outcome), without.headline
    assert found.lost(with_it) != found.lost(without)


SICK = [row for row in outcomes.ROWS if row[0] is not Outcome.HEALTHY]


@pytest.mark.parametrize("situation", [row[1] for row in SICK], ids=[row[1].__name__ for row in SICK])
def test_no_situation_becomes_healthy_without_any_probe_unless_it_says_what_nobody_saw(situation):
    events = situation()
    for probe in PROBES:
        verdict = judge(switched_off(events, probe))
        if verdict.outcome is Outcome.HEALTHY:
            assert UNSEEN[probe] in " | ".join(verdict.not_examined), probe


UNSEEN = {"content": "the content of answers: not checked", "threads": "its threads were not looked at"}
"""Probes that not every target can have: without them a run may be healthy, and says what nobody looked at."""


@pytest.mark.parametrize("probe", UNSEEN)
def test_a_healthy_run_without_what_not_every_target_can_have_says_so(probe):
    events = [
        msgspec.structs.replace(e, plan=msgspec.structs.replace(e.plan, content="auto")) if e.seq == 1 else e
        for e in whole()
    ]
    assert UNSEEN[probe] not in " | ".join(judge(events).not_examined)
    verdict = judge(switched_off(events, probe))
    assert Outcome.HEALTHY == verdict.outcome
    assert UNSEEN[probe] in " | ".join(verdict.not_examined)


def test_the_whole_run_is_healthy_and_every_probe_answered():
    verdict = judge(whole())
    assert Outcome.HEALTHY == verdict.outcome
    unanswered = {finding.id for finding in verdict.findings if finding.answer is Answer.UNKNOWN}
    assert set() == unanswered
