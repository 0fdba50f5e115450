"""Situations and the outcome that each must get: the table that the judge is trusted by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pytest
from build import GOOD, HANG, INSIDE, METRICS, PLAN, REFUSED, Play, Reply, late, plan, play, waved

from chaos.judge import Facts, floors_settle_ns, judge, unsettled_floors
from chaos.judge.windows import windows
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Cleanup, ExitCode, Outcome, RunStatus

if TYPE_CHECKING:
    from collections.abc import Callable

TWO_PATHS = (
    ev.Path(id="routed", kind="routed"),
    ev.Path(id="prefill-0>decode-0", kind="direct", nodes=("prefill-0", "decode-0")),
)


def replaced_threads(told: Play, node: str, *names: str) -> Play:
    told.threads = {**told.threads, node: names}
    return told


def wedging(told: Play, seconds: float = 45.0) -> Play:
    told.reply = HANG
    return told.go(seconds)


# ---------------------------------------------------------------------------------- healthy, however it looks


def a_wave_that_left_nothing() -> list[ev.AnyEvent]:
    return waved().recovered().finish()


def abort_lines_on_both_sides_and_every_rank() -> list[ev.AnyEvent]:
    return play().load().wave(aborts=60).hit("decode-0", "failed", "benign").recovered(12).finish()


def a_health_endpoint_that_is_red_all_the_time() -> list[ev.AnyEvent]:
    told = waved(health=503)
    told.token_rate = 500
    told.recovered().token_rate = 0
    return told.finish()


def a_gauge_stale_since_before_the_run() -> list[ev.AnyEvent]:
    return waved(backlog={"prefill-0": 1.0}).recovered().finish()


def a_gauge_that_lags_behind_but_comes_back() -> list[ev.AnyEvent]:
    told = waved()
    told.backlog["decode-0"], told.backlog_rate = 24.0, -2.0
    return told.recovered().finish()


def a_traceback_that_was_caught() -> list[ev.AnyEvent]:
    return (
        waved().hit("prefill-0", "worker-error", "traceback").hit("prefill-0", "assert", "symptom").recovered().finish()
    )


def canaries_that_fail_within_the_budget() -> list[ev.AnyEvent]:
    told = waved()
    told.reply = REFUSED
    told.go(6)
    told.reply = GOOD
    return told.recovered().finish()


def our_own_lag_while_every_canary_passes() -> list[ev.AnyEvent]:
    return waved(lag_ms=900.0).recovered().finish()


def nothing_was_broken() -> list[ev.AnyEvent]:
    return play(plan=plan(faults=())).load(20).finish()


def two_cycles() -> list[ev.AnyEvent]:
    return play(plan=plan(cycles=2)).load().wave().recovered().load().wave().recovered().finish()


def a_node_without_metrics_or_log() -> list[ev.AnyEvent]:
    only_abortless = plan(faults=(ev.PlannedFault(id="wave", kind="kill", group="agents"),))
    return waved(observes=("liveness",), plan=only_abortless).recovered().finish()


# ---------------------------------------------------------------------------------- wedged


def nothing_completes_and_health_is_green() -> list[ev.AnyEvent]:
    return wedging(waved().fatal()).finish()


def every_fresh_request_is_refused() -> list[ev.AnyEvent]:
    told = waved(health=None)
    told.reply = REFUSED
    return told.go(30).finish()


def every_other_request_is_lost() -> list[ev.AnyEvent]:
    told = waved()
    told.turns = (GOOD, HANG)
    return told.go(45).finish()


def one_path_of_two_hangs() -> list[ev.AnyEvent]:
    told = waved(paths=TWO_PATHS)
    told.replies["routed"] = HANG
    return told.go(45).finish()


def it_recovered_and_then_stopped_for_good() -> list[ev.AnyEvent]:
    return wedging(waved().go(15), 30).finish()


def it_wedged_with_streams_still_running() -> list[ev.AnyEvent]:
    # Tokens still flow for requests that were already past the transfer; fresh ones get nothing.
    told = waved(token_rate=200.0)
    told.received_rate = 200
    told.backlog["decode-0"], told.backlog_rate = 30.0, -0.5
    return wedging(told).finish()


def it_wedged_and_nothing_but_canaries_was_looked_at() -> list[ev.AnyEvent]:
    return wedging(waved(observes=())).finish()


def it_wedged_though_the_wave_missed_its_aim() -> list[ev.AnyEvent]:
    return wedging(play().load().wave(waiting=0, aborts=0)).finish()


def it_wedged_under_load_alone() -> list[ev.AnyEvent]:
    return wedging(play(plan=plan(faults=())).load(10)).finish()


def it_wedged_in_the_second_cycle() -> list[ev.AnyEvent]:
    return wedging(play(plan=plan(cycles=2)).load().wave().recovered().load().wave()).finish()


def it_wedged_when_idle() -> list[ev.AnyEvent]:
    told = waved().recovered()
    told.phase("idle").quietly(8).phase("last-canaries")
    return wedging(told, 12).finish(idle=False)


# ---------------------------------------------------------------------------------- other violations


def it_healed_at_the_engines_timeout() -> list[ev.AnyEvent]:
    told = waved()
    told.reply = Reply(at=55.0, error="status")
    told.go(40)
    told.reply = GOOD
    return told.recovered().finish()


def one_canary_late_in_the_middle() -> list[ev.AnyEvent]:
    told = waved().go(15)
    told.reply = late(5)
    told.go(1)
    told.reply = GOOD
    return told.recovered().finish()


def every_answer_is_late() -> list[ev.AnyEvent]:
    told = waved()
    told.reply = late(6)
    return told.go(30).finish()


def late_behind_work_that_progresses() -> list[ev.AnyEvent]:
    told = waved(token_rate=300.0, health=503)
    told.reply, told.received_rate = late(6), 100
    told.backlog["prefill-0"], told.backlog_rate = 38.0, -0.7
    return told.go(30).finish()


def late_behind_a_long_prefill_without_any_kill() -> list[ev.AnyEvent]:
    told = play(plan=plan(faults=()), health=503)
    told.token_rate, told.backlog_rate = 3500, -0.7
    told.backlog["prefill-0"] = 38
    told.reply = late(9)
    told.load(40)
    told.reply, told.token_rate = GOOD, 0.0
    return told.go(10).finish()


def a_process_died() -> list[ev.AnyEvent]:
    return wedging(waved().die("prefill-0")).finish()


def a_child_died_under_a_living_parent() -> list[ev.AnyEvent]:
    told = wedging(waved(deaf=frozenset({"process"})))
    dead = ev.Child(pid=111, name="scheduler", alive=False)
    for at in (5.0, told.now):
        child = dead if at > 6 else ev.Child(pid=111, name="scheduler", alive=True)
        told.tell(
            ev.ProcessSeen(t_ns=0, node="prefill-0", pid=110, alive=True, state="sleeping", children=(child,)), at
        )
    return told.finish()


def a_process_was_replaced() -> list[ev.AnyEvent]:
    return waved().go(3).restart("decode-0").recovered().finish()


def a_queue_keeps_what_it_did_not_hold() -> list[ev.AnyEvent]:
    told = waved()
    told.backlog["decode-0"] = 9.0
    return told.recovered().finish()


def a_thread_died_and_everything_still_passes() -> list[ev.AnyEvent]:
    return waved().fatal().recovered().finish()


def a_thread_is_gone_and_no_line_says_so() -> list[ev.AnyEvent]:
    told = replaced_threads(play(threads=INSIDE).look_inside().load().wave(), "prefill-0", "MainThread")
    return told.recovered().look_inside().finish()


def an_unknown_traceback_ended_a_thread() -> list[ev.AnyEvent]:
    return waved().hit("decode-0", "unknown-traceback", "traceback", ends="thread").recovered().finish()


def a_process_died_and_everything_still_passes() -> list[ev.AnyEvent]:
    return waved().die("decode-0").recovered().finish()


def an_answer_with_someone_elses_text() -> list[ev.AnyEvent]:
    told = waved()
    told.reply = Reply(after=0.4, content="corrupted")
    told.go(1)
    told.reply = GOOD
    return told.recovered().finish()


def an_answer_without_what_the_baseline_always_had() -> list[ev.AnyEvent]:
    told = waved(plan=plan(content="echo"), reply=Reply(after=0.4, content="ok"))
    told.reply = Reply(after=0.4, content="missing")
    told.go(1)
    told.reply = GOOD
    return told.recovered().finish()


# ---------------------------------------------------------------------------------- inconclusive


def the_wave_hit_no_waiting_session() -> list[ev.AnyEvent]:
    return play().load().wave(waiting=0, aborts=0).recovered().finish()


def the_servers_saw_no_abort() -> list[ev.AnyEvent]:
    return play().load().wave(aborts=0).recovered().finish()


def the_wave_was_never_fired() -> list[ev.AnyEvent]:
    return play().load().wave(fired=False).recovered().finish()


def the_wave_was_not_verified() -> list[ev.AnyEvent]:
    return play().load().wave(verified=False).recovered().finish()


def the_second_cycle_never_came() -> list[ev.AnyEvent]:
    return play(plan=plan(cycles=2)).load().wave().recovered().finish()


def nobody_could_tell_of_aborts() -> list[ev.AnyEvent]:
    return waved(observes=("liveness",)).recovered().finish()


def the_run_was_killed() -> list[ev.AnyEvent]:
    return waved().recovered().cut()


def the_run_was_stopped_by_a_person() -> list[ev.AnyEvent]:
    return waved().recovered().finish(status="aborted")


def the_target_never_served() -> list[ev.AnyEvent]:
    return wedging(play(reply=HANG).load().wave()).finish()


def the_hang_may_be_ours() -> list[ev.AnyEvent]:
    told = waved()
    told.lag_ms, told.reply = 4000.0, HANG
    return told.go(30).finish()


def the_reference_canary_failed_too() -> list[ev.AnyEvent]:
    told = waved()
    told.reference_ok, told.reply = False, HANG
    return told.go(30).finish()


def the_watch_ended_within_the_budget() -> list[ev.AnyEvent]:
    told = waved()
    told.reply = HANG
    return told.go(7).finish(idle=False)


def too_few_passes_since_the_last_abort() -> list[ev.AnyEvent]:
    told = waved().go(8)
    told.aborts(3)
    return told.go(3).finish()


def the_last_canary_failed_and_was_the_only_one() -> list[ev.AnyEvent]:
    return waved().recovered(15).finish(last=HANG)


def a_log_lost_bytes() -> list[ev.AnyEvent]:
    told = waved().recovered()
    told.tell(ev.LogCovered(t_ns=0, node="prefill-0", stream="log", start=0, end=10, lost=4096, note="rotated"))
    return told.finish()


def a_log_that_should_have_been_read_was_not() -> list[ev.AnyEvent]:
    return waved(deaf=frozenset({"log"})).recovered().finish()


def the_floors_could_not_be_read() -> list[ev.AnyEvent]:
    return waved(deaf=frozenset({"metrics"})).recovered().finish()


def no_metric_is_known_by_its_use() -> list[ev.AnyEvent]:
    return waved(metrics=()).recovered().finish()


def the_processes_were_never_looked_at() -> list[ev.AnyEvent]:
    return waved(deaf=frozenset({"process"})).recovered().finish()


def no_canary_was_ever_sent() -> list[ev.AnyEvent]:
    return waved(deaf=frozenset({"canary"})).recovered().finish()


def the_canary_probe_was_blind_for_a_while() -> list[ev.AnyEvent]:
    told = waved().recovered()
    told.tell(ev.EvidenceLost(t_ns=0, probe="canary", from_ns=told.ns(16), to_ns=told.ns(18), cause="no descriptors"))
    return told.finish()


def a_clock_jumped() -> list[ev.AnyEvent]:
    told = waved().recovered()
    told.tell(ev.EvidenceLost(t_ns=0, probe="clock", from_ns=told.ns(16), to_ns=told.ns(18), cause="slept"))
    return told.finish()


def a_host_was_out_of_sight_and_every_probe_knows_what_it_missed() -> list[ev.AnyEvent]:
    told = waved().recovered()
    told.tell(ev.EvidenceLost(t_ns=0, probe="ssh", node="prefill-0", from_ns=told.ns(16), to_ns=told.ns(18)))
    return told.finish()


def nobody_watched_ourselves() -> list[ev.AnyEvent]:
    return waved(deaf=frozenset({"self"})).recovered().finish()


TABLE: dict[Outcome, tuple[Callable[[], list[ev.AnyEvent]], ...]] = {
    Outcome.HEALTHY: (
        a_wave_that_left_nothing,
        a_host_was_out_of_sight_and_every_probe_knows_what_it_missed,
        abort_lines_on_both_sides_and_every_rank,
        a_health_endpoint_that_is_red_all_the_time,
        a_gauge_stale_since_before_the_run,
        a_gauge_that_lags_behind_but_comes_back,
        a_traceback_that_was_caught,
        canaries_that_fail_within_the_budget,
        our_own_lag_while_every_canary_passes,
        nothing_was_broken,
        two_cycles,
        a_node_without_metrics_or_log,
    ),
    Outcome.WEDGED: (
        nothing_completes_and_health_is_green,
        every_fresh_request_is_refused,
        every_other_request_is_lost,
        one_path_of_two_hangs,
        it_recovered_and_then_stopped_for_good,
        it_wedged_with_streams_still_running,
        it_wedged_and_nothing_but_canaries_was_looked_at,
        it_wedged_though_the_wave_missed_its_aim,
        it_wedged_under_load_alone,
        it_wedged_in_the_second_cycle,
        it_wedged_when_idle,
    ),
    Outcome.SLOW_RECOVERY: (it_healed_at_the_engines_timeout, one_canary_late_in_the_middle, every_answer_is_late),
    Outcome.OVERLOADED: (late_behind_work_that_progresses, late_behind_a_long_prefill_without_any_kill),
    Outcome.CRASHED: (a_process_died, a_child_died_under_a_living_parent),
    Outcome.RESTARTED: (a_process_was_replaced,),
    Outcome.LEAKING: (a_queue_keeps_what_it_did_not_hold,),
    Outcome.DAMAGED: (
        a_thread_died_and_everything_still_passes,
        a_thread_is_gone_and_no_line_says_so,
        an_unknown_traceback_ended_a_thread,
        a_process_died_and_everything_still_passes,
    ),
    Outcome.CORRUPTED: (an_answer_with_someone_elses_text, an_answer_without_what_the_baseline_always_had),
    Outcome.INCONCLUSIVE: (
        the_wave_hit_no_waiting_session,
        the_servers_saw_no_abort,
        the_wave_was_never_fired,
        the_wave_was_not_verified,
        the_second_cycle_never_came,
        nobody_could_tell_of_aborts,
        the_run_was_killed,
        the_run_was_stopped_by_a_person,
        the_target_never_served,
        the_hang_may_be_ours,
        the_reference_canary_failed_too,
        the_watch_ended_within_the_budget,
        too_few_passes_since_the_last_abort,
        the_last_canary_failed_and_was_the_only_one,
        a_log_lost_bytes,
        a_log_that_should_have_been_read_was_not,
        the_floors_could_not_be_read,
        no_metric_is_known_by_its_use,
        the_processes_were_never_looked_at,
        no_canary_was_ever_sent,
        the_canary_probe_was_blind_for_a_while,
        a_clock_jumped,
        nobody_watched_ourselves,
    ),
}
ROWS = [(outcome, situation) for outcome, situations in TABLE.items() for situation in situations]


@pytest.mark.parametrize(("outcome", "situation"), ROWS, ids=[row.__name__ for _, row in ROWS])
def test_each_situation_gets_its_outcome(outcome, situation):
    verdict = judge(situation())
    assert outcome == verdict.outcome, verdict.headline


def test_every_outcome_but_degraded_can_be_reached():
    assert set(Outcome) - {Outcome.DEGRADED} == set(TABLE)


@pytest.mark.parametrize(("outcome", "situation"), ROWS, ids=[row.__name__ for _, row in ROWS])
def test_the_headline_begins_with_the_outcome_and_every_finding_has_evidence(outcome, situation):
    verdict = judge(situation())
    assert verdict.headline.startswith(f"{outcome.upper()}: ")
    assert verdict.headline != f"{outcome.upper()}: see the findings"
    assert [] == [finding.id for finding in verdict.findings if not finding.evidence]


# ---------------------------------------------------------------------------------- how a wedge looks


def test_a_total_silent_wedge_names_side_cause_and_how_long():
    verdict = judge(nothing_completes_and_health_is_green())
    assert verdict.wedge is not None
    assert (True, True, True, "prefill", ("routed",)) == (
        verdict.wedge.total,
        verdict.wedge.silent,
        verdict.wedge.confirmed,
        verdict.wedge.side,
        verdict.wedge.paths,
    )
    assert verdict.headline == (
        "WEDGED: after wave 1 no fresh request has completed on routed for 60 s while /health stays 200"
    )
    assert ("example/engine#1", "2.0") == (verdict.causes[0].upstream, verdict.causes[0].fixed_in)
    assert (23, Answer.YES) == (verdict.waves[0].server_aborts, verdict.waves[0].landed)
    assert ExitCode.VIOLATION == verdict.exit_code


@pytest.mark.parametrize("reply", [HANG, REFUSED])
def test_a_path_that_is_dark_since_the_wave_is_confirmed_by_the_watch_from_the_wave_on(reply: Reply):
    told = waved(plan=plan(recover_within_s=12.5))  # no canary is sent at that very moment
    told.reply = reply
    verdict = judge(told.go(told.plan.watch_s + 1).finish(idle=False))
    assert (Outcome.WEDGED, True) == (verdict.outcome, verdict.wedge and verdict.wedge.confirmed)


def test_a_watch_cut_short_is_a_violation_that_says_it_is_not_confirmed():
    verdict = judge(wedging(waved(), 20).finish(idle=False))
    assert Outcome.WEDGED == verdict.outcome
    assert verdict.wedge is not None
    assert not verdict.wedge.confirmed
    assert any(reason.startswith("not confirmed") for reason in verdict.reasons)


def test_a_wedge_with_red_health_is_loud():
    verdict = judge(every_fresh_request_is_refused())
    assert verdict.wedge is not None
    assert not verdict.wedge.silent
    assert "does not answer" in verdict.headline


def test_where_health_was_never_asked_nobody_claims_silence():
    verdict = judge(it_wedged_and_nothing_but_canaries_was_looked_at())
    assert verdict.wedge is not None
    assert not verdict.wedge.silent
    assert "no health endpoint was asked, so nobody knows whether it was silent" in verdict.reasons


def test_a_wedge_on_one_path_of_two_is_partial_and_names_the_path():
    verdict = judge(one_path_of_two_hangs())
    assert verdict.wedge is not None
    assert (False, ("routed",)) == (verdict.wedge.total, verdict.wedge.paths)
    assert "other paths still serve" in verdict.headline
    assert (Answer.NO, Answer.YES) == tuple(path.serves for path in verdict.paths)


@pytest.mark.parametrize("back", [True, False])
def test_a_path_that_came_back_late_or_answers_late_serves_but_too_late(back):
    told = play().load().wave()
    told.reply = HANG if back else late(6.0)
    told.go(30)
    if back:
        told.reply = GOOD
    (path, *_) = judge(told.recovered().finish()).paths
    assert (Answer.YES, True) == (path.serves, path.tardy)
    (path, *_) = judge(play().load().wave().recovered().finish()).paths
    assert (Answer.YES, False) == (path.serves, path.tardy)


def test_a_lossy_path_is_a_partial_wedge():
    verdict = judge(every_other_request_is_lost())
    assert verdict.wedge is not None
    assert not verdict.wedge.total
    assert "in part" in verdict.headline


def test_the_one_red_role_is_the_wedged_side_where_no_line_blames_another():
    told = wedging(waved(deaf=frozenset({"liveness"})), 45)
    for node, status in (("prefill-0", 200), ("decode-0", 503)):
        told.tell(ev.Liveness(t_ns=0, node=node, endpoint="/health", status=status, took_ms=1.0))
    verdict = judge(told.finish())
    assert verdict.wedge is not None
    assert verdict.wedge.side == "decode"


# ---------------------------------------------------------------------------------- pairs that must be told apart


def test_the_same_abort_lines_with_and_without_a_wedge():
    assert Outcome.HEALTHY == judge(waved().recovered().finish()).outcome
    assert Outcome.WEDGED == judge(wedging(waved()).finish()).outcome


def test_the_same_first_minutes_of_a_wedge_for_good_and_of_one_that_heals():
    def until_then() -> Play:
        told = waved()
        told.reply = Reply(at=55.0, error="status")
        return told.go(20)

    cut = judge(until_then().finish(idle=False))
    assert (Outcome.WEDGED, False) == (cut.outcome, cut.wedge is not None and cut.wedge.confirmed)
    healed = until_then().go(20)
    healed.reply = GOOD
    assert Outcome.SLOW_RECOVERY == judge(healed.recovered().finish()).outcome


def test_a_cold_start_that_looks_like_a_wedge_is_an_unfit_target():
    cold = play(reply=HANG)
    verdict = judge(cold.finish(status="unfit", idle=False))
    assert (Outcome.INCONCLUSIVE, RunStatus.UNFIT, ExitCode.UNFIT) == (
        verdict.outcome,
        verdict.status,
        verdict.exit_code,
    )


def test_the_headline_of_an_unfit_target_says_what_is_wrong_with_it():
    *rest, ended = play(reply=HANG).finish(status="unfit", idle=False)
    reason = "router-0 does not answer; router-0: no metrics; decode-0 does not answer"
    verdict = judge([*rest, msgspec.structs.replace(ended, reason=reason)])
    first = "the target was unfit before anything was broken: router-0 does not answer (and 2 further objections)"
    assert (Outcome.INCONCLUSIVE, f"INCONCLUSIVE: {first}") == (verdict.outcome, verdict.headline)


def test_red_health_with_progress_and_red_health_of_a_dead_path():
    assert Outcome.OVERLOADED == judge(late_behind_work_that_progresses()).outcome
    assert Outcome.WEDGED == judge(wedging(waved(health=503)).finish()).outcome


def test_a_stale_gauge_and_a_leak():
    assert Outcome.HEALTHY == judge(a_gauge_stale_since_before_the_run()).outcome
    assert Outcome.LEAKING == judge(a_queue_keeps_what_it_did_not_hold()).outcome


def test_a_fault_of_the_router_and_one_of_the_transfer():
    def with_hanging(*paths: str) -> tuple[str, ...]:
        told = waved(paths=TWO_PATHS)
        told.replies.update(dict.fromkeys(paths, HANG))
        verdict = judge(told.go(45).finish())
        assert verdict.wedge is not None
        return verdict.wedge.paths

    assert with_hanging("routed") == ("routed",)
    assert with_hanging("routed", "prefill-0>decode-0") == ("routed", "prefill-0>decode-0")


# ---------------------------------------------------------------------------------- finer points


def test_sessions_that_streamed_stand_in_for_a_baseline_that_nobody_saw():
    def without_baseline(waiting: int) -> Outcome:
        told = play(deaf=frozenset({"canary"})).load().wave(waiting=waiting)
        told.deaf = frozenset()
        return judge(wedging(told).finish()).outcome

    assert (Outcome.WEDGED, Outcome.INCONCLUSIVE) == (without_baseline(38), without_baseline(60))


def test_a_cycle_that_was_not_begun_because_of_a_wedge_is_no_doubt_about_the_run():
    verdict = judge(wedging(play(plan=plan(cycles=2)).load().wave()).finish())
    assert [Answer.YES] == [finding.answer for finding in verdict.findings if finding.id == "faults-landed"]


def test_frozen_gauges_of_a_stuck_path_are_no_leak():
    told = waved()
    told.backlog["decode-0"] = 24.0
    verdict = judge(wedging(told).finish())
    assert [Answer.UNKNOWN] == [finding.answer for finding in verdict.findings if finding.id == "leaking"]


def test_a_survivor_that_fails_after_we_killed_and_restored_its_peer_is_wedged():
    told = waved(paths=TWO_PATHS[1:])
    told.tell(
        ev.FaultStep(t_ns=0, fault="wave", kind="signal", stage="applied", ok=True, nodes=("prefill-0",), ends=True)
    )
    told.die("prefill-0").go(3).restart("prefill-0")
    assert Outcome.WEDGED == judge(wedging(told).finish()).outcome


def test_a_path_whose_process_we_killed_and_nobody_restored_accuses_nobody():
    told = waved(paths=TWO_PATHS[1:])
    told.tell(
        ev.FaultStep(t_ns=0, fault="wave", kind="signal", stage="applied", ok=True, nodes=("prefill-0",), ends=True)
    )
    verdict = judge(wedging(told.die("prefill-0")).finish())
    assert Outcome.INCONCLUSIVE == verdict.outcome


def test_a_hang_of_many_deadlines_is_not_explained_by_a_little_lag():
    told = waved()
    told.reply = HANG
    told.lag_ms = 1500.0
    told.go(2)
    told.lag_ms = 2.0
    assert Outcome.WEDGED == judge(told.go(40).finish()).outcome


def test_server_aborts_are_told_apart_by_key_not_by_line():
    assert [23] == [wave.server_aborts for wave in judge(a_wave_that_left_nothing()).waves]


def test_what_we_hang_up_in_the_teardown_does_not_count_as_the_waves_aborts():
    told = wedging(play().load().wave(aborts=3)).phase("teardown").aborts(4)
    assert [3] == [wave.server_aborts for wave in judge(told.finish()).waves]


def test_without_logs_the_abort_counters_tell_and_a_counter_at_zero_is_zero():
    def seen(aborts: int) -> int | None:
        told = play(observes=("liveness", "metrics", "process")).load()
        told.wave(aborts=aborts).go(3)
        return judge(told.recovered().finish()).waves[0].server_aborts

    assert (7, 0) == (seen(7), seen(0))


def test_where_a_log_was_read_its_silence_outweighs_a_counter_that_counts_finished_streams():
    told = play().load().wave(aborts=0)
    told._aborted = 60.0
    assert [0] == [wave.server_aborts for wave in judge(told.recovered().finish()).waves]


def held_by_the_fault(holds_s: float) -> list[ev.AnyEvent]:
    """A queue keeps what the wave left in it; the engine's own timeout would free it within `holds_s`."""
    told = play(metrics=(msgspec.structs.replace(METRICS[0], holds_s=holds_s), *METRICS[1:])).load().wave()
    told.backlog["decode-0"] = 9.0
    return told.recovered().finish()


def test_what_an_engines_timeout_may_yet_free_is_no_leak_and_no_health_either():
    assert Outcome.LEAKING == judge(held_by_the_fault(0.0)).outcome
    assert Outcome.LEAKING == judge(held_by_the_fault(15.0)).outcome
    verdict = judge(held_by_the_fault(60.0))
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert "backlog of decode-0 is 9 at rest" in verdict.headline
    assert "the engine's own timeout may yet free it" in verdict.headline


def test_a_run_waits_for_what_may_yet_come_down_and_not_for_what_may_not():
    assert ["decode-0"] == unsettled_floors(Facts().feed_all(held_by_the_fault(60.0)))
    assert [] == unsettled_floors(Facts().feed_all(held_by_the_fault(0.0)))
    told = play(metrics=(msgspec.structs.replace(METRICS[0], holds_s=60.0), *METRICS[1:])).load().wave()
    facts = Facts().feed_all(told.recovered().finish())
    assert [] == unsettled_floors(facts)
    assert 60 * 10**9 == floors_settle_ns(facts) - windows(facts)[-1].anchor_ns


def test_a_router_that_logs_aborts_is_heard_when_the_servers_missed_some():
    told = play().load().wave(aborts=3)
    for request in range(5):
        told.hit("router-0", "client-gone", "abort", key=f"request-{request}", after=0.5)
    assert [5] == [wave.server_aborts for wave in judge(told.recovered().finish()).waves]


def test_a_router_that_only_counts_aborts_is_believed_where_the_servers_log_none():
    routers = (*METRICS[:2], msgspec.structs.replace(METRICS[2], roles=("router",)))
    told = play(metrics=routers).load().wave(aborts=0)
    told._aborted = 60.0
    assert [60] == [wave.server_aborts for wave in judge(told.recovered().finish()).waves]


def test_a_queue_that_is_still_being_worked_off_is_no_leak():
    told = waved()
    told.backlog["decode-0"], told.backlog_rate = 60.0, -1.0
    verdict = judge(told.recovered().finish())
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert "still falling" in verdict.headline


@pytest.mark.parametrize(
    ("steps_s", "stands_s", "outcome"),
    [(0, 1, Outcome.INCONCLUSIVE), (0, 9, Outcome.LEAKING), (12, 9, Outcome.INCONCLUSIVE)],
)
def test_a_queue_that_fell_is_worked_off_once_it_stands_for_longer_than_gauges_lag_and_than_before(
    steps_s, stands_s, outcome
):
    told = waved().recovered()
    told.backlog["decode-0"] = 6.0
    told.phase("teardown").go(1).phase("idle").quietly(6)
    told.backlog["decode-0"] = 5.0
    told.quietly(steps_s)
    told.backlog["decode-0"] = 4.0
    assert outcome == judge(told.quietly(stands_s).phase("last-canaries").go(6).finish(idle=False)).outcome


@dataclass(frozen=True)
class Idle:
    """A deployment whose servers count tokens while it is left idle."""

    rate: float = 100.0  # tokens a second
    before: float = 0.0  # as much, from the beginning on
    killed: bool = True
    alone: bool = True  # no user is left

    def outcome(self) -> Outcome:
        told = play(plan=PLAN if self.killed else plan(faults=()), token_rate=self.before).load()
        told = told.wave() if self.killed else told
        if not self.alone:
            told.tell(
                ev.RequestStarted(
                    t_ns=0, req="u", kind="load", path="routed", intended_ns=told.ns(told.now), group="agents"
                )
            )
        told.recovered().phase("teardown").go(1).phase("idle")
        told.token_rate = self.rate
        return judge(told.quietly(10).phase("last-canaries").go(6).finish(idle=False)).outcome


@pytest.mark.parametrize(
    ("idle", "outcome"),
    [
        pytest.param(Idle(), Outcome.LEAKING, id="for the dead"),
        pytest.param(Idle(rate=5.0), Outcome.HEALTHY, id="a late rest of them"),
        pytest.param(Idle(rate=100.0, before=80.0), Outcome.HEALTHY, id="for somebody else all the while"),
        pytest.param(Idle(killed=False), Outcome.HEALTHY, id="nobody left"),
        pytest.param(Idle(alone=False), Outcome.HEALTHY, id="for one who waits"),
    ],
)
def test_tokens_that_are_generated_while_nobody_waits_are_for_the_dead(idle, outcome):
    assert outcome == idle.outcome()


def test_our_own_hung_canaries_in_a_queue_are_no_leak():
    told = waved()
    told.reply = HANG
    told.go(2)
    told.reply = GOOD
    told.backlog["decode-0"] = 2.0
    verdict = judge(told.recovered().finish())
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert "which may be 2 open requests of our own" in verdict.headline


def test_a_journal_without_farewell_has_unknown_cleanup_and_is_a_harness_error():
    verdict = judge(the_run_was_killed())
    assert (RunStatus.HARNESS_ERROR, Cleanup.UNKNOWN, ExitCode.CLEANUP_INCOMPLETE) == (
        verdict.status,
        verdict.cleanup,
        verdict.exit_code,
    )


def test_a_wedge_in_a_journal_without_farewell_is_still_a_violation():
    told = waved()
    told.reply = HANG
    assert Outcome.WEDGED == judge(told.go(45).cut()).outcome


def test_what_was_not_examined_is_listed():
    hidden = ev.Path(id="prefill-0>decode-1", kind="direct", examined=False, reason="only routed requests are possible")
    verdict = judge(waved(paths=(TWO_PATHS[0], hidden), observes=("liveness", "log")).recovered().finish())
    assert "path prefill-0>decode-1: only routed requests are possible" in verdict.not_examined
    assert "prefill-0: its metrics, its process could not be looked at" in verdict.not_examined
    assert "the content of answers: not checked" in verdict.not_examined


def test_symptoms_that_explain_nothing_are_no_cause():
    assert () == judge(a_traceback_that_was_caught()).causes


def test_an_empty_journal_is_inconclusive():
    assert Outcome.INCONCLUSIVE == judge([]).outcome


def test_an_expected_wedge_exits_with_zero_and_its_absence_does_not():
    expecting = plan(allow=("wedged",))
    assert ExitCode.AS_EXPECTED == judge(wedging(waved(plan=expecting)).finish()).exit_code
    assert ExitCode.VIOLATION == judge(waved(plan=expecting).recovered().finish()).exit_code


def test_a_dirty_cleanup_shows_in_the_exit_code():
    assert ExitCode.CLEANUP_INCOMPLETE == judge(waved().recovered().finish(cleanup="dirty")).exit_code


def test_gauges_of_other_roles_are_not_missed():
    assert all(metric.roles == ("prefill", "decode") for metric in METRICS if metric.use == "queue")
    assert Outcome.HEALTHY == judge(waved().recovered().finish()).outcome


def test_a_health_check_that_got_no_answer_once_does_not_make_a_wedge_loud():
    def silent(*statuses: int | None) -> bool:
        told = wedging(waved(deaf=frozenset({"liveness"})), 20)
        for status in statuses:
            told.tell(ev.Liveness(t_ns=0, node="decode-0", endpoint="/health", status=status, took_ms=1.0)).go(3)
        verdict = judge(told.go(20).finish())
        assert verdict.wedge is not None
        return verdict.wedge.silent

    assert [True, False, False, False] == [
        silent(200, None, 200),
        silent(200, None, None, 200),
        silent(200, 503, 200),
        silent(200, 200, None),
    ]


@pytest.mark.parametrize(
    "undisturbed",
    [
        pytest.param(the_wave_was_never_fired, id="no wave came"),
        pytest.param(lambda: play(plan=plan(faults=())).load().recovered().finish(), id="none was planned"),
    ],
)
def test_where_nothing_was_broken_nothing_recovered(undisturbed):
    verdict = judge(undisturbed())
    assert [(None, "since load began")] == [(path.recovered_s, path.after) for path in verdict.paths]
    assert Answer.NOT_APPLICABLE == next(f.answer for f in verdict.findings if f.id == "recovered-in-time")
    told = [verdict.headline, *verdict.reasons, *(e.text for f in verdict.findings for e in f.evidence)]
    assert [] == [text for text in told if "recovered" in text or "passes again" in text]


def test_a_path_that_passed_late_with_nothing_broken_is_told_after_the_load_began():
    told = play().load()
    told.reply = HANG
    told.go(20).reply = GOOD
    (path,) = judge(told.wave(fired=False).recovered(12).finish()).paths
    assert path.note == "passed again only 25 s after load began (limit 12 s)"


def test_only_waves_that_struck_were_recovered_from():
    second = msgspec.structs.replace(PLAN.faults[0], cycles=(2,))
    told = play(plan=plan(cycles=2, faults=(second,))).load().recovered().load().wave().recovered()
    verdict = judge(told.finish())
    assert "HEALTHY: every path served again within 0.4 s after wave 2 and to the end" == verdict.headline
