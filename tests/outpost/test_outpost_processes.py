"""Processes looked at and signalled: these very ones, never a later one with the same pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from people import named, running, staying, until

from chaos.outpost import proc
from chaos.outpost.processes import look, processes, threads
from chaos.outpost.processes import signal as send
from chaos.outpost.shell import shell
from chaos.outpost.starved import starved
from chaos.outpost.trouble import Trouble

PARENT = (
    "import subprocess, sys, threading, time\n"
    "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    "child = subprocess.Popen(['sleep', '600'])\nprint(child.pid, flush=True); sys.stdin.read()"
)


def seen(pid: int, start_ticks: int, known: object = ()) -> dict:
    (one,) = look([{"pid": pid, "start_ticks": start_ticks, "known": known}])
    return one


def test_a_look_tells_state_children_and_threads() -> None:
    with running("-c", PARENT) as process:
        child = int(process.stdout.readline())
        until(lambda: seen(*named(process.pid))["state"] == "sleeping")
        one = seen(*named(process.pid))
        (only,) = one["children"]
        assert one["alive"]
        assert (child, "sleep", True, psutil.Process(child).create_time()) == (
            only["pid"],
            only["name"],
            only["alive"],
            only["start_time"],
        )
        assert ["python x2", "sleep"] == one["threads"]


def test_a_child_that_was_seen_stays_listed_dead_or_adopted() -> None:
    with running("-c", PARENT) as process:
        child, who = int(process.stdout.readline()), named(process.pid)
        known = seen(*who)["children"]
        process.kill()
        process.wait()
        orphaned = seen(*who, known)
        assert (False, "dead", [(child, True)]) == (
            orphaned["alive"],
            orphaned["state"],
            [(one["pid"], one["alive"]) for one in orphaned["children"]],
        )
        os.kill(child, signal.SIGKILL)
        until(lambda: not seen(*who, known)["children"][0]["alive"])


def test_a_later_process_with_the_pid_is_another_one() -> None:
    with staying() as process:
        pid, ticks = named(process.pid)
        assert "dead" == seen(pid, ticks - 1)["state"]
        assert [None] == threads([[pid, ticks - 1]])
        assert [f"process {pid} has ended"] == send([[pid, ticks - 1]], "KILL")
        assert process.poll() is None


def test_a_stopped_process_shows_every_thread_stopped_and_goes_on_when_told() -> None:
    with running("-c", PARENT) as process:
        process.stdout.readline()
        who = named(process.pid)
        assert [""] == send([who], "STOP")
        until(lambda: [{"T": 2}] == threads([who]))
        assert "stopped" == seen(*who)["state"]
        assert [""] == send([who], "CONT")
        until(lambda: [{"S": 2}] == threads([who]))


def test_whether_a_signal_may_be_sent_is_asked_without_one() -> None:
    with staying() as process:
        assert [""] == send([named(process.pid)], "")
        assert process.poll() is None


def test_a_process_that_is_hidden_is_unreadable_and_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    who = named(os.getpid())
    read = proc.read
    monkeypatch.setattr(proc, "read", lambda path: b"" if path == f"/proc/{os.getpid()}/stat" else read(path))

    def refuse(_pid: int, _number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    one = seen(*who)
    assert (True, "unreadable") == (one["alive"], one["state"])


def test_the_processes_of_a_server_come_with_their_titles_itself_first() -> None:
    with running("-c", PARENT) as process:
        child = int(process.stdout.readline())
        until(lambda: processes(pid=process.pid)[1]["title"] != "")  # the kernel has none while a program is loaded
        main, other = processes(pid=process.pid)
        assert (named(process.pid), named(child)) == (
            [main["pid"], main["start_ticks"]],
            [other["pid"], other["start_ticks"]],
        )
        assert ("sleep", "sleep 600") == (other["name"], other["title"])


def test_a_name_that_the_kernel_cut_is_completed_from_the_title() -> None:
    titled = "open('/proc/self/comm', 'w').write('pretend::scheduler_TP0'); print(flush=True); input()"
    words = ["pretend::scheduler_TP0", "-c", titled]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, executable=sys.executable, stdin=pipe, stdout=pipe) as process:
        process.stdout.readline()
        assert ("pretend::schedu", "pretend::scheduler_TP0") == (
            proc.stat(process.pid).name,
            processes(pid=process.pid)[0]["name"],
        )
        process.stdin.write(b"\n")


# ---------------------------------------------------------------------------------------------- waiting for a CPU


def test_a_process_that_must_share_a_cpu_is_seen_waiting_and_an_idle_one_is_not() -> None:
    """Three that want the same CPU all the time get a third of it each, whatever else the machine does."""
    cpu = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    with running("-c", spin) as one, running("-c", spin) as two, running("-c", spin) as three, staying() as idle:
        roots = {str(n): process.pid for n, process in enumerate((one, two, three, idle))}
        assert {} == starved("test", roots)  # nothing to compare with
        shares: dict[str, float] = {}
        deadline = time.monotonic() + 60
        while len(shares) < 3 and time.monotonic() < deadline:
            time.sleep(0.5)
            shares |= starved("test", roots)
    assert {"0", "1", "2"} == set(shares)
    assert all(0.3 < share <= 1.0 for share in shares.values())
    assert {} == starved("test", {"gone": idle.pid})


# ---------------------------------------------------------------------------------------------- commands


def test_a_command_runs_to_its_end_and_tells_its_status_and_what_it_said() -> None:
    assert {"status": 3, "said": "well then"} == shell("echo well; echo then >&2; exit 3", 20)


def test_a_command_that_takes_too_long_is_killed_with_all_it_started() -> None:
    sleep = f"sleep 4711.{os.getpid()}"
    with pytest.raises(Trouble, match=r"did not end within 0\.2 s") as caught:
        shell(f"{sleep} & {sleep}", 0.2)
    assert "too-slow" == caught.value.kind
    until(lambda: not any(proc.title(pid) == sleep for pid in proc.everybody()))


def test_what_a_command_starts_is_not_marked_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDCHAOS_RUN", "r")
    monkeypatch.setenv("PDCHAOS_OWNER", "1:1")
    assert "none" == shell("env | grep PDCHAOS_ || echo none", 20)["said"]
