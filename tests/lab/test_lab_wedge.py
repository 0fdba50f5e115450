"""The incident: clients that leave before their first token end a vulnerable prefill's control thread, silently."""

from __future__ import annotations

import re
import time

import zmq
from lab_client import CHAT, FATAL, GENERATE, eventually

GUARD_MESSAGE = "AssertionError: First message should be b'NixlMsgGuard'. Foreign traffic?"
DECODE_FAILED = re.compile(r"Decode (?:transfer|handshake) failed .*: Aborted by AbortReq\.$", re.MULTILINE)
PREFILL_FAILED = re.compile(
    r"Prefill (?:transfer|bootstrap) failed .*: Aborted by (?:AbortReq|decode-side abort notification)\.$", re.MULTILINE
)
WAITING = 6


def given_up(lab) -> tuple[int, int]:
    """Rooms that decode and prefill have logged as failed."""
    return len(DECODE_FAILED.findall(lab.log("decode-0"))), len(PREFILL_FAILED.findall(lab.log("prefill-0")))


def kill_waiting_clients(lab) -> None:
    """Hang up on clients none of which has had a token."""
    decode, prefill = given_up(lab)
    with lab.transfer_held():
        clients = lab.clients(WAITING)
        eventually(lambda: WAITING == lab.active(lab.decode) == lab.active(lab.prefill), "all wait for a first token")
        assert [b""] * WAITING == [client.bytes_within(0.01) for client in clients]
        for client in clients:
            client.hang_up()
        eventually(lambda: (decode + WAITING, prefill + WAITING) == given_up(lab), "both sides gave all of them up")


def push(lab, frames: list[bytes]) -> None:
    """Send frames to the prefill's control socket, found as decode finds it."""
    rank = "prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=0&target_pp_rank=0"
    where = lab.http.get(f"http://127.0.0.1:{lab.bootstrap_port}/route?{rank}").json()
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.setsockopt(zmq.LINGER, 5000)
        socket.connect(f"tcp://{where['rank_ip']}:{where['rank_port']}")
        socket.send_multipart(frames)


def test_one_wave_on_waiting_clients_wedges_a_vulnerable_lab_without_a_sign(lab):
    wedged = lab("nixl-abort-unhandled")
    assert 200 == wedged.ask(CHAT).status
    kill_waiting_clients(wedged)

    log = eventually(lambda: GUARD_MESSAGE in wedged.log("prefill-0") and wedged.log("prefill-0"), "the thread's end")
    death = FATAL.search(log)
    assert death is not None
    trace = log[death.start() : log.index(GUARD_MESSAGE)]
    assert "Traceback (most recent call last):" in trace
    # undated, as threading's own hook prints it: only other threads' lines among it carry a date
    assert [] == [line for line in trace.splitlines() if line.startswith("[20") and "File" in line]
    assert 1 == len(FATAL.findall(log))

    fresh = wedged.client(GENERATE, "are you there", 2, stream=False)
    eventually(lambda: wedged.active(wedged.prefill) >= 1, "the fresh request reached prefill")
    for url in (wedged.prefill, wedged.decode, wedged.router):
        assert 200 == wedged.http.get(f"{url}/health").status_code
        if url != wedged.router:
            assert 200 == wedged.http.get(f"{url}/health_generate").status_code
    assert 200 == wedged.http.get(f"{wedged.router}/readiness").status_code
    assert b"" == fresh.bytes_within(0.5)
    assert 0 == sum(process.process.poll() is not None for process in wedged.running.nodes)


def test_in_the_wedge_decodes_gauges_stay_at_their_last_value_while_live_ones_do_not(lab):
    wedged = lab("nixl-abort-unhandled", step_ms=5)
    wedged.client(CHAT, "runs for a while", 300)
    eventually(lambda: 1 == wedged.metric(wedged.decode, "num_running_reqs"), "a gauge written at a 40th step")
    push(wedged, [b"ABORT", b"1", b"127.0.0.1", b"1"])
    eventually(lambda: GUARD_MESSAGE in wedged.log("prefill-0"), "the thread's end")
    wedged.client(GENERATE, "stuck", 2, stream=False)
    eventually(
        lambda: (wedged.metric(wedged.decode, "generation_tokens_total") or 0) >= 300, "the running one finished"
    )
    before = wedged.metric(wedged.decode, "num_running_reqs")
    # longer than the lag after which an idle engine would have written them
    time.sleep(wedged.running.target.gauge_lag)
    assert 1 == before == wedged.metric(wedged.decode, "num_running_reqs")
    assert 1 == wedged.http.get(f"{wedged.decode}/v1/loads").json()["loads"][0]["num_running_reqs"]
    assert 1 == wedged.active(wedged.decode)
    assert 400 == wedged.http.post(f"{wedged.decode}/flush_cache").status_code


def test_the_same_wave_does_a_healthy_lab_no_harm(calm):
    kill_waiting_clients(calm)
    assert (200, "length") == ((answer := calm.ask(CHAT)).status, answer.finish)
    assert "Traceback" not in calm.log("prefill-0")
    calm.until_idle()


def test_prefill_in_a_healthy_lab_is_told_by_decode(calm):
    pair = {"bootstrap_host": "127.0.0.1", "bootstrap_port": calm.bootstrap_port, "bootstrap_room": 5}
    with calm.transfer_held():
        calm.client(GENERATE, "x", 2, stream=False, url=calm.prefill, **pair)
        decode = calm.client(GENERATE, "x", 2, stream=False, url=calm.decode, **pair)
        eventually(lambda: calm.active(calm.decode) and calm.active(calm.prefill), "both sides have it")
        decode.hang_up()
        told = "KVTransferError(bootstrap_room=5): Aborted by decode-side abort notification."
        eventually(lambda: told in calm.log("prefill-0"), "decode's notice failed the room on prefill")
    calm.until_idle()


def test_killing_clients_that_are_being_streamed_to_sends_no_abort_frame(lab):
    vulnerable = lab("nixl-abort-unhandled", step_ms=5)
    clients = vulnerable.clients(WAITING, tokens=5000)
    for client in clients:
        eventually(lambda client=client: client.has(b"data: "), "streaming")
    for client in clients:
        client.hang_up()
    vulnerable.until_idle()
    assert WAITING == vulnerable.metric(vulnerable.decode, "num_aborted_requests_total")
    assert 200 == vulnerable.ask(CHAT).status
    assert "Traceback" not in vulnerable.log("prefill-0")
    assert "AbortReq" not in vulnerable.log("decode-0")


def test_a_foreign_frame_wedges_a_healthy_lab_too(lab):
    healthy = lab("healthy")
    push(healthy, [b"ABORT", b"12345", b"127.0.0.1", b"1"])  # an unknown room: ignored
    assert 200 == healthy.ask(GENERATE).status
    push(healthy, [b"hello", b"world"])
    eventually(lambda: GUARD_MESSAGE in healthy.log("prefill-0"), "the thread's end")
    fresh = healthy.client(GENERATE, "x", 2, stream=False)
    eventually(lambda: healthy.active(healthy.prefill) >= 1, "the fresh request reached prefill")
    assert b"" == fresh.bytes_within(0.3)
    assert 200 == healthy.http.get(f"{healthy.prefill}/health").status_code


def test_a_dead_prefill_is_noticed_by_heartbeat_and_its_rooms_fail(lab):
    healthy = lab("healthy", time_scale=0.05)
    assert 200 == healthy.ask(CHAT).status
    with healthy.transfer_held():
        client = healthy.client(GENERATE, "x", 2)
        eventually(lambda: healthy.active(healthy.decode) >= 1, "dispatched")
        healthy.running.nodes[1].process.kill()
        lost = f"Lost connection with prefill instance (bootstrap_addr: 127.0.0.1:{healthy.bootstrap_port})"
        eventually(lambda: lost in healthy.log("decode-0"), "decode noticed")
        client.hang_up()
        healthy.gates = lambda *_, **__: None  # nobody is left to open the gate of
