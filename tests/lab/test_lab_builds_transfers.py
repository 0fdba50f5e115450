"""Builds with a bug in how KV gets from prefill to decode, each shown from outside."""

from __future__ import annotations

import os
import signal
import time

from lab_client import CHAT, GENERATE, eventually

from chaos.lab.sim.builds.transfers import ANEW_TIMES, RING_TOKENS

LONG = "word " * 30
SHORT = "word"
WAVE = 10


def in_transfer(lab, transfers: int) -> None:
    """Start requests and wait until each one's KV is on its way: the transfer takes a while, decode has asked."""
    for n in range(transfers):
        lab.client(CHAT, f"{LONG} {n}", 4)
    eventually(lambda: lab.log("prefill-0").count("Prefill batch, #new-seq") > transfers / 4, "computed")
    eventually(lambda: inflight(lab) >= transfers, "all on their way")


def inflight(lab) -> float:
    """The gauge, which the health check's own batch writes."""
    lab.http.get(f"{lab.prefill}/health")
    return lab.metric(lab.prefill, "num_prefill_inflight_queue_reqs") or 0


def test_one_transfer_that_took_too_long_and_prefill_sends_nothing_to_that_decode_any_more(lab):
    pair = lab("session-blacklist", transfer_ms=500, time_scale=0.05)
    assert 200 == pair.ask_pair(3).status
    decode = pair.running.nodes[2].process
    in_transfer(pair, 2)
    os.kill(decode.pid, signal.SIGSTOP)
    eventually(lambda: "failed." in pair.log("prefill-0"), "the transfer ran out of time")
    os.kill(decode.pid, signal.SIGCONT)
    eventually(lambda: 200 == pair.http.get(f"{pair.decode}/health").status_code, "decode goes on")
    answer = pair.ask_pair(5)
    assert (500, True) == (answer.status, "it might be dead" in str(answer.events))
    refused = "Decode instance could be dead, remote mooncake session 127.0.0.1:"
    eventually(lambda: refused in pair.log("prefill-0"), "prefill says why, after decode was told")
    pair.until_idle()
    pair.running.restart("decode-0")  # another session
    eventually(lambda: 200 == pair.ask_pair(7).status, "served again")


def test_a_freeze_shorter_than_the_transfer_timeout_marks_nothing(lab):
    pair = lab("session-blacklist", transfer_ms=500, time_scale=0.2)
    in_transfer(pair, 2)
    decode = pair.running.nodes[2].process
    os.kill(decode.pid, signal.SIGSTOP)
    os.kill(decode.pid, signal.SIGCONT)
    assert 200 == pair.ask_pair(5).status
    assert "failed." not in pair.log("prefill-0")


def test_kv_of_rooms_whose_decode_died_in_mid_transfer_is_held_for_good_and_others_are_served(lab):
    held = lab("stranded-prefill-kv", transfer_ms=500)
    in_transfer(held, 3)
    held.running.nodes[2].process.kill()
    held.running.nodes[2].process.wait()
    held.running.restart("decode-0")
    eventually(lambda: 200 == held.ask_pair(5).status, "served by the new one")
    held.http.post(f"{held.prefill}/abort_request", json={"abort_all": True})  # which does not help
    assert 200 == held.ask_pair(7).status
    assert 3 == inflight(held)
    assert not held.is_idle(held.prefill)


def test_a_prompt_shorter_than_a_block_holds_its_slot_also_when_its_client_has_left(lab):
    stuck = lab("short-prompt-stuck", slots=3, step_ms=2)
    assert 200 == stuck.ask_pair(1, LONG, tokens=50).status
    for held in (1, 2):
        client = stuck.client(GENERATE, SHORT, 2, stream=False)
        eventually(lambda held=held: held == transfers(stuck), "it waits for its KV")
        client.hang_up()
        eventually(lambda held=held: (stuck.metric(stuck.decode, "num_aborted_requests_total") or 0) >= held, "noticed")
        assert held == transfers(stuck)
    assert "Prefill transfer failed" not in stuck.log("prefill-0")
    assert stuck.is_idle(stuck.prefill)
    stuck.client(GENERATE, SHORT, 2, stream=False)
    eventually(lambda: stuck.active(stuck.decode), "the third one is there")
    assert stuck.hangs()


def transfers(lab) -> float:
    """The gauge, fresh: it is written at the 40th step of a request of ours."""
    assert 200 == lab.ask(CHAT, LONG, tokens=50).status
    return lab.metric(lab.decode, "num_decode_transfer_queue_reqs") or 0


def test_after_one_abort_decode_serves_on_until_its_staging_ring_is_used_up(lab):
    pinned = lab("staging-ring-pinned", step_ms=2, time_scale=0.1)
    for _ in range(5):  # more than the ring holds: what was received is given back
        assert 200 == pinned.ask(CHAT, "word " * 600).status
    pinned.kill_waiting(1, "word " * 600 + "{n}")
    assert pinned.is_idle(pinned.decode)
    for _ in range(2):
        assert 200 == pinned.ask(CHAT, "word " * 600).status
    assert not pinned.hangs(room=5)  # short ones still find room
    client = pinned.client(CHAT, "word " * 600, 2)
    assert not client.bytes_within(0.7)
    assert 200 == pinned.http.get(f"{pinned.decode}/health").status_code
    assert pinned.hangs(room=7)  # and none passes one that waits
    client.hang_up()
    eventually(lambda: 2 <= (pinned.metric(pinned.decode, "num_aborted_requests_total") or 0), "decode noticed")
    assert 200 == pinned.ask(GENERATE, "word " * (RING_TOKENS + 1)).status  # without the ring


def test_after_an_abort_storm_every_prompt_is_computed_by_decode_which_takes_longer_and_says_nothing(lab):
    slow = lab("recomputes-silently", step_ms=2, time_scale=0.1)
    prompt, least_s = "word " * 600, ANEW_TIMES * 600 / 20_000

    def took_s() -> float:
        began = time.monotonic()
        assert 200 == slow.ask(CHAT, prompt).status
        return time.monotonic() - began

    slow.kill_waiting(2)  # no storm
    eventually(lambda: took_s() < least_s, "as fast as ever")
    slow.kill_waiting(WAVE)
    assert min(took_s() for _ in range(3)) >= least_s
    assert slow.is_idle(slow.decode)
    assert not [line for line in slow.log("decode-0").splitlines() if "recompute" in line.lower()]
