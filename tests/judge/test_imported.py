"""Evidence that people have collected: few fresh requests, no run of ours, levels told by logs and by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from build import METRICS, SECOND, numbered, plan

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome

if TYPE_CHECKING:
    from chaos.model.verdict import Verdict

USES = (*METRICS, ev.MetricUse(name="beat", kind="gauge", use="heartbeat"))
WAVE = 100.0
BUDGET = 12.0  # of the builder's plan; a canary's deadline is 4 s, the engine's own timeouts 40 s


def ns(seconds: float) -> int:
    return round((1000 + seconds) * SECOND)


class Evidence:
    """What somebody has collected; moments are seconds since the watch began."""

    def __init__(self, *, waves: tuple[float, ...] = (WAVE,), lasts: float = 300.0, origin: str = "imported") -> None:
        faults = (ev.PlannedFault(id="wave", kind="kill", aim=(ev.Bound(name="server_aborts", op=">=", value=1),)),)
        nodes = tuple(
            ev.Node(id=f"{role}-0", role=role, observes=("log",))  # type: ignore[arg-type]
            for role in ("router", "prefill", "decode")
        )
        self.lasts = lasts
        self.events: list[ev.AnyEvent] = [
            ev.RunStarted(
                t_ns=ns(0),
                format=1,
                run_id="imported",
                tool_version="0",
                utc="",
                target="imported",
                plan=plan(faults=faults if waves else (), cycles=max(len(waves), 1)),
                origin=origin,  # type: ignore[arg-type]
            ),
            ev.DeploymentSeen(
                t_ns=ns(0), nodes=nodes, paths=(ev.Path(id="routed", kind="routed"),), gauge_lag_s=3.0, metrics=USES
            ),
            ev.PhaseEntered(t_ns=ns(0), phase="baseline"),
        ]
        for cycle, at in enumerate(waves, 1):
            self.wave(cycle, at)

    def tell(self, at: float, event: ev.AnyEvent, cycle: int = 0) -> Evidence:
        self.events.append(msgspec.structs.replace(event, t_ns=ns(at), cycle=cycle))
        return self

    def wave(self, cycle: int, at: float, name: str = "wave") -> None:
        self.tell(at, ev.PhaseEntered(t_ns=0, phase="load"), cycle)
        self.tell(at, ev.WaveCensus(t_ns=0, wave=name, phases={"waiting": 30, "streaming": 30}), cycle)
        self.tell(at, ev.WaveFired(t_ns=0, wave=name, how="sigkill", ordered_ns=ns(at), sessions=60), cycle)
        for stage in ("applied", "verified"):
            step = ev.FaultStep(t_ns=0, fault=name, kind="kill", stage=stage, ok=True, measured={"by": "hand"})
            self.tell(at, step, cycle)
        for node in ("prefill-0", "decode-0"):
            self.tell(
                at, ev.LogHit(t_ns=0, node=node, stream="log", signature="a", klass="abort", line="x", key=str(at))
            )

    def asked(self, at: float, took: float | None, *, path: str = "routed") -> Evidence:
        """A fresh request, answered after a time or hung up on by whoever sent it a minute later."""
        req = f"request-{len(self.events)}"
        self.tell(at, ev.RequestStarted(t_ns=0, req=req, kind="canary", path=path, intended_ns=ns(at), sent_ns=ns(at)))
        ended = ev.RequestEnded(
            t_ns=0,
            req=req,
            kind="canary",
            path=path,
            sent_ns=ns(at),
            last_ns=ns(at + (took or 60)),
            error="" if took else "timeout",
            ended_by="server" if took else "harness",
        )
        return self.tell(at + (took or 60), ended)

    def resting(self, at: float, quiet_s: float | None = 5.0, node: str = "decode-0", **levels: float) -> Evidence:
        samples = tuple(ev.Sample(name=name, labels="", value=value) for name, value in levels.items())
        return self.tell(at, ev.LevelsTold(t_ns=0, node=node, by="hand", samples=samples, quiet_s=quiet_s))

    def logged(self, at: float, node: str, labels: str = "", **levels: float) -> Evidence:
        samples = tuple(ev.Sample(name=name, labels=labels, value=value) for name, value in levels.items())
        return self.tell(at, ev.LevelsTold(t_ns=0, node=node, by="log", samples=samples))

    def verdict(self) -> Verdict:
        for node in ("router-0", "prefill-0", "decode-0"):
            self.tell(self.lasts, ev.LogCovered(t_ns=0, node=node, stream="log", start=0, end=9, lines=3))
        self.tell(self.lasts, ev.RunEnded(t_ns=0, status="completed", cleanup="clean"))
        return judge(numbered(sorted(self.events, key=lambda e: (e.t_ns, isinstance(e, ev.RunEnded)))))


def served(evidence: Evidence, since: float = WAVE + 5) -> Evidence:
    for number in range(5):
        evidence.asked(since + 2 * number, 0.5)
    return evidence


def answer(verdict: Verdict, question: str) -> Answer:
    return next(finding.answer for finding in verdict.findings if finding.id == question)


def test_what_only_a_run_of_ours_can_tell_is_not_asked_of_imported_evidence_and_is_of_a_run():
    imported = served(Evidence()).verdict()
    assert Outcome.HEALTHY == imported.outcome, imported.reasons
    ours = ("run-completed", "we-were-fit", "baseline-served", "last-canaries", "probes-looked")
    assert {Answer.NOT_APPLICABLE} == {answer(imported, question) for question in ours}
    live = served(Evidence(origin="live")).verdict()
    assert Outcome.INCONCLUSIVE == live.outcome
    assert Answer.NOT_APPLICABLE not in {answer(live, question) for question in ours}


def test_imported_evidence_without_enough_fresh_requests_is_not_health():
    assert Outcome.INCONCLUSIVE == Evidence().asked(WAVE + 5, 0.5).verdict().outcome
    assert Outcome.INCONCLUSIVE == Evidence().verdict().outcome


@pytest.mark.parametrize(
    ("told", "outcome"),
    [
        ({"goodput": 0.98}, Outcome.HEALTHY),
        ({"goodput": 0.94}, Outcome.INCONCLUSIVE),  # one session of twenty may have got nothing
        ({"completed": 20, "failed": 0}, Outcome.HEALTHY),
        ({"completed": 3, "failed": 0}, Outcome.INCONCLUSIVE),
        ({"completed": 20, "failed": 5}, Outcome.INCONCLUSIVE),
        ({}, Outcome.INCONCLUSIVE),
    ],
)
def test_a_load_that_was_served_as_before_is_as_good_as_so_many_fresh_requests(told, outcome):
    evidence = Evidence().asked(WAVE + 5, 0.5)
    evidence.tell(WAVE + 60, ev.LoadTold(t_ns=0, from_ns=ns(WAVE + 30), sessions=20, **told))
    assert outcome == evidence.verdict().outcome


def test_a_load_from_before_things_had_settled_shows_nothing():
    evidence = Evidence().asked(WAVE + 5, 0.5)
    evidence.tell(WAVE + 60, ev.LoadTold(t_ns=0, from_ns=ns(WAVE + 1), sessions=20, goodput=1.0))
    assert Outcome.INCONCLUSIVE == evidence.verdict().outcome


def test_a_floor_that_rises_with_every_wave_is_a_leak_though_nobody_looked_before_the_first():
    evidence = Evidence(waves=(50.0, 100.0, 150.0))
    for at, level in ((95.0, 2), (145.0, 9), (195.0, 19)):
        evidence.asked(at - 40, 0.6).resting(at, backlog=level)
    verdict = evidence.verdict()
    assert Outcome.LEAKING == verdict.outcome
    assert "LEAKING: backlog of decode-0 holds more at rest after every wave: 2, 9, 19" == verdict.headline


@pytest.mark.parametrize(
    "levels",
    [((95.0, 2), (145.0, 9)), ((95.0, 2), (145.0, 9), (195.0, 9)), ((95.0, 9), (145.0, 2), (195.0, 19))],
    ids=["two waves", "the last did not add", "one took off"],
)
def test_a_floor_that_does_not_rise_with_each_of_three_waves_is_no_slope(levels):
    evidence = Evidence(waves=(50.0, 100.0, 150.0))
    for at, level in levels:
        evidence.asked(at - 40, 0.6).resting(at, backlog=level)
    assert Outcome.INCONCLUSIVE == evidence.verdict().outcome


def holding(evidence: Evidence, seconds: float) -> Evidence:
    """The engine's own timeout frees the backlog only after so long."""
    metrics = tuple(msgspec.structs.replace(use, holds_s=seconds) if use.name == "backlog" else use for use in USES)
    evidence.events[1] = msgspec.structs.replace(evidence.events[1], metrics=metrics)
    return evidence


@pytest.mark.parametrize(("holds_s", "outcome"), [(40.0, Outcome.LEAKING), (50.0, Outcome.INCONCLUSIVE)])
def test_what_the_engines_own_timeout_has_yet_to_free_is_no_rising_floor(holds_s, outcome):
    evidence = holding(Evidence(waves=(50.0, 100.0, 150.0), lasts=200.0), holds_s)
    for at, level in ((95.0, 2), (145.0, 9), (195.0, 19)):
        evidence.asked(at - 40, 0.6).resting(at, backlog=level)
    assert outcome == evidence.verdict().outcome


@pytest.mark.parametrize(("level", "outcome"), [(0, Outcome.HEALTHY), (4, Outcome.INCONCLUSIVE)])
def test_a_level_that_is_back_needs_no_timeout_and_one_that_is_not_waits_for_it(level, outcome):
    evidence = holding(scraped(served(Evidence()), 50.0, r0=0.0), 90.0)
    assert outcome == evidence.resting(WAVE + 60, backlog=level).verdict().outcome


def test_levels_that_were_not_read_at_rest_are_no_floor():
    for quiet_s in (None, 1.0):  # the gauge lag is 3 s
        evidence = Evidence(waves=(50.0, 100.0, 150.0))
        for at, level in ((95.0, 2), (145.0, 9), (195.0, 19)):
            evidence.asked(at - 40, 0.6).resting(at, quiet_s, backlog=level)
        assert Outcome.INCONCLUSIVE == evidence.verdict().outcome


def scraped(evidence: Evidence, at: float, **ranks: float) -> Evidence:
    """A scrape of the decode node, one series per rank."""
    samples = tuple(ev.Sample(name="backlog", labels=rank, value=level) for rank, level in ranks.items())
    nodes = tuple(
        msgspec.structs.replace(node, observes=("log", "metrics")) if node.role == "decode" else node
        for node in evidence.events[1].nodes  # type: ignore[union-attr]
    )
    evidence.events[1] = msgspec.structs.replace(evidence.events[1], nodes=nodes)
    return evidence.tell(at, ev.Scrape(t_ns=0, node="decode-0", ok=True, samples=samples))


@pytest.mark.parametrize(("level", "outcome"), [(0, Outcome.HEALTHY), (3, Outcome.HEALTHY), (4, Outcome.LEAKING)])
def test_a_level_read_off_at_rest_is_compared_with_all_ranks_before_the_load_together(level, outcome):
    evidence = scraped(served(Evidence()), 50.0, r0=1.0, r1=2.0)
    assert outcome == evidence.resting(WAVE + 60, backlog=level).verdict().outcome


def test_scrapes_without_a_reading_at_rest_leave_the_floor_unknown():
    evidence = scraped(served(Evidence()), 50.0, r0=0.0)
    verdict = scraped(evidence, WAVE + 60, r0=0.0).verdict()
    assert (Outcome.INCONCLUSIVE, Answer.UNKNOWN) == (verdict.outcome, answer(verdict, "leaking"))


def test_levels_in_a_log_are_no_floors_but_show_that_a_backlog_shrinks():
    evidence = Evidence(waves=()).asked(20.0, 100.0)
    for at, queue, tokens in ((10.0, 38, 100), (60.0, 37, 20_000), (110.0, 0, 90_000)):
        evidence.logged(at, "prefill-0", backlog=queue, tokens=tokens)
    verdict = evidence.asked(150.0, 0.5).verdict()
    assert Outcome.OVERLOADED == verdict.outcome, verdict.reasons
    standing = Evidence(waves=()).asked(20.0, 100.0)
    for at, tokens in ((10.0, 100), (60.0, 20_000), (110.0, 90_000)):
        standing.logged(at, "prefill-0", backlog=38, tokens=tokens)
    assert Outcome.SLOW_RECOVERY == standing.asked(150.0, 0.5).verdict().outcome


def test_a_queue_that_was_both_logged_and_scraped_is_counted_once_from_where_it_was_read_more_often():
    evidence = Evidence(waves=()).asked(20.0, 100.0)
    for at, queue, tokens in ((10.0, 38, 100), (60.0, 37, 20_000), (110.0, 2, 90_000)):
        evidence.logged(at, "decode-0", backlog=queue, tokens=tokens)
    verdict = scraped(evidence, 60.0, r0=500.0).asked(150.0, 0.5).verdict()
    assert "the queues fell from 37 to 2" in " | ".join(verdict.reasons)


def hung(*, dead: bool, requests: int = 1, worked: bool = True) -> Verdict:
    """Nobody did anything, a scheduler may have died, and fresh requests hang."""
    evidence = Evidence(waves=())
    if worked:
        evidence.logged(1.0, "decode-0", tokens=900.0)
    for number in range(requests):
        evidence.asked(200.0 + number, None)
    child = ev.Child(pid=-1, name="scheduler_TP0", alive=not dead)
    evidence.tell(195.0, ev.ProcessSeen(t_ns=0, node="prefill-0", pid=41, alive=True, children=(child,)))
    evidence.tell(190.0, ev.Liveness(t_ns=0, node="prefill-0", endpoint="/health", status=200, took_ms=1.0))
    return evidence.verdict()


def test_one_failed_request_is_an_accident_unless_a_process_on_its_path_is_dead():
    assert Outcome.INCONCLUSIVE == hung(dead=False).outcome
    verdict = hung(dead=True)
    assert Outcome.CRASHED == verdict.outcome
    assert (
        "CRASHED: child scheduler_TP0 of prefill-0 is dead while its parent 41 lives; we did not do it, "
        "while /health stays 200"
    ) == verdict.headline


def test_servers_that_had_counted_users_tokens_were_able_to_serve():
    assert Outcome.WEDGED == hung(dead=False, requests=2).outcome
    assert Outcome.INCONCLUSIVE == hung(dead=False, requests=2, worked=False).outcome


@pytest.mark.parametrize(
    ("beats", "side"),
    [
        (((WAVE + 20, 103.0), (WAVE + 80, 103.0), (WAVE + 150, 103.0)), "decode"),
        (((WAVE + 20, 103.0), (WAVE + 80, 178.0), (WAVE + 150, 240.0)), ""),
        (((WAVE + 150, 103.0),), ""),
    ],
    ids=["frozen", "moving", "read once"],
)
def test_a_heartbeat_that_stands_still_names_the_wedged_side(beats, side):
    evidence = Evidence().asked(WAVE + 20, None).asked(WAVE + 90, None)
    for at, beat in beats:
        evidence.logged(at, "decode-0", beat=beat)
    verdict = evidence.verdict()
    assert Outcome.WEDGED == verdict.outcome
    assert verdict.wedge is not None
    assert side == verdict.wedge.side
    assert bool(side) == any("the heartbeat of decode-0 stood still" in reason for reason in verdict.reasons)


def test_a_fault_that_belongs_to_one_cycle_is_not_missed_in_another():
    evidence = served(Evidence())
    started = evidence.events[0]
    assert isinstance(started, ev.RunStarted)
    only = tuple(
        msgspec.structs.replace(fault, id=name, cycles=(cycle,))
        for fault in started.plan.faults
        for cycle, name in ((1, "wave"), (2, "again"))
    )
    evidence.events[0] = msgspec.structs.replace(
        started, plan=msgspec.structs.replace(started.plan, faults=only, cycles=2)
    )
    evidence.wave(2, 200.0, "again")
    verdict = served(evidence, 210.0).verdict()
    assert ["wave", "again"] == [wave.wave for wave in verdict.waves]
    assert {Answer.YES} == {wave.landed for wave in verdict.waves}
    assert Outcome.HEALTHY == verdict.outcome, verdict.reasons


@pytest.mark.parametrize(("failed", "outcome"), [(0, Outcome.HEALTHY), (5, Outcome.INCONCLUSIVE)])
def test_a_load_that_failed_where_no_fault_explains_it_is_doubt(failed, outcome):
    evidence = served(Evidence())
    evidence.tell(WAVE + 90, ev.LoadTold(t_ns=0, from_ns=ns(WAVE + 60), sessions=20, completed=20, failed=failed))
    verdict = evidence.verdict()
    assert (outcome, Answer.NO if failed else Answer.YES) == (verdict.outcome, answer(verdict, "users-served"))


@pytest.mark.parametrize(
    ("begins", "ends", "failed", "outcome"),
    [
        pytest.param(1.0, 4.0, 500, Outcome.HEALTHY, id="within"),
        pytest.param(-20.0, 40.0, 500, Outcome.INCONCLUSIVE, id="spans"),
        pytest.param(-20.0, 40.0, 3, Outcome.HEALTHY, id="few"),
    ],
)
def test_failures_of_a_load_that_outlives_the_reach_of_a_fault_are_not_all_its_doing(begins, ends, failed, outcome):
    evidence = served(Evidence(), since=WAVE + 5)
    told = ev.LoadTold(t_ns=0, from_ns=ns(WAVE + begins), sessions=20, completed=500, failed=failed)
    assert outcome == evidence.tell(WAVE + ends, told).verdict().outcome


@pytest.mark.parametrize(("goodput", "outcome"), [(0.95, Outcome.HEALTHY), (0.4, Outcome.INCONCLUSIVE)])
def test_a_load_that_gets_through_much_less_than_before_is_not_served_as_before(goodput, outcome):
    told = ev.LoadTold(t_ns=0, from_ns=ns(WAVE + 60), sessions=20, goodput=goodput)
    assert outcome == served(Evidence()).tell(WAVE + 90, told).verdict().outcome


@pytest.mark.parametrize(("aim", "landed"), [(20, Answer.YES), (31, Answer.NO)])
def test_a_census_that_a_person_took_is_of_the_moment_that_the_person_says(aim, landed):
    evidence = served(Evidence())
    started = evidence.events[0]
    assert isinstance(started, ev.RunStarted)
    waiting = (ev.Bound(name="waiting", op=">=", value=aim),)
    faults = tuple(msgspec.structs.replace(fault, aim=waiting) for fault in started.plan.faults)
    evidence.events[0] = msgspec.structs.replace(started, plan=msgspec.structs.replace(started.plan, faults=faults))
    assert [landed] == [wave.landed for wave in evidence.verdict().waves]


@pytest.mark.parametrize(("pid", "outcome"), [(41, Outcome.HEALTHY), (0, Outcome.HEALTHY), (42, Outcome.RESTARTED)])
def test_a_process_whose_number_nobody_noted_is_not_said_to_be_another_one(pid, outcome):
    evidence = served(Evidence())
    for at, number in ((50.0, 41), (WAVE + 50, pid)):
        evidence.tell(at, ev.ProcessSeen(t_ns=0, node="prefill-0", pid=number, alive=True))
    assert outcome == evidence.verdict().outcome


@pytest.mark.parametrize(("failed", "outcome"), [(5, Outcome.HEALTHY), (50, Outcome.INCONCLUSIVE)])
def test_of_a_load_that_was_told_as_a_whole_a_few_failures_are_a_detail(failed, outcome):
    evidence = served(Evidence())
    told = ev.LoadTold(t_ns=0, from_ns=ns(WAVE + 30), sessions=20, completed=1000, failed=failed)
    assert outcome == evidence.tell(WAVE + 60, told).verdict().outcome
