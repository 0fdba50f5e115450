"""Ranks: processes of their own, queues and gauges of their own, and a share of the requests of their own."""

from __future__ import annotations

import os
import signal

import psutil
import pytest
import zmq
from lab_client import GENERATE, eventually, read_answer


def titles(pid: int) -> dict[str, int]:
    """Children of a node by their titles."""
    return {child.name(): child.pid for child in psutil.Process(pid).children()}


def ask_room(lab, room: int, *, wait: bool = True):
    """A request straight to the first pair in a room of our choice: its answer, or the clients of both legs."""
    pair = {"bootstrap_host": "127.0.0.1", "bootstrap_port": lab.bootstrap_port, "bootstrap_room": room}
    legs = [lab.client(GENERATE, "hello", 3, stream=False, url=url, **pair) for url in (lab.prefill, lab.decode)]
    if wait:
        for leg in legs:
            eventually(lambda leg=leg: leg.has(b'"completion_tokens": '), f"room {room} was answered")
    return legs


def test_every_rank_is_a_process_with_the_engines_title(lab):
    wide = lab(dp=2, tp=2)
    for pid in wide.running.pids[1:]:
        assert [f"sglang::scheduler_DP{dp}_TP{tp}" for dp in (0, 1) for tp in (0, 1)] == sorted(titles(pid))
    for url in (wide.prefill, wide.decode):
        info = wide.http.get(f"{url}/server_info").json()
        assert (2, 2, 2) == (info["dp_size"], info["tp_size"], len(info["internal_states"]))
        assert [0, 1] == [load["dp_rank"] for load in wide.http.get(f"{url}/v1/loads").json()["loads"]]
    narrow = lab()
    assert [["sglang::scheduler"]] * 2 == [list(titles(pid)) for pid in narrow.running.pids[1:]]
    assert "dp_rank" not in narrow.http.get(f"{narrow.decode}/metrics").text


def test_a_room_belongs_to_its_rank_on_both_sides_and_counts_there(lab):
    wide = lab(dp=2)
    for room in (4, 6, 8, 7):
        ask_room(wide, room)
    # the warm-up's 8 tokens were the first rank's 7 steps
    assert [7 + 3 * 2, 2] == [wide.metric(wide.decode, "realtime_tokens_total", dp_rank=rank) for rank in "01"]
    # health checks add to the first rank's prefill, and to no other's
    assert 1 == wide.metric(wide.prefill, "realtime_tokens_total", dp_rank="1", tp_rank="0")
    log = wide.log("decode-0") + wide.log("prefill-0")
    assert " DP1] Prefill batch" in log
    assert 200 == wide.ask(GENERATE).status
    wide.until_idle()


def test_a_stopped_tensor_parallel_rank_stops_its_data_parallel_rank_and_no_other(lab):
    wide = lab(dp=2, tp=2)
    stopped = titles(wide.running.pids[2])["sglang::scheduler_DP1_TP1"]
    os.kill(stopped, signal.SIGSTOP)
    waiting = ask_room(wide, 5, wait=False)
    ask_room(wide, 4)
    assert b"" == waiting[1].bytes_within(0.2)
    assert 200 == wide.http.get(f"{wide.decode}/health").status_code  # asks the first rank
    os.kill(stopped, signal.SIGCONT)
    for leg in waiting:
        eventually(lambda leg=leg: leg.has(b'"completion_tokens": '), "answered once it was continued")


def test_one_dead_control_thread_of_a_tensor_parallel_rank_pins_every_room_of_its_rank(lab):
    wide = lab(dp=2, tp=2)
    rank = "prefill_dp_rank=1&prefill_cp_rank=0&target_tp_rank=1&target_pp_rank=0"
    where = wide.http.get(f"http://127.0.0.1:{wide.bootstrap_port}/route?{rank}").json()
    ask_room(wide, 3)
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.setsockopt(zmq.LINGER, 5000)
        socket.connect(f"tcp://{where['rank_ip']}:{where['rank_port']}")
        socket.send_multipart([b"hello"])
    eventually(lambda: "Foreign traffic?" in wide.log("prefill-0"), "the thread's end")
    waiting = ask_room(wide, 5, wait=False)
    ask_room(wide, 4)
    assert [b"", b""] == [leg.bytes_within(0.1) for leg in waiting]
    for leg in waiting:
        leg.hang_up()
    said = "Decode transfer failed for request rank={rank} decode_req.req.rid='"
    for tp in (0, 1):
        line = f" DP1 TP{tp}] {said.format(rank=tp)}"
        eventually(lambda line=line: line in wide.log("decode-0"), "each rank tells of the failure")


@pytest.mark.parametrize("node", [1, 2])
def test_a_rank_process_that_is_killed_takes_the_server_along(lab, node):
    pair = lab()
    (child,) = titles(pair.running.pids[node]).values()
    os.kill(child, signal.SIGKILL)
    assert -signal.SIGKILL == pair.running.nodes[node].process.wait(20)
    log = pair.log(pair.running.nodes[node].config.name)
    assert f"Subprocess scheduler_0 (pid={child}) crashed with exit code -9. Triggering SIGQUIT for cleanup..." in log
    assert "It usually means one child failed." in log


def test_no_rank_process_outlives_its_node_not_even_a_stopped_one(lab):
    pair = lab()
    children = [psutil.Process(child) for pid in pair.running.pids[1:] for child in titles(pid).values()]
    children[0].suspend()
    for node in pair.running.nodes[1:]:
        node.process.kill()
    assert [] == psutil.wait_procs(children, 20)[1]


def test_two_by_two_nodes_of_two_by_two_ranks_serve_every_pair(lab):
    wide = lab(prefill=2, decode=2, dp=2, tp=2)
    for prefill in wide.running.target.prefill:
        for decode in wide.running.target.decode:
            for room in (10, 11):
                pair = {"bootstrap_host": "127.0.0.1", "bootstrap_port": prefill.bootstrap_port, "bootstrap_room": room}
                wide.client(GENERATE, "hello", 3, stream=False, url=prefill.url, **pair)
                body = {"text": "hello", "sampling_params": {"max_new_tokens": 3}, **pair}
                reply = wide.http.post(decode.url + GENERATE, json=body)
                assert (200, 3) == (reply.status_code, read_answer(GENERATE, reply).tokens)
    assert 200 == wide.ask(GENERATE).status


def test_no_rank_process_is_left_when_a_lab_has_stopped(lab):
    wide = lab(dp=2, tp=2)
    children = [child for pid in wide.running.pids[1:] for child in titles(pid).values()]
    assert 8 == len(children)
    os.kill(children[0], signal.SIGSTOP)
    assert [] == wide.running.stop()
    assert [] == [child for child in children if psutil.pid_exists(child)]
