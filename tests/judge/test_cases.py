"""Incidents that were reported in public, told as journals: what a judge saw of them and must not be fooled by.

The facts are those of the public reports named in each test; the clocks are the short ones of the builder.
"""

from __future__ import annotations

from build import GOOD, HANG, Play, Reply, late, plan, play, waved

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome


def test_an_abort_frame_that_kills_the_bootstrap_thread_is_a_silent_total_wedge_of_the_prefill_side():
    # sgl-project/sglang#30352. Health goes on being answered by batches of its own, gauges freeze at the last batch,
    # a stale 1 was there before, and a failing assertion of a worker that survives stands beside the fatal one.
    told = play(backlog={"prefill-0": 1.0, "decode-0": 24.0}, token_rate=1.0).load().wave(waiting=38, aborts=2)
    told.fatal("prefill-0").hit("prefill-0", "worker-error", "symptom", after=1.0)
    told.reply = HANG
    told.go(45).hit("decode-0", "transfer-timed-out", "timeout")
    verdict = judge(told.go(5).finish())
    assert Outcome.WEDGED == verdict.outcome
    assert verdict.wedge is not None
    assert (True, True, True, "prefill") == (
        verdict.wedge.total,
        verdict.wedge.silent,
        verdict.wedge.confirmed,
        verdict.wedge.side,
    )
    assert ["control-thread-died", "worker-error", "transfer-timed-out"] == [
        cause.signature for cause in verdict.causes
    ]
    assert 2 == verdict.waves[0].server_aborts


def test_dozens_of_abort_lines_with_everything_back_are_health():
    # sgl-project/sglang#9266: one line per request, rank and side; 6 requests make 24 lines and count as 6.
    told = play().load().wave(aborts=6).hit("decode-0", "already-in-transfer", "benign", after=1.0)
    told.reply = late(1.4)
    verdict = judge(told.recovered().finish())
    assert Outcome.HEALTHY == verdict.outcome
    assert (6, Answer.YES, ()) == (verdict.waves[0].server_aborts, verdict.waves[0].landed, verdict.causes)


def test_slots_lost_with_every_wave_are_a_leak_though_every_answer_comes():
    # sgl-project/sglang#31800: the floor of the transfer queue rises per wave, nothing is logged, all answers are 200.
    told = play(plan=plan(cycles=3))
    for lost in (2.0, 9.0, 19.0):
        told.load().wave(aborts=1)
        told.backlog["decode-0"] = lost
        told.recovered()
    verdict = judge(told.finish())
    assert Outcome.LEAKING == verdict.outcome
    assert verdict.headline == "LEAKING: backlog of decode-0 is 19 at rest, was 0 before the load"


def test_a_decode_that_does_not_survive_the_prefill_we_killed_is_wedged_not_crashed():
    # sgl-project/sglang#31144: the prefill is back and healthy, the decode is alive, red, and moves no token.
    told = waved()
    told.tell(
        ev.FaultStep(t_ns=0, fault="wave", kind="signal", stage="applied", ok=True, nodes=("prefill-0",), ends=True)
    )
    told.die("prefill-0").go(4).restart("prefill-0")
    told.reply, told.deaf = HANG, frozenset({"liveness"})
    told.go(45)
    for node, status in (("prefill-0", 200), ("decode-0", 503)):
        told.tell(ev.Liveness(t_ns=0, node=node, endpoint="/health", status=status, took_ms=1.0))
    verdict = judge(told.finish())
    assert Outcome.WEDGED == verdict.outcome
    assert verdict.wedge is not None
    assert (True, False, "decode") == (verdict.wedge.total, verdict.wedge.silent, verdict.wedge.side)


def test_a_long_prefill_with_red_health_is_overload():
    # sgl-project/sglang#22511: 503 and the health line of a hang, but prompt tokens rise and the probe gets through.
    told = play(plan=plan(faults=()), health=503)
    told.backlog["prefill-0"], told.backlog_rate, told.token_rate = 38.0, -1.0, 3500.0
    told.reply = Reply(at=47.0)
    told.load(37).reply, told.token_rate, told.health = GOOD, 0.0, 200
    verdict = judge(told.go(8).finish())
    assert Outcome.OVERLOADED == verdict.outcome


def test_a_dead_scheduler_under_a_living_parent_is_a_crash_however_green_it_looks():
    # sgl-project/sglang#18421: children defunct, the parent, /health and /metrics fine, gauges of a dead process.
    told = waved(deaf=frozenset({"process"}), backlog={"prefill-0": 5.0})
    told.reply = HANG
    told.go(45)
    children = tuple(ev.Child(pid=40 + rank, name=f"scheduler_TP{rank}", alive=False) for rank in range(8))
    for node, theirs in (("router-0", ()), ("prefill-0", children), ("decode-0", ())):
        told.tell(ev.ProcessSeen(t_ns=0, node=node, pid=4100, alive=True, state="sleeping", children=theirs))
    verdict = judge(told.finish())
    assert Outcome.CRASHED == verdict.outcome
    dead = (
        "8 children of prefill-0 are dead while their parent 4100 lives: "
        "scheduler_TP0 (pid 40), scheduler_TP1 (pid 41), scheduler_TP2 (pid 42) and 5 more; we did not do it"
    )
    assert verdict.headline.startswith(f"CRASHED: {dead}")
    assert [dead] == [reason for reason in verdict.reasons if "dead while" in reason]  # as one, and once
    assert verdict.wedge is None


def test_a_server_that_ends_itself_when_it_falls_idle_is_a_crash_though_only_the_last_canary_can_tell():
    # sgl-project/sglang#36926: under load all is well; a check that runs only when idle finds what an abort lost.
    def ended(*, dead_s: float, reply: Reply, then_s: float = 5.0) -> Outcome:
        told = waved().recovered().phase("teardown").go(1.0).phase("idle").quietly(told_idle - dead_s)
        told.die("prefill-0").quietly(dead_s).phase("last-canaries")
        told.reply = reply
        told.interval = 100.0
        return judge(told.go(then_s).finish(idle=False)).outcome

    told_idle = 20.0
    refused = Reply(after=0.1, error="status")
    assert Outcome.CRASHED == ended(dead_s=12.0, reply=refused)
    assert Outcome.DAMAGED == ended(dead_s=12.0, reply=GOOD)
    assert Outcome.DAMAGED == ended(dead_s=0.5, reply=refused, then_s=1.0)  # down for a moment only, as far as is seen


def test_an_abort_storm_that_frees_itself_at_the_engines_timeout_is_slow_recovery():
    # sgl-project/sglang#28651: the same first minutes as a wedge; only the timeout tells the difference.
    def storm(seconds: float) -> Play:
        told = play().load().wave(waiting=60, aborts=6)
        told.reply = Reply(at=52.0, error="status")
        return told.go(seconds)

    undecided = judge(storm(16).finish(idle=False))
    assert (Outcome.WEDGED, False) == (undecided.outcome, undecided.wedge is not None and undecided.wedge.confirmed)
    told = storm(37)
    told.reply = GOOD
    verdict = judge(told.recovered().finish())
    assert Outcome.SLOW_RECOVERY == verdict.outcome
    assert verdict.paths[0].recovered_s is not None
    assert 37.0 <= verdict.paths[0].recovered_s <= 38.0


def test_a_load_that_never_waited_tested_nothing():
    # ai-dynamo/dynamo#4547 and others: every session was already decoding, so no abort could be sent.
    verdict = judge(play().load().wave(waiting=0, aborts=0).recovered().finish())
    assert Outcome.INCONCLUSIVE == verdict.outcome
    assert Answer.NO == verdict.waves[0].landed
    assert ("waiting >= 20: was 0", "server_aborts >= 1: was 0") == verdict.waves[0].unmet
