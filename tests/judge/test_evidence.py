"""How much a single look is worth: floors per series, helpers that go, ports that refuse, one red reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from build import GOOD, HANG, REFUSED, Play, Reply, plan, play, waved

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

ONLY_HEALTH = plan(faults=(ev.PlannedFault(id="wave", kind="kill", group="agents"),))


def phase_ns(events: list[ev.AnyEvent], phase: ev.Phase) -> int:
    return next(e.t_ns for e in events if isinstance(e, ev.PhaseEntered) and e.phase == phase)


def rescraped(events: list[ev.AnyEvent], change: Callable[[ev.Scrape], ev.Scrape]) -> list[ev.AnyEvent]:
    return [change(e) if isinstance(e, ev.Scrape) and e.node == "decode-0" else e for e in events]


def with_rank_one(scrape: ev.Scrape, value: float) -> ev.Scrape:
    more = ev.Sample(name="backlog", labels="rank=1", value=value)
    return msgspec.structs.replace(scrape, samples=(*scrape.samples, more))


def test_a_queue_that_appears_only_under_load_was_empty_before():
    events = waved().recovered().finish()
    load = phase_ns(events, "load")
    lazy = rescraped(events, lambda e: with_rank_one(e, 9.0) if e.t_ns > load else e)
    verdict = judge(lazy)
    assert Outcome.LEAKING == verdict.outcome
    assert "backlog of decode-0 (rank=1) is 9 at rest, was 0 before the load" in verdict.headline


def test_a_queue_that_appears_only_under_load_and_is_empty_at_rest_is_no_leak():
    events = waved().recovered().finish()
    load = phase_ns(events, "load")
    assert Outcome.HEALTHY == judge(rescraped(events, lambda e: with_rank_one(e, 0.0) if e.t_ns > load else e)).outcome


def test_a_queue_that_vanished_under_load_is_unknown_though_its_sister_came_back():
    events = waved().recovered().finish()
    load = phase_ns(events, "load")
    verdict = judge(rescraped(events, lambda e: with_rank_one(e, 0.0) if e.t_ns <= load else e))
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert "the idle floor of decode-0 could not be read" in verdict.headline


def with_helper(events: list[ev.AnyEvent], seen_at: tuple[int, ...]) -> list[ev.AnyEvent]:
    """The same run with a helper beside the scheduler of a node at these looks of the baseline."""
    helper = ev.Child(pid=999, name="helper", alive=True)
    looks = [e.seq for e in events if isinstance(e, ev.ProcessSeen) and e.node == "decode-0"]
    chosen = {looks[at] for at in seen_at}
    return [
        msgspec.structs.replace(e, children=(*e.children, helper))
        if isinstance(e, ev.ProcessSeen) and e.seq in chosen
        else e
        for e in events
    ]


@pytest.mark.parametrize(
    ("seen_at", "outcome"),
    [
        ((0, 1, 2, 3, 4), Outcome.DAMAGED),  # from the first look on
        ((1, 2, 3, 4), Outcome.DAMAGED),  # four looks over 15 s
        ((3, 4), Outcome.HEALTHY),
        ((4,), Outcome.HEALTHY),
    ],
)
def test_a_child_that_is_gone_accuses_only_where_it_was_there_for_long(seen_at, outcome):
    events = Play().baseline(24).load().wave().recovered().finish()
    load = phase_ns(events, "load")
    looks = [e for e in events if isinstance(e, ev.ProcessSeen) and e.node == "decode-0" and e.t_ns <= load]
    assert 5 == len(looks)
    verdict = judge(with_helper(events, seen_at))
    assert outcome == verdict.outcome
    told = [e.text for f in verdict.findings if f.id == "damaged" for e in f.evidence]
    assert ("child helper (pid 999) of decode-0 came and went" in told) is (outcome is Outcome.HEALTHY)


def unprocessed(*, error: str = "refused: no one there", observes: tuple[str, ...] = ("liveness",)) -> Play:
    told = waved(plan=ONLY_HEALTH, observes=observes)
    told.health, told.health_error = None, error
    return told


def test_a_node_that_refuses_every_connection_to_the_end_has_crashed():
    told = unprocessed()
    told.reply = REFUSED
    verdict = judge(told.go(45).finish())
    assert Outcome.CRASHED == verdict.outcome
    assert "nothing listens on router-0 any more" in verdict.headline
    assert verdict.wedge is None


def test_a_node_that_is_only_silent_may_still_have_a_process():
    told = unprocessed(error="timeout")
    told.reply = HANG
    verdict = judge(told.go(45).finish())
    assert Outcome.WEDGED == verdict.outcome
    assert "a dead process is not ruled out" in verdict.headline


def test_where_a_process_is_seen_alive_a_refusing_port_is_a_wedge():
    told = unprocessed(observes=("liveness", "process"))
    told.reply = REFUSED
    verdict = judge(told.go(45).finish())
    assert Outcome.WEDGED == verdict.outcome
    assert "not ruled out" not in verdict.headline


def test_a_port_that_answers_again_is_not_deserted():
    told = unprocessed()
    told.reply = REFUSED
    told.go(40)
    told.health, told.health_error = 200, ""
    assert Outcome.WEDGED == judge(told.go(10).finish()).outcome


def wedged_with_red(*seen_at: int) -> list[ev.AnyEvent]:
    """A wedge in which these looks at one endpoint past the budget, of all that there were, found it red."""
    told = waved()
    told.reply = HANG
    events = told.go(90).finish()
    budget = phase_ns(events, "recovery") + 12_000_000_000
    looks = [e for e in events if isinstance(e, ev.Liveness) and e.node == "decode-0" and e.t_ns >= budget]
    assert 20 < len(looks)
    red = {looks[at].seq for at in seen_at}
    return [
        msgspec.structs.replace(e, status=503) if isinstance(e, ev.Liveness) and e.seq in red else e for e in events
    ]


@pytest.mark.parametrize(("red", "silent"), [((), True), ((5,), True), ((5, 6), False), ((1, 5, 9, 13), False)])
def test_one_red_reading_among_many_makes_no_wedge_loud(red, silent):
    verdict = judge(wedged_with_red(*red))
    assert verdict.wedge is not None
    assert silent is verdict.wedge.silent
    assert ("while /health stays 200" in verdict.headline) is silent


def test_the_one_red_reading_is_told():
    assert judge(wedged_with_red(5)).headline.endswith("(/health of decode-0 answered 503 once)")


def test_damage_says_that_every_path_serves_only_where_that_is_known():
    served = judge(waved().fatal().recovered().finish())
    assert Outcome.DAMAGED == served.outcome
    assert served.headline.endswith(", though every path serves")
    told = play().load().wave().fatal()
    told.reply = HANG
    cut = judge(told.go(7).finish(idle=False))
    assert Outcome.DAMAGED == cut.outcome
    assert cut.headline.endswith("and whether fresh requests pass on routed is not known")


# ---------------------------------------------------------------------------------------------- a starved machine


def slowed(cpu_wait: float, reply: Reply, seconds: float = 25.0) -> Outcome:
    told = waved()
    told.cpu_wait, told.reply = cpu_wait, reply
    told.go(seconds)
    told.cpu_wait, told.reply = 0.0, GOOD
    return judge(told.recovered().finish()).outcome


def test_lateness_that_waiting_for_a_cpu_explains_is_doubt_and_never_healthy() -> None:
    late = Reply(after=6.0)  # the deadline is 4 s: without waiting half of the time it would have taken 3 s
    assert Outcome.INCONCLUSIVE == slowed(0.5, late)
    assert Outcome.SLOW_RECOVERY == slowed(0.2, late)
    assert Outcome.SLOW_RECOVERY == slowed(0.0, late)


def test_refusals_of_a_router_are_doubt_where_its_servers_mostly_waited_for_a_cpu() -> None:
    refused = Reply(after=0.2, error="status")
    assert Outcome.INCONCLUSIVE == slowed(0.8, refused)
    assert Outcome.SLOW_RECOVERY == slowed(0.3, refused)
    assert Outcome.SLOW_RECOVERY == slowed(0.8, Reply(after=0.2, error="refused"))  # nobody listens: that is no wait


def test_a_starved_machine_does_not_explain_requests_that_hang_for_good() -> None:
    told = waved()
    told.cpu_wait, told.reply = 0.6, HANG
    verdict = judge(told.go(45).finish())
    assert Outcome.WEDGED == verdict.outcome


# ---------------------------------------------------------------------------------------------- our own way there


def behind_a_gap(node: str, probe: str, from_s: float, to_s: float, reply: Reply) -> Outcome:
    told = waved()
    told.reply = reply
    told.go(25.0)
    from_ns, to_ns = told.ns(told.now - from_s), told.ns(told.now - to_s)
    told.tell(ev.EvidenceLost(t_ns=0, probe=probe, node=node, from_ns=from_ns, to_ns=to_ns))
    told.reply = GOOD
    return judge(told.recovered().finish()).outcome


def test_lateness_that_our_own_way_explains_is_doubt_and_no_more_than_that() -> None:
    late = Reply(after=6.0)  # the deadline is 4 s
    assert Outcome.INCONCLUSIVE == behind_a_gap("router-0", "way-late", 25.0, -6.0, late)
    assert Outcome.SLOW_RECOVERY == behind_a_gap("router-0", "way-late", 25.0, 24.0, late)  # a second of it
    assert Outcome.SLOW_RECOVERY == behind_a_gap("decode-0", "way-late", 25.0, -6.0, late)  # nobody went there
    assert Outcome.SLOW_RECOVERY == behind_a_gap("router-0", "metrics", 25.0, -6.0, late)


def test_a_way_that_was_cut_is_never_healthy() -> None:
    assert Outcome.INCONCLUSIVE == behind_a_gap("router-0", "way", 3.0, 1.0, GOOD)
    assert Outcome.HEALTHY == behind_a_gap("router-0", "way-late", 3.0, 1.0, GOOD)
