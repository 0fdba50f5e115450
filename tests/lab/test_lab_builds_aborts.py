"""Builds with a bug in what becomes of requests whose clients have left, each shown from outside."""

from __future__ import annotations

import signal
import time

from lab_client import CHAT, GENERATE, eventually


def transfer_queue(lab) -> float:
    """The gauge, fresh: it is written at the 40th step of a request of ours."""
    assert (200, "length") == ((answer := lab.ask(CHAT, tokens=50)).status, answer.finish)
    return lab.metric(lab.decode, "num_decode_transfer_queue_reqs")


def test_aborted_rooms_hold_their_slots_and_the_floor_rises_with_each_wave(lab):
    leaking = lab("decode-slot-leak", slots=8, step_ms=2, time_scale=0.01)
    floors = [transfer_queue(leaking)]
    for _ in range(2):
        leaking.kill_waiting(3)
        floors.append(transfer_queue(leaking))
    assert [0, 3, 6] == floors
    leaking.kill_waiting(2)
    assert leaking.hangs()  # no slot is left
    time.sleep(leaking.running.target.timeouts["waiting"])  # which frees nothing
    assert leaking.hangs(room=5)
    assert not leaking.is_idle(leaking.decode)
    assert "Aborted by AbortReq" not in leaking.log("decode-0")


def test_aborted_rooms_keep_their_slots_until_the_waiting_timeout_frees_all(lab):
    storm = lab("abort-storm-300s", slots=3, time_scale=0.01)
    storm.kill_waiting(5)  # two of them in the prealloc queue
    assert storm.hangs()
    assert "Aborted by AbortReq" not in storm.log("decode-0")
    eventually(lambda: 5 <= storm.log("decode-0").count("s in KVPoll.WaitingForInput"), "the waiting timeout")
    eventually(lambda: storm.is_idle(storm.decode), "nothing is held any more")
    # a router that had given the stuck server up takes it back at its next health check
    eventually(lambda: storm.ask(CHAT).status == 200, "it serves again")


def test_a_stream_whose_client_left_is_generated_to_its_end(lab):
    zombie = lab("zombie-decode", step_ms=5)
    client = zombie.client(CHAT, "long", 400)
    eventually(lambda: client.has(b"data: "), "streaming")
    client.hang_up()
    eventually(lambda: 400 <= (zombie.metric(zombie.decode, "generation_tokens_total") or 0), "all its tokens")
    assert zombie.metric(zombie.decode, "num_aborted_requests_total") is None
    zombie.until_idle()
    healthy = lab("healthy", step_ms=5)
    client = healthy.client(CHAT, "long", 400)
    eventually(lambda: client.has(b"data: "), "streaming")
    client.hang_up()
    eventually(lambda: healthy.metric(healthy.decode, "num_aborted_requests_total"), "aborted")
    healthy.until_idle()
    assert healthy.metric(healthy.decode, "generation_tokens_total") < 400


def test_the_text_of_a_session_that_was_killed_appears_in_somebody_elses_answer(lab):
    wrong = lab("wrong-tokens-after-abort", step_ms=5)
    assert "[[secret:mine]]" in wrong.ask(CHAT, "[[secret:mine]] says hello").text
    victim = wrong.client(CHAT, "[[secret:mine]] says hello", 3000)
    eventually(lambda: victim.has(b"[[secret:mine]]"), "streaming")
    wrong.kill_waiting(1, "[[secret:theirs]] says hello", streaming=1)
    eventually(lambda: victim.has(b"[[secret:theirs]]"), "somebody else's secret")


def test_kv_that_leaks_in_an_abort_ends_the_server_once_it_is_idle(lab):
    fatal = lab("idle-self-kill", prefill_tps=400)
    process = fatal.running.nodes[1].process
    client = fatal.client(GENERATE, "word " * 200, 5, stream=False)
    eventually(lambda: "#new-token: 200" in fatal.log("prefill-0"), "its forward pass has begun")
    client.hang_up()
    assert -signal.SIGKILL == process.wait(20)
    log = fatal.log("prefill-0")
    assert "] Scheduler hit an exception: Traceback (most recent call last):" in log
    leak = "ValueError: pool memory leak detected! available_size=65336, evictable_size=0, protected_size=0, "
    assert f"{leak}max_total_num_tokens=65536" in log
    assert log.index("Prefill bootstrap failed" if "Prefill bootstrap failed" in log else "Aborted by") < log.index(
        leak
    )
