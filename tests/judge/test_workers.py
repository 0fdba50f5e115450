"""Workers that canaries cannot ask one by one: lost, back late, merely unlucky, or never in the game."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from build import HANG, Play, faulted, plan, play

from chaos.judge import Facts, judge, recovery, workers_known
from chaos.model import events as ev
from chaos.model.chance import by_chance, tries_that_tell
from chaos.model.outcomes import Answer, Outcome

if TYPE_CHECKING:
    from chaos.model.verdict import Finding, Verdict

TWO_PAIRS = ("router-0", "prefill-0", "prefill-1", "decode-0", "decode-1")
ROUTED = ev.Path(id="routed", kind="routed", nodes=TWO_PAIRS)
NOT_ASKED = tuple(
    ev.Path(id=f"{p}>{d}", kind="direct", nodes=(p, d), examined=False, reason="the router chooses the pair")
    for p in ("prefill-0", "prefill-1")
    for d in ("decode-0", "decode-1")
)


def frozen(**changes: object) -> Play:
    """One of two decode workers was frozen for a while, and goes on."""
    told = faulted(nodes=TWO_PAIRS, paths=(ROUTED, *NOT_ASKED), lasts_s=4.0, **changes)
    told.freeze("decode-1").go(4)
    return told.thaw("decode-1")


def forgotten_for_good() -> list[ev.AnyEvent]:
    told = frozen()
    told.forgotten = frozenset({"decode-1"})
    return told.go(45).finish()


def workers(verdict: Verdict) -> Finding:
    return next(finding for finding in verdict.findings if finding.id == "workers-serve")


def test_a_worker_that_gets_no_request_any_more_is_a_partial_silent_wedge_though_every_canary_passes():
    verdict = judge(forgotten_for_good())
    assert Outcome.WEDGED == verdict.outcome
    assert [Answer.YES] == [path.serves for path in verdict.paths]
    assert verdict.wedge
    look = verdict.wedge
    assert (False, True, True, "decode", (), ("decode-1",)) == (
        look.total,
        look.silent,
        look.confirmed,
        look.side,
        look.paths,
        look.nodes,
    )
    assert "WEDGED: in part: after fault decode-1 took none of " in verdict.headline
    assert "and every path serves without it while /health stays 200" in verdict.headline


def test_a_lost_worker_whose_health_is_red_is_no_silent_wedge():
    told = frozen(health=503)
    told.forgotten = frozenset({"decode-1"})
    verdict = judge(told.go(45).finish())
    assert Outcome.WEDGED == verdict.outcome
    assert verdict.wedge
    assert not verdict.wedge.silent


def test_a_worker_that_takes_requests_again_at_once_is_well():
    verdict = judge(frozen().recovered().finish())
    assert Outcome.HEALTHY == verdict.outcome
    assert Answer.YES == workers(verdict).answer
    assert verdict.wedge is None


def test_a_worker_that_comes_back_after_the_budget_recovered_slowly():
    told = frozen()
    told.forgotten = frozenset({"decode-1"})
    told.go(30)
    told.forgotten = frozenset()
    verdict = judge(told.go(15).finish())
    assert Outcome.SLOW_RECOVERY == verdict.outcome
    assert "decode-1 took requests again only" in verdict.headline


def test_a_worker_that_comes_back_within_the_budget_is_well():
    told = frozen()
    told.forgotten = frozenset({"decode-1"})
    told.go(10)
    told.forgotten = frozenset()
    assert Outcome.HEALTHY == judge(told.go(15).finish()).outcome


@pytest.mark.parametrize(("past_the_budget", "outcome"), [(5, Outcome.INCONCLUSIVE), (14, Outcome.WEDGED)])
def test_a_worker_is_accused_only_when_chance_does_not_explain_that_it_got_nothing(past_the_budget, outcome):
    told = frozen()
    told.forgotten = frozenset({"decode-1"})
    told.interval, budget_s = 1.0, told.plan.recover_within_s
    told.go(budget_s + past_the_budget)
    assert outcome == judge(told.finish(idle=False)).outcome


def test_requests_that_it_still_held_do_not_show_that_it_gets_fresh_ones():
    told = frozen()
    told.forgotten = frozenset({"decode-1"})
    told.taken["decode-1"] += 3  # they lay in its socket while it was frozen
    assert Outcome.WEDGED == judge(told.go(45).finish()).outcome


def test_a_worker_whose_counter_cannot_be_read_any_more_is_unknown():
    told = frozen()
    told.uncounted = frozenset({"decode-1"})
    verdict = judge(told.recovered().finish())
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert Answer.UNKNOWN == workers(verdict).answer
    assert "decode-1 after fault: how many requests it takes could not be read" in workers(verdict).evidence[0].text


def test_a_counter_that_could_never_be_read_is_unknown_for_the_whole_role():
    verdict = judge(frozen(uncounted=frozenset({"decode-0"})).recovered().finish())
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert {"decode-0", "decode-1"} == {evidence.text.split()[0] for evidence in workers(verdict).evidence}


def test_counters_that_count_nothing_accuse_nobody():
    told = frozen()
    told.forgotten = frozenset(TWO_PAIRS)
    verdict = judge(told.go(45).finish())
    assert Outcome.INCONCLUSIVE == verdict.outcome


def test_a_spare_worker_that_never_took_part_is_not_missed_but_named():
    told = faulted(nodes=TWO_PAIRS, paths=(ROUTED,), forgotten=frozenset({"decode-1"}), baseline_s=20.0)
    verdict = judge(told.freeze("decode-0").go(2).thaw("decode-0").recovered().finish())
    assert Outcome.HEALTHY == verdict.outcome
    assert any(told.startswith("decode-1: took none of") for told in verdict.not_examined)


def test_a_router_that_prefers_another_worker_accuses_nobody():
    """It gets one of ten; eleven in a row for its peer are no news, although an equal router would never do that."""
    told = faulted(nodes=TWO_PAIRS, paths=(ROUTED,), favours={"decode-0": 9}, baseline_s=20.0)
    told.freeze("decode-1").go(2).thaw("decode-1")
    told.forgotten = frozenset({"decode-1"})
    assert Outcome.INCONCLUSIVE == judge(told.go(told.plan.recover_within_s + 11).finish(idle=False)).outcome


def test_a_worker_that_we_killed_and_nobody_brought_back_is_not_missed():
    told = faulted(nodes=TWO_PAIRS, paths=(ROUTED,))
    told.fault("decode-1", ends=True).die("decode-1")
    told.forgotten = frozenset({"decode-1"})
    assert Outcome.HEALTHY == judge(told.go(30).finish()).outcome


def test_a_worker_that_we_leave_cut_off_is_not_missed_by_the_verdict_nor_by_the_run():
    def told(off: str) -> Play:
        play = faulted(kind="partition", nodes=TWO_PAIRS, paths=(ROUTED,)).part((off,), ("prefill-0", "prefill-1"))
        play.forgotten = frozenset({"decode-1"})
        return play.phase("recovery")

    assert Outcome.HEALTHY == judge(told("decode-1").go(45).finish()).outcome
    events = told("decode-1").go(30).cut()
    assert recovery(Facts().feed_all(events), events[-1].t_ns).recovered
    events = told("decode-0").go(30).cut()
    assert not recovery(Facts().feed_all(events), events[-1].t_ns).recovered


def test_a_lost_worker_that_died_by_itself_crashed():
    told = frozen()
    told.die("decode-1")
    told.forgotten = frozenset({"decode-1"})
    assert Outcome.CRASHED == judge(told.go(45).finish()).outcome


def test_a_restarted_worker_counts_from_zero_and_takes_part():
    told = faulted(nodes=TWO_PAIRS, paths=(ROUTED,), kind="restart")
    told.fault("decode-1", "restart", ends=True).restart("decode-1")
    told.taken["decode-1"] = 0.0
    assert Outcome.HEALTHY == judge(told.recovered().finish()).outcome


def test_workers_that_canaries_ask_by_themselves_need_no_counter():
    asked = tuple(ev.Path(id=path.id, kind="direct", nodes=path.nodes) for path in NOT_ASKED)
    told = faulted(nodes=TWO_PAIRS, paths=(ROUTED, *asked), uncounted=frozenset(TWO_PAIRS))
    verdict = judge(told.freeze("decode-1").go(2).thaw("decode-1").recovered().finish())
    assert Outcome.HEALTHY == verdict.outcome
    assert Answer.NOT_APPLICABLE == workers(verdict).answer


def test_a_worker_that_answers_canaries_of_its_own_and_that_the_router_has_lost_is_lost():
    asked = tuple(ev.Path(id=path.id, kind="direct", nodes=path.nodes) for path in NOT_ASKED)
    told = faulted(nodes=TWO_PAIRS, paths=(ROUTED, *asked), kind="restart")
    told.fault("decode-1", "restart", ends=True).restart("decode-1")
    told.forgotten = frozenset({"decode-1"})
    verdict = judge(told.go(45).finish())
    assert verdict.wedge
    assert (Outcome.WEDGED, ("decode-1",)) == (verdict.outcome, verdict.wedge.nodes)
    assert "router" == verdict.wedge.side  # the worker answers whoever asks it
    assert all(path.serves is Answer.YES for path in verdict.paths)
    told = faulted(nodes=TWO_PAIRS, paths=(ROUTED, *asked), kind="restart")
    told.fault("decode-1", "restart", ends=True).restart("decode-1")
    assert Outcome.HEALTHY == judge(told.go(45).finish()).outcome


def test_a_worker_that_answers_canaries_of_its_own_is_watched_until_the_router_uses_it_or_chance_explains_it_no_more():
    """Too few routed canaries to tell: no reason to go, and none to say that all is well."""
    asked = tuple(ev.Path(id=path.id, kind="direct", nodes=path.nodes) for path in NOT_ASKED)

    def told(forgotten: frozenset[str], past_the_budget: float) -> Play:
        play = faulted(nodes=TWO_PAIRS, paths=(ROUTED, *asked), kind="restart")
        play.fault("decode-1", "restart", ends=True).restart("decode-1")
        play.forgotten, play.interval = forgotten, 1.0
        return play.go(play.plan.recover_within_s + past_the_budget)

    few = told(frozenset({"decode-1"}), 5)
    assert ("decode-1",) == recovery(Facts().feed_all(few.events()), now(few)).missing
    assert Outcome.INCONCLUSIVE == judge(few.finish(idle=False)).outcome
    enough = told(frozenset({"decode-1"}), 14)
    assert Outcome.WEDGED == judge(enough.finish(idle=False)).outcome
    used = told(frozenset(), 5)
    assert recovery(Facts().feed_all(used.events()), now(used)).recovered


def test_an_answer_that_came_while_a_reading_was_on_its_way_makes_no_request_of_the_routers():
    asked = tuple(ev.Path(id=path.id, kind="direct", nodes=path.nodes) for path in NOT_ASKED)
    told = faulted(nodes=TWO_PAIRS, paths=(ROUTED, *asked), kind="restart")
    told.fault("decode-1", "restart", ends=True).restart("decode-1")
    told.forgotten = frozenset({"decode-1"})
    events = told.go(45).finish()
    on_it = {path.id for path in asked if "decode-1" in path.nodes}
    answers = [e.t_ns for e in events if isinstance(e, ev.RequestEnded) and e.path in on_it]
    routed = told.taken["decode-1"] - len(answers)  # all of them before the restart
    slow = next(e for e in events if isinstance(e, ev.Scrape) and e.node == "decode-1" and e.t_ns > answers[-9])
    begun_ns = max(t_ns for t_ns in answers if t_ns < slow.t_ns) - 1

    def reading(scrape: ev.Scrape, took_ms: float) -> ev.Scrape:
        """A server that counts a request when it answers, not a moment earlier."""
        count = routed + sum(t_ns <= (begun_ns if scrape is slow else scrape.t_ns) for t_ns in answers)
        samples = tuple(
            msgspec.structs.replace(sample, value=count) if sample.name == "taken" else sample
            for sample in scrape.samples
        )
        return msgspec.structs.replace(scrape, samples=samples, took_ms=took_ms if scrape is slow else 0.0)

    def outcome(took_ms: float) -> Outcome:
        since = told.ns(20)
        return judge(
            reading(e, took_ms) if isinstance(e, ev.Scrape) and e.node == "decode-1" and e.t_ns > since else e
            for e in events
        ).outcome

    assert Outcome.WEDGED == outcome((slow.t_ns - begun_ns) / 1e6)
    assert Outcome.SLOW_RECOVERY == outcome(
        0.0
    )  # had it been made at once, what it lacks would come on top of it later


def test_nothing_is_expected_of_a_worker_with_canaries_of_its_own_that_the_router_never_used():
    asked = tuple(ev.Path(id=path.id, kind="direct", nodes=path.nodes) for path in NOT_ASKED)
    told = faulted(nodes=TWO_PAIRS, paths=(ROUTED, *asked), forgotten=frozenset({"decode-1"}), baseline_s=5.0)
    told.freeze("decode-0").go(2).thaw("decode-0").recovered()
    assert recovery(Facts().feed_all(told.events()), now(told)).recovered
    assert Outcome.HEALTHY == judge(told.finish()).outcome


def test_a_worker_that_is_lost_without_any_fault_is_lost():
    told = play(plan=plan(faults=()), nodes=TWO_PAIRS, paths=(ROUTED,)).load()
    told.forgotten = frozenset({"prefill-0"})
    verdict = judge(told.go(45).finish())
    assert (Outcome.WEDGED, "prefill") == (verdict.outcome, verdict.wedge and verdict.wedge.side)


# ------------------------------------------------------------------------------- asked while the run goes on


def now(told: Play) -> int:
    return told.ns(told.now)


def test_the_run_watches_on_until_every_worker_has_taken_part():
    told = frozen()
    told.forgotten = frozenset({"decode-1"})
    told.go(10)
    seen = recovery(Facts().feed_all(told.events()), now(told))
    assert (False, (), ("decode-1",)) == (seen.recovered, seen.failing, seen.lacking)
    told.forgotten = frozenset()
    told.go(4)
    assert recovery(Facts().feed_all(told.events()), now(told)).recovered


def test_no_worker_is_asked_about_while_a_path_fails():
    told = frozen(reply=HANG)
    told.go(10)
    seen = recovery(Facts().feed_all(told.events()), now(told))
    assert (False, ()) == (seen.recovered, seen.missing)


def test_the_baseline_is_over_once_every_worker_took_one_or_never_will():
    told = Play(nodes=TWO_PAIRS, paths=(ROUTED,)).baseline(1)
    assert not workers_known(Facts().feed_all(told.events()), now(told))
    told.go(3)
    assert workers_known(Facts().feed_all(told.events()), now(told))
    spare = Play(nodes=TWO_PAIRS, paths=(ROUTED,), forgotten=frozenset({"decode-1"})).baseline(5)
    assert not workers_known(Facts().feed_all(spare.events()), now(spare))
    spare.go(10)
    assert workers_known(Facts().feed_all(spare.events()), now(spare))


@pytest.mark.parametrize(
    ("share", "doubt", "tries"), [(0.5, 0.01, 7), (0.5, 0.0025, 9), (0.125, 0.01, 35), (1, 0.01, 1)]
)
def test_so_many_tries_tell_and_one_less_does_not(share, doubt, tries):
    assert tries == tries_that_tell(share, doubt)
    assert by_chance(share, tries) < doubt <= by_chance(share, tries - 1)


def test_requests_of_others_that_its_peer_took_are_no_tries_of_ours():
    told = frozen()
    told.forgotten = frozenset({"decode-1"})
    told.go(told.plan.recover_within_s + 3)
    told.taken["decode-0"] += 500
    assert Outcome.INCONCLUSIVE == judge(told.go(2).finish(idle=False)).outcome


@pytest.mark.parametrize(
    ("earlier", "part"), [({"decode-0": 40.0, "decode-1": 40.0}, Answer.NO), ({"decode-0": 40.0}, Answer.UNKNOWN)]
)
def test_where_nothing_was_seen_being_taken_the_first_reading_tells_who_had_taken_requests(earlier, part):
    """Evidence of people has one reading from before, if any."""
    told = faulted(nodes=TWO_PAIRS, paths=(ROUTED, *NOT_ASKED), taken=earlier, lasts_s=4.0)
    told.freeze("decode-1").go(4).thaw("decode-1")
    told.forgotten = frozenset({"decode-1"})
    events = told.go(45).finish()
    faulty = next(e.t_ns for e in events if isinstance(e, ev.FaultStep))
    first: set[str] = set()
    kept = []
    for event in events:
        if isinstance(event, ev.Scrape) and event.t_ns < faulty:
            if event.node in first:
                continue
            first.add(event.node)
        kept.append(event)
    assert part == workers(judge(kept)).answer
