"""Builds that do not get over a peer that died, froze or came back, each shown from outside."""

from __future__ import annotations

import os
import signal
import time

import pytest
from lab_client import CHAT, GENERATE, eventually


def test_a_prefill_that_dies_blocks_decode_for_good_also_after_its_return(lab):
    blocked = lab("decode-blocked-by-dead-prefill", time_scale=0.2)
    assert 200 == blocked.ask(CHAT).status
    blocked.running.nodes[1].process.kill()
    blocked.running.nodes[1].process.wait()
    for room in range(10, 20):  # until decode's socket has noticed; the heartbeat takes 2 s
        blocked.client(GENERATE, "its last request", 2, stream=False, url=blocked.decode, **blocked.pair(room))
        time.sleep(0.05)
    assert 503 == blocked.http.get(f"{blocked.decode}/health").status_code
    blocked.running.restart("prefill-0")
    assert blocked.hangs(room=6)
    assert 503 == blocked.http.get(f"{blocked.decode}/health").status_code
    assert "Lost connection with prefill instance" not in blocked.log("decode-0")
    assert blocked.running.nodes[2].process.poll() is None


def test_what_decode_knows_of_a_prefill_outlives_it(lab):
    stale = lab("stale-peer")
    assert 200 == stale.ask(CHAT).status
    stale.running.restart("prefill-0")
    eventually(lambda: "Lost connection with prefill instance" in stale.log("decode-0"), "decode noticed")
    assert "Attempting to reconnect" not in stale.log("decode-0")
    assert [True, True] == [stale.hangs(room=room) for room in (4, 6)]
    for url in (stale.prefill, stale.decode):
        assert 200 == stale.http.get(f"{url}/health").status_code


def test_a_worker_that_failed_is_never_used_again_though_it_came_back(lab):
    pair = lab("cannot-rejoin", decode=2)
    second = pair.running.target.decode[1].url
    pair.running.nodes[3].process.kill()
    pair.running.nodes[3].process.wait()
    unhealthy = f"Worker {second} is unhealthy"
    eventually(lambda: pair.client(CHAT, "x", 2) and unhealthy in pair.log("router"), "the router gave it up")
    pair.running.restart("decode-1")
    assert 200 == pair.http.get(f"{second}/health").status_code
    checks = ("smg_worker_health_checks_total", frozenset({("worker_type", "decode"), ("result", "success")}))
    was = pair.samples(pair.router_metrics)[checks]
    eventually(lambda: pair.samples(pair.router_metrics)[checks] >= was + 2, "the router looked at its workers again")
    assert [200] * 6 == [pair.ask(CHAT).status for _ in range(6)]
    assert pair.metric(second, "http_requests_total", endpoint=CHAT) is None


@pytest.mark.parametrize("node", [1, 2])
def test_a_worker_frozen_for_longer_than_its_lease_never_schedules_again(lab, node):
    frozen = lab("frozen-worker")
    process = frozen.running.nodes[node].process
    assert 200 == frozen.ask(CHAT).status
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(0.4)  # the lease is 0.2 s
    os.kill(process.pid, signal.SIGCONT)
    assert frozen.hangs(room=4)
    assert frozen.hangs(room=6)
    assert process.poll() is None
    url = (frozen.prefill, frozen.decode)[node - 1]
    assert 503 == frozen.http.get(f"{url}/health").status_code


def test_a_short_freeze_is_survived(lab):
    frozen = lab("frozen-worker", time_scale=1)
    for node in frozen.running.nodes[1:]:
        os.kill(node.process.pid, signal.SIGSTOP)
        os.kill(node.process.pid, signal.SIGCONT)
    assert 200 == frozen.ask(CHAT).status


def test_the_first_request_for_kv_of_a_new_prefill_ends_decode_by_a_segmentation_fault(lab):
    torn = lab("segfault-at-new-prefill")
    decode = torn.running.nodes[2].process
    assert 200 == torn.ask(CHAT).status
    torn.running.restart("prefill-0")
    eventually(lambda: "Lost connection with prefill instance" in torn.log("decode-0"), "decode noticed")
    assert decode.poll() is None
    torn.client(GENERATE, "the first request", 2, stream=False, url=torn.decode, **torn.pair(4))
    assert -signal.SIGKILL == decode.wait(30)
    assert "Fatal Python error: Segmentation fault" in torn.log("decode-0")
    assert "crashed with exit code -11. Triggering SIGQUIT" in torn.log("decode-0")


def test_a_prefill_that_was_only_away_has_the_endpoint_that_is_known(lab):
    torn = lab("segfault-at-new-prefill")
    prefill = torn.running.nodes[1].process
    assert 200 == torn.ask(CHAT).status
    os.kill(prefill.pid, signal.SIGSTOP)
    eventually(lambda: "Lost connection with prefill instance" in torn.log("decode-0"), "decode noticed")
    os.kill(prefill.pid, signal.SIGCONT)
    eventually(lambda: 200 == torn.ask_pair(4).status, "served")
    assert "Attempting to reconnect" in torn.log("decode-0")
