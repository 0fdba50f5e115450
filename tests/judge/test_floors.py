"""What a queue keeps at rest: what counts as a level of it, and what as one above another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from build import METRICS, Play, waved
from test_imported import WAVE, Evidence, answer, scraped, served
from test_judge_traps import changed

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome

if TYPE_CHECKING:
    from chaos.model.verdict import Verdict


def levels(events: list[ev.AnyEvent], before: float, after: float) -> list[ev.AnyEvent]:
    """Decode's queue stands at one level until the load, and at another one from then on."""
    load = next(e.t_ns for e in events if isinstance(e, ev.PhaseEntered) and e.phase == "load")

    def told(event: ev.Scrape) -> ev.Scrape:
        value = before if event.t_ns <= load else after
        kept = tuple(sample for sample in event.samples if sample.name != "backlog")
        return msgspec.structs.replace(event, samples=(*kept, ev.Sample(name="backlog", labels="", value=value)))

    return changed(events, ev.Scrape, lambda e: told(e) if e.node == "decode-0" else e)


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (-1.0, 0.0, Outcome.HEALTHY),  # what holds nothing keeps nothing
        (-1.0, 2.0, Outcome.INCONCLUSIVE),
        (0.0, -1.0, Outcome.INCONCLUSIVE),
        (0.0, 2.0, Outcome.LEAKING),
    ],
)
def test_a_level_below_zero_is_no_reading(before, after, outcome):
    assert outcome == judge(levels(waved().recovered().finish(), before, after)).outcome


@pytest.mark.parametrize(("before", "outcome"), [(-1, Outcome.HEALTHY), (0, Outcome.HEALTHY)])
def test_a_level_below_zero_that_people_noted_is_no_reading(before, outcome):
    evidence = scraped(served(Evidence()), 50.0, r0=before)
    assert outcome == evidence.resting(WAVE + 60, backlog=0).verdict().outcome
    unknown = scraped(served(Evidence()), 50.0, r0=before).resting(WAVE + 60, backlog=-1)
    assert Outcome.INCONCLUSIVE == unknown.verdict().outcome


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        pytest.param(0.0, 1e-9, Outcome.HEALTHY, id="from zero"),
        pytest.param(1e9, 1e9 + 0.5, Outcome.HEALTHY, id="much"),
        pytest.param(0.004, 0.17, Outcome.LEAKING, id="a share"),
        pytest.param(1e6, 1e6 + 24, Outcome.LEAKING, id="24 of many"),
    ],
)
def test_levels_that_differ_by_rounding_are_one_level(before, after, outcome):
    assert outcome == judge(levels(waved().recovered().finish(), before, after)).outcome


@pytest.mark.parametrize(("step", "outcome"), [(1e-9, Outcome.HEALTHY), (0.1, Outcome.LEAKING)])
def test_floors_that_rise_by_rounding_do_not_rise(step, outcome):
    evidence = Evidence(waves=(50.0, 100.0, 150.0))
    for wave in (50.0, 100.0, 150.0):
        served(evidence, wave + 5)
    for number, at in enumerate((49.0, 90.0, 140.0, 200.0)):
        evidence.resting(at, backlog=0.5 + number * step)
    assert outcome == evidence.verdict().outcome


def at_rest(evidence: Evidence, at: float, **ranks: float) -> Evidence:
    """A scrape of the decode node that is said to be of a deployment at rest, one series per rank."""
    samples = tuple(ev.Sample(name="backlog", labels=rank, value=level) for rank, level in ranks.items())
    told = ev.LevelsTold(t_ns=0, node="decode-0", by="hand", samples=samples, quiet_s=5.0)
    return scraped(evidence, at, **ranks).tell(at, told)


@pytest.mark.parametrize(
    ("ranks", "outcome"),
    [
        pytest.param({"r0": 0.0, "r1": 0.0}, Outcome.HEALTHY, id="both ranks"),
        pytest.param({"r0": 0.0}, Outcome.INCONCLUSIVE, id="one rank"),
        pytest.param({}, Outcome.INCONCLUSIVE, id="no rank"),
    ],
)
def test_a_queue_that_is_not_in_the_last_scrape_is_unknown(ranks, outcome):
    verdict = at_rest(at_rest(served(Evidence()), 50.0, r0=0.0, r1=0.0), WAVE + 60, **ranks).verdict()
    assert outcome == verdict.outcome
    if outcome is Outcome.INCONCLUSIVE:
        assert Answer.UNKNOWN == answer(verdict, "leaking")
        assert "quiet_for" not in verdict.headline


def test_what_people_read_off_by_hand_need_not_name_every_rank():
    evidence = scraped(served(Evidence()), 50.0, r0=0.0, r1=0.0)
    assert Outcome.HEALTHY == evidence.resting(WAVE + 60, backlog=0).verdict().outcome


@pytest.mark.parametrize(("level", "told"), [(0.0, False), (-1.0, True), (None, True)])
def test_a_queue_of_which_no_level_was_ever_read_is_listed(level, told):
    more = ev.MetricUse(name="running", kind="gauge", use="queue", roles=("decode",))
    play = Play(metrics=(*METRICS, more)).baseline().load().wave().recovered()
    events = play.finish()
    if level is not None:
        sample = ev.Sample(name="running", labels="", value=level)
        events = changed(events, ev.Scrape, lambda e: msgspec.structs.replace(e, samples=(*e.samples, sample)))
    line = "decode-0: running never told a level (not there, or never a number of 0 or more)"
    verdict = judge(events)
    assert Outcome.HEALTHY == verdict.outcome
    assert told is (line in verdict.not_examined)


def asked_while_idle(
    *,
    foreign: int = 0,
    own: int = 0,
    left: int = 0,
    drains: bool = False,
    roles: tuple[str, ...] = ("prefill", "decode"),
) -> Verdict:
    """Decode keeps two requests, and one is counted each second of the idle time: others', ours, or what we left."""
    told = waved()
    told.backlog["decode-0"] = 2.0
    told.recovered()
    for session in range(24):
        ended = ev.RequestEnded(
            t_ns=0, req=f"s{session}", kind="load", path="routed", sent_ns=told.ns(9), error="killed", ended_by="fault"
        )
        told.tell(ended, 15.5)
    told.backlog["prefill-0"] = 20.0 if drains else 0.0
    told.phase("teardown").go(1).phase("idle")
    for second in range(10):
        if second < own:
            sent, req = told.ns(told.now), f"own{second}"
            start = ev.RequestStarted(t_ns=0, req=req, kind="poison", path="routed", intended_ns=sent, sent_ns=sent)
            told.tell(start).tell(
                ev.RequestEnded(t_ns=0, req=req, kind="poison", path="routed", sent_ns=sent, ended_by="server"),
                told.now + 0.2,
            )
        rises = second < max(foreign, own, left)
        for role in roles:
            told.taken[f"{role}-0"] += rises
        if rises and drains:
            told.backlog["prefill-0"] = max(told.backlog["prefill-0"] - 4, 0)
        told.quietly(1)
    return judge(told.phase("last-canaries").go(6).finish(idle=False))


@pytest.mark.parametrize(
    ("idle", "outcome"),
    [
        pytest.param({}, Outcome.LEAKING, id="nobody's"),
        pytest.param({"foreign": 8}, Outcome.INCONCLUSIVE, id="theirs"),
        pytest.param({"foreign": 8, "roles": ("decode",)}, Outcome.LEAKING, id="on one side alone"),
        pytest.param({"own": 8}, Outcome.LEAKING, id="our own"),
        pytest.param({"left": 5, "drains": True}, Outcome.LEAKING, id="late ends of ours"),
    ],
)
def test_what_a_queue_holds_while_somebody_else_asks_may_be_theirs(idle, outcome):
    verdict = asked_while_idle(**idle)
    assert outcome == verdict.outcome
    assert (outcome is Outcome.INCONCLUSIVE) is ("somebody else uses it" in verdict.headline.lower())
