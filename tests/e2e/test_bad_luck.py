"""Bad luck: signals, dead machinery, full disks: a clear message, the right exit code, no orphan, the journal kept."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import time

import pytest
import yaml

from chaos.journal import read_journal
from chaos.model import events as ev

pytestmark = pytest.mark.e2e

QUICK = ("--with", "observe.idle=1s", "--with", "observe.baseline=1s", "--set", "time_scale=0.05")
IN_LOAD = ("--with", "load.agents.saturate.waiting=399", "--with", "timeline.wave.when.waiting=>= 399")
"""A load phase that goes on until its wave gives up: time to interrupt it."""


def journal_of(pdchaos):
    (folder,) = pdchaos.reports.iterdir()
    return read_journal(folder / "journal.jsonl")


def test_sigkill_leaves_no_process_and_a_journal_that_can_be_judged_but_is_never_healthy(pdchaos) -> None:
    running = pdchaos.start_run("abort-cascade", "--target", "lab:sim", *QUICK, "--with", "timeline.wave.give_up=60s")
    pdchaos.await_output("recovery", running)
    running.kill()
    running.wait()
    # the lab goes at once; an agent lets its requests finish first, and the lab took those with it
    assert [] == pdchaos.leftovers(within=30)
    journal = journal_of(pdchaos)
    assert 0 == journal.damaged
    assert not isinstance(journal.events[-1], ev.RunEnded)
    judged = pdchaos.finish(pdchaos.start("judge", str(next(pdchaos.reports.iterdir()))))
    assert 8 == judged.code  # nobody can say what a harness left behind that never said goodbye
    assert "INCONCLUSIVE" in judged.output


def test_two_ctrl_c_leave_at_once_and_leave_nothing(pdchaos) -> None:
    running = pdchaos.start_run("abort-cascade", "--target", "lab:sim", *QUICK, *IN_LOAD, "--plain")
    pdchaos.await_output("phase     load", running)
    time.sleep(2)  # sessions are under way
    running.send_signal(signal.SIGINT)
    pdchaos.await_output("Once more leaves at once", running)
    running.send_signal(signal.SIGINT)
    begun = time.monotonic()
    ran = pdchaos.finish(running)
    assert 30 > time.monotonic() - begun  # streams of 2500 tokens would take a minute to drain
    assert 130 == ran.code
    assert ("aborted", "clean", "inconclusive") == tuple(ran.verdict[key] for key in ("status", "cleanup", "outcome"))
    assert ran.verdict["headline"].startswith(
        "INCONCLUSIVE: interrupted by SIGINT (Ctrl-C) under load, before any fault"
    )
    assert ran.verdict["leaving"]["at_once"]
    assert ran.verdict["leaving"]["waiting"] + ran.verdict["leaving"]["streaming"] > 0
    assert {"unknown"} == {path["serves"] for path in ran.verdict["paths"]}
    assert "we ourselves hung up on" in ran.output
    assert [] == pdchaos.leftovers()
    assert "Traceback" not in ran.output


@pytest.mark.parametrize("after_s", [0, 2])
def test_one_ctrl_c_under_load_lets_requests_finish(pdchaos, kept_lab, after_s) -> None:
    lab = kept_lab("sim@nixl-abort-unhandled")
    options = ("--with", "load.agents.max_tokens=200", "--with", "load.agents.sessions=30")
    running = pdchaos.start_run("abort-cascade", "--target", str(lab.target), *options, *IN_LOAD, "--plain")
    pdchaos.await_output("phase     load", running)
    time.sleep(after_s)  # at once: its agents are still being started
    running.send_signal(signal.SIGINT)
    ran = pdchaos.finish(running)
    assert 130 == ran.code
    assert re.search(r"waiting for open requests, up to \d+ s more", ran.output)
    ended = [event for event in ran.events if event["type"] == "request.ended"]
    assert [] == [event for event in ended if event.get("ended_by") in ("harness", "fault")]
    assert lab.serves()


def test_sigterm_while_the_lab_starts_takes_it_down(pdchaos) -> None:
    running = pdchaos.start_run("abort-cascade", "--target", "lab:sim")
    pdchaos.await_output("started, pid", running)
    running.send_signal(signal.SIGTERM)
    assert 130 == pdchaos.finish(running).code
    assert [] == pdchaos.leftovers(within=5)


def test_a_full_disk_ends_the_run_with_a_message_and_keeps_what_was_recorded(pdchaos, tmp_path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", disk], check=False).returncode:
        pytest.skip("this machine does not let us mount a small disk")
    try:
        pdchaos.reports = disk
        running = pdchaos.start_run("abort-cascade", "--target", "lab:sim", "--set", "time_scale=0.05")
        (disk / "filler").write_bytes(b"x" * 200_000)
        ran = pdchaos.finish(running)
        assert 4 == ran.code
        assert "No space left" in ran.output
        assert "Traceback" not in ran.output
        assert [] == pdchaos.leftovers(within=5)
        (folder,) = [path for path in disk.iterdir() if path.is_dir()]
        journal = read_journal(folder / "journal.jsonl")
        assert isinstance(journal.events[-1], ev.RunEnded)
        assert "harness-error" == journal.events[-1].status
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_target_that_does_not_answer_is_unfit(pdchaos, tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [taken.getsockname()[1] + n for n in range(3)]
    target = tmp_path / "target.yaml"
    router, prefill, decode = (f'{{url: "http://127.0.0.1:{port}"}}' for port in ports)
    may = "environment: staging\nallow: [kill]\n"
    servers = f"router: {router}\nprefill: [{prefill}]\ndecode: [{decode}]\n"
    target.write_text(f"version: 1\nname: gone\n{may}{servers}")
    ran = pdchaos.run("abort-cascade", "--target", str(target))
    assert 6 == ran.code
    for node in ("router-0", "prefill-0", "decode-0"):
        assert f"{node} at http://127.0.0.1" in ran.output
    assert "unfit" == ran.verdict["status"]


def test_what_a_target_does_not_allow_is_refused_before_anything_is_touched(pdchaos, kept_lab) -> None:
    lab = kept_lab("sim")
    lab.target.write_text(yaml.safe_dump({**yaml.safe_load(lab.target.read_text()), "allow": []}))
    ran = pdchaos.run("abort-cascade", "--target", str(lab.target))
    assert 5 == ran.code
    assert "does not allow: kill" in ran.output
    assert not pdchaos.reports.exists() or not list(pdchaos.reports.iterdir())


def test_a_port_that_is_taken_is_said_so(pdchaos) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = pdchaos.run("abort-cascade", "--target", "lab:sim", "--set", f"port={port}")
    assert 4 == ran.code
    assert f"port {port}" in ran.output


def test_a_report_of_a_run_folder_that_cannot_be_made_is_a_message(pdchaos, tmp_path) -> None:
    (tmp_path / "reports").write_text("a file where a folder should be")
    ran = pdchaos.run("abort-cascade", "--target", "lab:sim")
    assert 2 == ran.code
    assert "is no folder" in ran.output
    assert "--reports" in ran.output


def test_a_disk_without_room_for_the_first_files_is_a_message(pdchaos) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # the agent's archive is larger
    try:
        running = pdchaos.start_run("abort-cascade", "--target", "lab:sim")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    ran = pdchaos.finish(running)
    assert 4 == ran.code, ran.output
    assert "agent.pyz: cannot be written: File too large" in ran.output
    assert "Traceback" not in ran.output
    assert [] == pdchaos.leftovers(within=10)


def test_a_log_that_the_target_names_and_that_is_not_there_stops_the_run_before_it_begins(pdchaos, kept_lab) -> None:
    lab = kept_lab("sim", time_scale="0.05")
    lab.target.write_text(lab.target.read_text().replace("prefill-0.log", "elsewhere.log"))
    ran = pdchaos.run("abort-cascade", "--target", str(lab.target))
    assert 6 == ran.code
    assert "elsewhere.log cannot be read (No such file or directory)" in ran.output


def test_the_agents_pipe_is_not_a_way_to_outlive_us(pdchaos) -> None:
    running = pdchaos.start_run("soak-no-fault", "--target", "lab:sim", *QUICK)
    pdchaos.await_output("load", running)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert [] == pdchaos.leftovers(within=40)
