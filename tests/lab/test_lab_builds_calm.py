"""Healthy builds that look sick: what they show, and that they serve."""

from __future__ import annotations

import time

from lab_client import CHAT, GENERATE, eventually

WAVE = 8


def test_health_says_503_behind_a_long_prompt_and_the_prompt_is_answered(lab):
    slow = lab("slow-prefill")
    client = slow.client(CHAT, "word " * 4000, 3)
    eventually(lambda: "#new-token: 4002" in slow.log("prefill-0"), "its forward pass has begun")
    assert 503 == slow.http.get(f"{slow.prefill}/health").status_code
    assert "Health check failed. Server couldn't get a response from detokenizer" in slow.log("prefill-0")
    eventually(lambda: client.has(b"[DONE]"), "answered")
    assert 200 == slow.http.get(f"{slow.prefill}/health").status_code
    slow.until_idle()


def test_the_first_prompt_of_a_length_waits_for_its_kernels_and_the_second_does_not(lab):
    cold = lab("cold-start", time_scale=0.05)
    compiles = "Entering DeepGEMM JIT Pre-Compile session"
    before, began = cold.log("prefill-0").count(compiles), time.monotonic()
    assert 200 == cold.ask(GENERATE, "word " * 300, tokens=1).status
    assert time.monotonic() - began >= 34 * 0.05
    assert before + 1 == cold.log("prefill-0").count(compiles)
    assert 200 == cold.ask(GENERATE, "word " * 300, tokens=1).status
    assert before + 1 == cold.log("prefill-0").count(compiles)


def test_an_idle_servers_inflight_gauge_shows_one(lab):
    stale = lab("stale-gauge")
    assert 1 == stale.metric(stale.prefill, "num_prefill_inflight_queue_reqs")
    assert 200 == stale.ask(CHAT).status
    stale.until_idle()
    assert 1 == stale.metric(stale.prefill, "num_prefill_inflight_queue_reqs")


def test_aborted_rooms_are_released_late_and_then_they_are(lab):
    late = lab("late-drain", slots=3, time_scale=0.05)
    began = time.monotonic()
    late.kill_waiting(3)
    eventually(lambda: late.is_idle(late.decode), "drained")
    assert time.monotonic() - began >= 30 * 0.05
    assert 3 == late.log("decode-0").count("without a full drain ack from prefill; releasing anyway.")
    assert 200 == late.ask(CHAT).status


def test_a_log_full_of_aborts_and_tracebacks_of_a_server_that_serves(lab):
    noisy = lab("noisy-log")
    noisy.kill_waiting(WAVE)
    noisy.until_idle()
    for name in ("prefill-0", "decode-0"):
        assert noisy.log(name).count("ERROR:    Exception in ASGI application") >= WAVE
    assert "Unexpected transfer worker error for room" in noisy.log("prefill-0")
    assert noisy.ask(CHAT, stream=True).done
    line = "not found in rid_to_state; likely already finished/removed."
    eventually(lambda: line in noisy.log("decode-0"), "the late abort of a stream that had ended")


def test_an_idle_prefill_holds_what_it_computed_last_until_somebody_comes(lab):
    lazy = lab("freed-by-next-batch", kv_tokens=512)
    for words in (300, 400, 350):  # two of them never fit at once: nobody waits for what is yet to be freed
        assert 200 == lazy.ask(GENERATE, "word " * words).status
        eventually(lambda words=words: words == used(lazy), "it is still held")
    assert 200 == lazy.http.get(f"{lazy.prefill}/health").status_code
    assert not lazy.is_idle(lazy.prefill)
    assert "some blocks (350) are not freed yet" in lazy.log("prefill-0")
    eventually(lambda: 0 == lazy.metric(lazy.prefill, "num_running_reqs"), "written on idle")
    assert 350 == used(lazy)
    assert lazy.running.nodes[1].process.poll() is None
    assert 200 == lazy.ask(GENERATE, "hello").status
    eventually(lambda: 1 == used(lazy), "freed")


def used(lab) -> float | None:
    return lab.metric(lab.prefill, "num_used_tokens")


def in_flight(lab) -> list[float]:
    """What the router counts for each of its workers."""
    name = "smg_worker_requests_active"
    return [value for (sample, _), value in lab.samples(lab.router_metrics).items() if sample == name]


def test_requests_whose_clients_left_stay_in_the_routers_count_and_in_nothing_else(lab):
    drifts = lab("load-count-drifts")
    for wave in (1, 2):
        drifts.kill_waiting(5)
        drifts.until_idle()
        assert 200 == drifts.ask(CHAT).status
        assert [5 * wave] * 2 == in_flight(drifts)
    listed = drifts.http.get(f"{drifts.router}/workers").json()["workers"]
    assert [10, 10] == [worker["load"] for worker in listed]
