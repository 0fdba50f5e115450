"""Starting and stopping labs: options, failures, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from lab_client import CHAT, RUN_ID, Lab, eventually

from chaos.lab.provider import catalogue, parse_lab, start_lab
from chaos.lab.sim.builds import BUILDS
from chaos.model.errors import LabError, UsageError

OWNER = """
import pathlib, sys, time
from chaos.lab.provider import parse_lab, start_lab
lab = start_lab(parse_lab("sim", {"time_scale": "0.02"}), pathlib.Path(sys.argv[1]), lambda _: None)
print(*lab.pids, flush=True)
time.sleep(600)
"""


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# ---------------------------------------------------------------------------------------------- asking for one


@pytest.mark.parametrize(
    ("text", "options", "message", "hint"),
    [
        ("sims", {}, "there is no lab 'sims'", "did you mean 'sim'?"),
        ("sim@helthy", {}, "lab sim has no build 'helthy'", "did you mean 'healthy'?"),
        ("sim", {"prefil": "2"}, "lab sim has no option 'prefil'", "did you mean 'prefill'?"),
        ("sim", {"prefill": "two"}, "option prefill='two' is not a whole number", "number of prefill nodes"),
        ("sim", {"prefill": "0"}, "option prefill=0 is out of range", "from 1 to 16"),
        ("sim", {"time_scale": "nan"}, "option time_scale=nan is out of range", "from 0.01 to 1"),
        ("sim", {"model": ""}, "option model must not be empty", ""),
    ],
)
def test_a_wrong_lab_build_or_option_is_refused_with_a_hint(text, options, message, hint):
    with pytest.raises(UsageError) as refused:
        parse_lab(text, options)
    assert (message, hint) == (refused.value.message, refused.value.hint)


def test_options_become_settings():
    spec = parse_lab("sim@nixl-abort-unhandled", {"prefill": "2", "step_ms": "5", "model": "x"})
    assert ("nixl-abort-unhandled", 2, 5.0, "x") == (
        spec.build,
        spec.settings.prefill,
        spec.settings.step_ms,
        spec.settings.model,
    )
    assert "lab:sim" == spec.title


def test_the_catalogue_lists_every_build_and_option():
    sim = next(lab for lab in catalogue() if lab.name == "sim")
    assert list(BUILDS) == [build.name for build in sim.builds]
    assert {"healthy", "nixl-abort-unhandled"} <= set(BUILDS)
    assert {"prefill", "decode", "time_scale", "slots", "kv_tokens"} <= {option.name for option in sim.options}
    assert all(each.about for each in (*sim.builds, *sim.options))


# ---------------------------------------------------------------------------------------------- starting


def test_the_target_describes_the_running_lab(calm):
    target = calm.running.target
    assert calm.running.pids == [
        int(Path(spec.pidfile).read_text()) for spec in (target.router, *target.prefill, *target.decode)
    ]
    assert ["router", "prefill-0", "decode-0"] == [
        spec.name for spec in (target.router, *target.prefill, *target.decode)
    ]
    assert (0.02, pytest.approx(6.0), pytest.approx(0.7)) == (
        target.time_scale,
        target.timeouts["waiting"],
        target.gauge_lag,
    )
    assert "lab:sim" == calm.running.name


def test_every_listening_socket_is_on_loopback(calm):
    listening = [
        connection.laddr.ip
        for pid in calm.running.pids
        for connection in psutil.Process(pid).net_connections("all")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 7  # three HTTP, bootstrap, router metrics, two control, one KV, ZMQ's own
    assert {"127.0.0.1"} == set(listening)


def test_nodes_carry_the_run_id_in_their_environment(calm):
    assert [RUN_ID] * 3 == [psutil.Process(pid).environ()["PDCHAOS_RUN"] for pid in calm.running.pids]


def test_two_prefills_and_two_decodes_all_serve(lab):
    wide = lab(prefill=2, decode=2)
    for _ in range(4):
        assert 200 == wide.ask(CHAT).status
    for spec in (*wide.running.target.prefill, *wide.running.target.decode):
        assert 2 == wide.metric(spec.url, "http_requests_total", endpoint=CHAT)


@pytest.mark.parametrize("node", ["router", "prefill-0", "decode-0"])
def test_a_restarted_node_is_a_new_process_in_the_old_ones_place(lab, node):
    pair = lab()
    assert 200 == pair.ask(CHAT).status
    before, addresses = (
        dict(zip(("router", "prefill-0", "decode-0"), pair.running.pids, strict=True)),
        pair.running.target,
    )
    os.kill(before[node], signal.SIGSTOP)  # whatever state it is in
    pair.running.restart(node)
    after = dict(zip(before, pair.running.pids, strict=True))
    assert {node} == {name for name, pid in after.items() if pid != before[name]}
    assert gone(before[node])
    assert addresses == pair.running.target
    assert f"{after[node]}\n" == (pair.running.folder / f"{node}.pid").read_text()
    eventually(lambda: 200 == pair.ask(CHAT).status, "the pair serves again")


def test_a_node_that_is_not_there_cannot_be_restarted(calm):
    with pytest.raises(LabError, match="the lab has no node 'prefill-1'") as refused:
        calm.running.restart("prefill-1")
    assert "did you mean 'prefill-0'?" == refused.value.hint


def test_a_port_that_is_taken_is_a_lab_error(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LabError, match=f"port {port} on 127.0.0.1 cannot be used: Address already in use"):
            start_lab(parse_lab("sim", {"port": str(port)}), tmp_path, lambda _: None)


def test_a_node_that_dies_while_starting_is_a_lab_error_with_its_logs_tail_and_takes_the_others_along(tmp_path):
    pids = []

    def kill_decode(line: str) -> None:
        if " started, pid " in line:
            pids.append(int(line.rpartition(" ")[2]))
            if line.startswith("decode-0"):
                os.kill(pids[-1], signal.SIGSTOP)  # so that it cannot have become ready yet
                (tmp_path / "decode-0.log").write_text("ImportError: its last words\n")
                os.kill(pids[-1], signal.SIGKILL)

    with pytest.raises(LabError) as failed:
        start_lab(parse_lab("sim", {}), tmp_path, kill_decode)
    assert "decode-0 died while starting (signal 9)\nImportError: its last words" == failed.value.message
    assert 3 == len(pids)
    assert all(gone(pid) for pid in pids)


def test_a_folder_that_cannot_be_written_is_a_lab_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot be used"):
        start_lab(parse_lab("sim", {}), tmp_path / "file", lambda _: None)


# ---------------------------------------------------------------------------------------------- stopping


def test_stop_ends_stopped_processes_too_and_reaps_them_all(tmp_path):
    lab = start_lab(parse_lab("sim", {"time_scale": "0.02"}), tmp_path, lambda _: None)
    os.kill(lab.pids[1], signal.SIGSTOP)
    assert [] == lab.stop()
    assert all(not psutil.pid_exists(pid) for pid in lab.pids)
    assert [] == lab.stop()
    assert "SIGTERM received. signum=15 frame=" in (tmp_path / "decode-0.log").read_text()


@pytest.mark.parametrize("stopped", [False, True])
def test_no_node_outlives_an_owner_that_is_killed(tmp_path, stopped):
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with owner, owner.stdout as said:
        pids = [int(pid) for pid in said.readline().split()]
        assert 3 == len(pids)
        if stopped:
            os.kill(pids[2], signal.SIGSTOP)
        owner.kill()
        owner.wait()
        eventually(lambda: all(gone(pid) for pid in pids), "all nodes are gone")


# ---------------------------------------------------------------------------------------------- the defaults


def test_with_the_defaults_sixty_sessions_leave_twenty_waiting_and_leave_no_trace_when_killed(tmp_path):
    with start_lab(parse_lab("sim", {}), tmp_path, lambda _: None) as running:
        lab = Lab(running)
        assert 200 == lab.ask(CHAT, "a lone request", tokens=8).status
        clients = [lab.client(CHAT, f"s{n} " + "word " * 300, 2500) for n in range(60)]
        for client in clients[:20]:
            eventually(lambda client=client: client.has(b"data: "), "the first are streamed to")
        eventually(lambda: 60 == lab.active(lab.decode), "the others are there, too")
        assert [b""] * 40 == [client.bytes_within(0.001) for client in clients[20:]]
        for client in clients:
            client.hang_up()
        began = time.monotonic()
        assert 200 == lab.ask(CHAT, "a fresh request", tokens=8).status
        assert time.monotonic() - began < 25  # 0.7 s on a machine that is not starved; else it waits for long answers
        lab.until_idle()
        assert 60 == lab.metric(lab.decode, "num_aborted_requests_total")
        failed = [lab.metric(lab.decode, f"num_{what}_failed_reqs_total") or 0 for what in ("bootstrap", "transfer")]
        assert sum(failed) >= 20
        lab.close()
