"""Builds in which a rank or its process is lost, each shown from outside."""

from __future__ import annotations

import signal

import psutil
from lab_client import CHAT, eventually

WAVE = 10


def test_a_scheduler_dies_in_a_storm_while_its_parent_says_that_all_is_well(lab):
    dead = lab("scheduler-dead-parent-alive")
    parent = psutil.Process(dead.running.pids[2])
    (child,) = parent.children()
    dead.kill_waiting(WAVE)
    eventually(lambda: child.status() == psutil.STATUS_ZOMBIE, "its scheduler is dead")
    assert "terminate called after throwing an instance of 'c10::DistBackendError'" in dead.log("decode-0")
    assert dead.hangs()
    assert 200 == dead.http.get(f"{dead.decode}/health").status_code
    assert dead.metric(dead.decode, "num_decode_transfer_queue_reqs") is not None
    assert parent.is_running()
    assert "SIGQUIT" not in dead.log("decode-0")


def test_one_data_parallel_rank_no_longer_answers_and_its_share_of_the_requests_hangs(lab):
    half = lab("one-rank-dead", dp=2)
    assert (200, 200) == (half.ask_pair(2).status, half.ask_pair(3).status)
    half.kill_waiting(WAVE)
    eventually(lambda: "Foreign traffic?" in half.log("prefill-0"), "a control thread ended")
    assert [True, True] == [half.hangs(room=room) for room in (5, 7)]
    assert [200, 200] == [half.ask_pair(room).status for room in (4, 6)]
    assert 200 == half.http.get(f"{half.prefill}/health").status_code
    assert 1 == half.log("prefill-0").count("Exception in thread")


def test_with_one_rank_that_build_has_no_bug(lab):
    well = lab("one-rank-dead")
    well.kill_waiting(2)
    assert 200 == well.ask(CHAT).status


def test_ranks_that_part_in_a_storm_wait_for_each_other_until_the_watchdog_ends_them(lab):
    parted = lab("rank-desync", tp=2, time_scale=0.01)
    process = parted.running.nodes[2].process
    parted.kill_waiting(WAVE)
    assert parted.hangs()
    assert process.poll() is None
    assert 503 == parted.http.get(f"{parted.decode}/health").status_code
    assert -signal.SIGKILL == process.wait(30)
    for rank in ("TP0", "TP1"):
        line = f" {rank}] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"
        assert line in parted.log("decode-0")
