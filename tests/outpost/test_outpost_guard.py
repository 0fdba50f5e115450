"""The guard takes a fault back on every way out, and what it could not is left on record for the sweep."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from people import named, running, staying, until

from chaos.outpost import guard, guards, marks, proc, state, sweep
from chaos.outpost.processes import threads
from chaos.outpost.trouble import Trouble
from chaos.outpost.undo import undo


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of records."""
    monkeypatch.setattr(state, "PRIVATE", (f"{tmp_path}/records",))
    return tmp_path / "records"


def stopped(process: subprocess.Popen) -> bool:
    return threads([named(process.pid)]) == [{"T": 1}]


def stop(process: subprocess.Popen) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: stopped(process))


def armed(process: subprocess.Popen, ttl_s: float = 60.0) -> dict:
    return guards.arm("run1", "freeze", ttl_s, [{"cont": [named(process.pid)]}])


# ---------------------------------------------------------------------------------------------- ways out


def test_a_guard_that_is_told_so_leaves_everything_as_it_is(records: Path) -> None:
    with staying() as process:
        one = armed(process)
        stop(process)
        assert {"stood": True} == guards.disarm(one["name"])
        assert stopped(process)
        assert (None, False) == (proc.stat(one["pid"]), records.exists())


def test_a_guard_that_is_released_says_what_it_measured(records: Path) -> None:
    with staying() as process:
        one = armed(process)
        stop(process)
        (step,) = guards.release(one["name"])["undone"]
        assert (f"CONT to pid {process.pid}", True) == (step["done"], step["ok"])
        assert "1 of 1 processes are not stopped" == step["said"]
        assert (False, False) == (stopped(process), records.exists())


def test_what_a_guard_that_was_killed_left_is_taken_back_when_it_is_released(records: Path) -> None:
    with staying() as process:
        one = armed(process)
        stop(process)
        os.kill(one["pid"], signal.SIGKILL)
        (step,) = guards.release(one["name"])["undone"]
        assert step["ok"]
        assert (False, False) == (stopped(process), records.exists())


def test_when_the_time_is_over_it_acts_and_whoever_comes_later_learns_it(records: Path) -> None:
    with staying() as process:
        one = armed(process, ttl_s=0.3)
        stop(process)
        until(lambda: not stopped(process))
        until(lambda: not records.exists())
        assert {"stood": False} == guards.disarm(one["name"])
        assert {"undone": None} == guards.release(one["name"])


def test_sigterm_makes_it_act_and_a_ctrl_c_does_not() -> None:
    with staying() as process:
        one = armed(process)
        stop(process)
        os.kill(one["pid"], signal.SIGINT)
        os.kill(one["pid"], signal.SIGHUP)
        assert marks.lives(marks.named(one["pid"]))
        assert stopped(process)
        os.kill(one["pid"], signal.SIGTERM)
        until(lambda: not stopped(process))
        assert {"stood": False} == guards.disarm(one["name"])


HOLDER = """
import sys, time
from chaos.outpost import guards, state
state.PRIVATE = (sys.argv[1],)
print(guards.arm("run1", "freeze", 60, [{"cont": [[int(sys.argv[2]), int(sys.argv[3])]]}])["pid"], flush=True)
time.sleep(600)
"""


def test_the_death_of_whoever_armed_it_makes_it_act(records: Path) -> None:
    with staying() as process, running("-c", HOLDER, str(records), *map(str, named(process.pid))) as holder:
        assert int(holder.stdout.readline())
        stop(process)
        assert 1 == len(list(records.iterdir()))
        holder.kill()
        until(lambda: not stopped(process))
        until(lambda: not records.exists())


def test_a_later_process_with_the_pid_is_not_touched() -> None:
    with staying() as process:
        pid, ticks = named(process.pid)
        stop(process)
        (step,) = undo([{"cont": [[pid, ticks + 1]]}])
        assert (True, True) == (step["ok"], stopped(process))


def test_a_guard_over_a_connection_that_is_gone_is_ended_by_its_record(records: Path) -> None:
    with staying() as process, running("-c", HOLDER, str(records), *map(str, named(process.pid))) as holder:
        assert int(holder.stdout.readline())
        (record,) = records.iterdir()
        stop(process)
        assert {"stood": False} == guards.disarm(record.stem)
        assert (False, False) == (stopped(process), records.exists())


def test_what_cannot_be_guarded_is_not_armed(monkeypatch: pytest.MonkeyPatch, records: Path) -> None:
    monkeypatch.setattr(guard, "command", lambda: (["/nowhere/python"], ()))
    with pytest.raises(Trouble, match="could not be started: No such file") as caught:
        guards.arm("run1", "freeze", 60, [])
    assert "not-armed" == caught.value.kind
    monkeypatch.setattr(guard, "command", lambda: (["/bin/cat"], ()))  # says something else
    with pytest.raises(Trouble, match="was not ready"):
        guards.arm("run1", "freeze", 60, [])
    monkeypatch.setattr(guards, "READY_S", 0.05)
    monkeypatch.setattr(guard, "command", lambda: (["/bin/sleep", "60"], ()))
    with pytest.raises(Trouble, match="was not ready"):
        guards.arm("run1", "freeze", 60, [])
    assert not records.exists()
    monkeypatch.setattr(state, "PRIVATE", ("/proc/nowhere",))
    with pytest.raises(Trouble, match="no folder for records"):
        guards.arm("run1", "freeze", 60, [])


def test_a_guard_starts_from_an_archive_in_memory_under_the_same_interpreter(tmp_path: Path) -> None:
    """As on a host: the code is in a file that has no name, and the one that started it is killed."""
    root = Path(guard.__file__).parents[2]
    with zipfile.ZipFile(tmp_path / "o.pyz", "w") as archive:
        archive.writestr("chaos/__init__.py", "")
        for source in (root / "chaos" / "outpost").glob("*.py"):
            archive.write(source, f"chaos/outpost/{source.name}")
        archive.writestr("__main__.py", HOLDER)
    boot = (
        "import os, sys\nfd = os.memfd_create('o', 0)\nos.write(fd, open(sys.argv[1], 'rb').read())\n"
        "place = f'/proc/self/fd/{fd}'\nos.execv(sys.executable, [sys.executable, '-I', place, *sys.argv[2:]])"
    )
    with (
        staying() as process,
        running("-c", boot, str(tmp_path / "o.pyz"), f"{tmp_path}/r", *map(str, named(process.pid))) as holder,
    ):
        who = int(holder.stdout.readline())
        assert "/proc/self/fd/" in proc.title(who)
        stop(process)
        holder.kill()
        until(lambda: not stopped(process))


# ---------------------------------------------------------------------------------------------- steps


def test_a_command_is_judged_by_its_exit_status_and_tried_again(tmp_path: Path) -> None:
    count = tmp_path / "count"
    steps = [
        {"argv": ["sh", "-c", f'echo x >> {count}; [ "$(wc -l < {count})" -ge 3 ]']},
        {"argv": ["sh", "-c", "echo no such table; exit 2"]},
        {"argv": ["sh", "-c", "exit 3"], "gone": {"nothing-that-we-know": "x"}},
        {"argv": ["no-such-tool-anywhere"]},
    ]
    told = [(step["ok"], step["said"]) for step in undo(steps)]
    assert [
        (True, ""),
        (False, "no such table"),
        (False, "it ended with code 3"),
        (False, "there is no no-such-tool-anywhere on this host"),
    ] == told


def test_a_step_that_failed_leaves_the_record_with_the_reason(records: Path) -> None:
    one = guards.arm("run1", "loss", 60, [{"argv": ["false"]}, {"argv": ["true"]}])
    undone = guards.release(one["name"])["undone"]
    assert [("false", False), ("true", True)] == [(step["done"], step["ok"]) for step in undone]
    (record,) = records.iterdir()
    kept = json.loads(record.read_text())
    assert (["false"], [{"argv": ["false"]}, {"argv": ["true"]}]) == (
        [step["done"] for step in kept["failed"]],
        kept["undo"],
    )


# ---------------------------------------------------------------------------------------------- sweep


@pytest.fixture(autouse=True)
def only(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The only processes that a sweep may see, besides those that it asks for by name; and no network of this host."""
    seen: list[int] = []
    everybody = proc.everybody
    monkeypatch.setattr(sweep, "everybody", lambda: {pid: one for pid, one in everybody().items() if pid in seen})
    monkeypatch.setattr(sweep, "_said", lambda _: "")
    return seen


def told(items: list[dict]) -> list[tuple]:
    return [(one["kind"], one["run"], one["lives"], one["gone"]) for one in items]


def test_a_fault_whose_guard_was_killed_is_found_and_taken_back(records: Path) -> None:
    with staying() as process:
        one = armed(process)
        stop(process)
        os.kill(one["pid"], signal.SIGKILL)
        until(lambda: proc.stat(one["pid"]).gone)
        assert [("fault", "run1", False, False)] == told(sweep.sweep(dry=True))
        assert stopped(process)
        assert [("fault", "run1", False, True)] == told(sweep.sweep())
        assert (False, False) == (stopped(process), records.exists())
        assert [] == sweep.sweep()
        assert {"undone": []} == guards.release(one["name"])


def test_a_fault_of_a_run_that_lives_is_left_alone_unless_somebody_says_so(records: Path) -> None:
    with staying() as process:
        one = armed(process)
        stop(process)
        assert [("fault", "run1", True, False)] == told(sweep.sweep())
        assert [("fault", "run1", True, False)] == told(sweep.sweep(runs=["another"]))
        assert stopped(process)
        assert [("fault", "run1", False, True)] == told(sweep.sweep(runs=["run1"]))
        assert (False, False) == (stopped(process), records.exists())
        assert {"stood": False} == guards.disarm(one["name"])


def test_a_fault_from_before_the_last_boot_is_only_forgotten(records: Path) -> None:
    state.write(state.private_folder() / "old.json", {"run": "run0", "boot": "x", "undo": [{"argv": ["false"]}]})
    assert [("fault", "run0", False, True)] == told(sweep.sweep())
    assert not records.exists()


def test_what_cannot_be_taken_back_says_why_and_is_kept(records: Path) -> None:
    value = {
        "run": "run1",
        "fault": "loss",
        "boot": proc.boot_id(),
        "undo": [{"argv": ["sh", "-c", "echo no; exit 1"]}],
    }
    state.write(state.private_folder() / "one.json", value)
    (item,) = sweep.sweep()
    assert (False, "sh -c echo no; exit 1: no") == (item["gone"], item["why"])
    assert 1 == len(list(records.iterdir()))


def left_behind(run: str) -> dict[str, str]:
    """The environment of a process that somebody started who is gone."""
    return {**os.environ, marks.RUN: run, marks.OWNER: marks.me().replace(":", ":1", 1)}


def test_a_process_that_outlived_whoever_started_it_is_ended(only: list[int]) -> None:
    stays = "import signal, sys; signal.signal(15, signal.SIG_IGN); print('up', flush=True); sys.stdin.read()"
    with running("-c", stays, env=left_behind("run1")) as stubborn, running("-c", stays) as unmarked:
        assert ["up\n"] * 2 == [one.stdout.readline() for one in (stubborn, unmarked)]
        only += [stubborn.pid, unmarked.pid]
        assert [("process", "run1", False, False)] == told(sweep.sweep(dry=True))
        assert stubborn.poll() is None
        sweep.TERM_S, before = 0.2, sweep.TERM_S
        try:
            assert [("process", "run1", False, True)] == told(sweep.sweep())
        finally:
            sweep.TERM_S = before
        assert (-signal.SIGKILL, None) == (stubborn.wait(10), unmarked.poll())


def test_a_process_of_a_run_that_lives_and_one_of_a_lab_are_left_alone(only: list[int]) -> None:
    lab = {**os.environ, marks.RUN: "run1"}
    waits = "print(flush=True); input()"
    with running("-c", waits, env=marks.marked("run2")) as mine, running("-c", waits, env=lab) as node:
        only += [mine.pid, node.pid]
        assert ["\n"] * 2 == [one.stdout.readline() for one in (mine, node)]
        assert [("process", "run2", True, False)] == told(sweep.sweep())
        assert (None, None) == (mine.poll(), node.poll())


def test_a_process_whose_owner_is_in_another_namespace_of_pids_is_left_to_whoever_is_there(only: list[int]) -> None:
    pid, ticks, _ = marks.me().split(":")
    elsewhere = {**os.environ, marks.RUN: "run3", marks.OWNER: f"{pid}:1{ticks}:4711"}
    with running("-c", "print(flush=True); input()", env=elsewhere) as process:
        assert process.stdout.readline()
        only.append(process.pid)
        assert [("process", "run3", True, False)] == told(sweep.sweep())
        assert process.poll() is None
        assert [("process", "run3", False, True)] == told(sweep.sweep(runs=["run3"]))


def test_who_is_named_is_told_from_a_later_process_and_from_nobody() -> None:
    mine = marks.me()
    assert [True, False, False, False] == [
        marks.lives(one) for one in (mine, mine.replace(":", ":1", 1), "", "no:such:process")
    ]


def test_processes_that_have_ended_need_no_undoing() -> None:
    with staying() as process:
        one = named(process.pid)
    (step,) = undo([{"cont": [one]}])
    assert (True, "1 of 1 processes are not stopped") == (step["ok"], step["said"])


def test_a_stopped_process_that_this_user_may_not_see_is_not_called_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(pid: int, _ticks: int) -> None:
        raise PermissionError(f"process {pid} is hidden from this user")

    with staying() as process:
        one = named(process.pid)
        monkeypatch.setattr(proc, "same", hidden)
        (step,) = undo([{"cont": [one]}])
    assert (False, True) == (step["ok"], "is hidden" in step["said"])


def put(name: str, text: str) -> Path:
    path = state.private_folder() / f"{name}.json"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "unknown: its record is damaged"),
        ('{"run": "run1", "fault": "cut"', "unknown: its record is damaged"),
        ('{"run": "run1", "fault": "cut"}', "cut"),
        ('{"run": "run1", "fault": "cut", "undo": 5}', "cut"),
    ],
)
def test_a_damaged_record_is_told_and_kept(records: Path, text: str, what: str) -> None:
    path = put("run1-cut", text)
    for dry in (True, False):
        (item,) = sweep.sweep(dry=dry)
        assert ("fault", what, False) == (item["kind"], item["what"], item["gone"])
        assert "does not say what is to be undone" in item["why"]
    assert ([f"cat {path}"], str(path)) == (item["by_hand"], item["record"])
    assert path.read_text() == text


def test_a_guard_that_was_killed_and_whose_record_is_damaged_undid_nothing(records: Path) -> None:
    one = guards.arm("run1", "cut", 60, [{"argv": ["true"]}])
    (record,) = records.iterdir()
    os.kill(one["pid"], signal.SIGKILL)
    record.write_text("{")
    with pytest.raises(Trouble, match=f"its record {record} is damaged"):
        guards.release(one["name"])
    assert record.exists()


def test_steps_that_nobody_understands_are_told_and_the_others_are_taken(records: Path, tmp_path: Path) -> None:
    broken = [5, "cont", {}, {"argv": []}, {"argv": [1]}, {"cont": [["x", 1]]}]
    good = {"argv": ["touch", str(tmp_path / "done")]}
    value = {"run": "run1", "fault": "cut", "boot": proc.boot_id(), "since": "x", "undo": [*broken, good]}
    path = put("run1-cut", json.dumps(value))
    (item,) = sweep.sweep()
    assert (False, 6, 0.0) == (item["gone"], item["why"].count("nobody understands"), item["since_s"])
    assert (tmp_path / "done").exists()
    assert [f"cat {path}"] * 6 == item["by_hand"]


def test_what_cannot_be_undone_says_what_to_type_and_can_be_forgotten(records: Path) -> None:
    undoing = [{"argv": ["sh", "-c", "exit 1"]}, {"argv": ["true"]}]
    path = put("run1-cut", json.dumps({"run": "run1", "fault": "cut", "boot": proc.boot_id(), "undo": undoing}))
    (item,) = sweep.sweep()
    assert (["sh -c 'exit 1'"], str(path)) == (item["by_hand"], item["record"])
    with pytest.raises(Trouble, match=r"^run1-cut$"):
        sweep.forget("../run1-cut")
    said = sweep.forget("run1-cut")
    assert (str(path), True) == (said["path"], "exit 1" in said["text"])
    assert not records.exists()
    assert [] == sweep.sweep()


def test_what_a_guard_still_guards_is_not_forgotten_unless_nobody_can_tell_from_here(records: Path) -> None:
    with staying() as process:
        one = armed(process)
        with pytest.raises(Trouble, match=f"is at work .pid {one['pid']}.") as caught:
            sweep.forget(one["name"])
        assert "lives" == caught.value.kind
        assert {"stood": True} == guards.disarm(one["name"])
    put("run2-cut", json.dumps({"run": "run2", "undo": [], "guard": f"{marks.me()}0"}))
    sweep.forget("run2-cut")
    assert not records.exists()


WAYS_GONE = """
import json, subprocess
from chaos.outpost import shaping
from chaos.outpost.undo import undo
for words in ("ip link set lo up", "nft add table inet pdchaos_here_1", "ip link add dum0 type veth peer name dum1",
              "tc qdisc add dev lo root handle 7db1: tbf rate 1mbit burst 10k latency 50ms"):
    subprocess.run(words.split(), check=True)
fails = ["sh", "-c", "exit 1"]
print(json.dumps([step["ok"] for step in undo([
    {"argv": fails, "gone": {"table": "pdchaos_here_1"}},
    {"argv": fails, "gone": {"table": "pdchaos_here_2"}},
    {"argv": fails, "gone": {"qdisc": "lo"}},
    {"argv": shaping.undoing("dum0"), "gone": {"qdisc": "dum0"}},
    {"argv": shaping.undoing("nosuch0"), "gone": {"qdisc": "nosuch0"}},
])]))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="tables of the network take root")
def test_what_is_gone_needs_no_undoing_and_what_is_there_does() -> None:
    words = ["unshare", "--net", sys.executable, "-c", WAYS_GONE]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert 0 == done.returncode, done.stderr
    assert [False, True, False, True, True] == json.loads(done.stdout)


NETWORK = """
import json, subprocess, sys
from chaos.outpost import state, sweep
state.PRIVATE = (sys.argv[1],)
sweep.everybody = dict
for words in ("ip link set lo up", "nft add table inet pdchaos_run_1_2", "nft add table inet theirs",
              "tc qdisc add dev lo root handle 7db1: tbf rate 1mbit burst 10k latency 50ms"):
    subprocess.run(words.split(), check=True)
print(json.dumps([sweep.sweep(dry=True), sweep.sweep(), sweep.sweep()]))
print(subprocess.run(["nft", "list", "tables"], capture_output=True, text=True).stdout.strip())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="tables of the network take root")
def test_our_tables_and_queues_of_the_network_are_found_and_only_they_are_removed(tmp_path: Path) -> None:
    words = ["unshare", "--net", sys.executable, "-c", NETWORK, str(tmp_path / "r")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert 0 == done.returncode, done.stderr
    said, tables = done.stdout.splitlines()
    dry, wet, after = json.loads(said)
    assert [("table", "run_1", False, False), ("qdisc", "", False, False)] == told(dry)
    assert [("table", "run_1", False, True), ("qdisc", "", False, True)] == told(wet)
    assert ([], "table inet theirs") == (after, tables)


GUARDED = """
import json, subprocess, sys
from chaos.outpost import guards, state, sweep
state.PRIVATE = (sys.argv[1],)
everybody = sweep.everybody
sweep.everybody = lambda: {pid: one for pid, one in everybody().items() if str(pid) == sys.argv[2]}
for words in ("ip link set lo up", "nft add table inet pdchaos_run_1_1", "nft add table inet pdchaos_run_2_1",
              "tc qdisc add dev lo root handle 7db1: tbf rate 1mbit burst 10k latency 50ms"):
    subprocess.run(words.split(), check=True)
guards.arm("run-1", "slow", 60, [{"argv": "tc qdisc del dev lo root".split()},
                                 {"argv": "nft delete table inet pdchaos_run_1_1".split()}])
print(json.dumps([sweep.sweep(), sweep.sweep(runs=["run-1"]), sweep.sweep(dry=True)]))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="tables of the network take root")
def test_tables_and_queues_of_a_run_that_lives_are_left_alone_and_a_leftover_process_protects_none(
    tmp_path: Path,
) -> None:
    with running("-c", "print(flush=True); input()", env=left_behind("run-2")) as process:
        assert process.stdout.readline()
        words = ["unshare", "--net", sys.executable, "-c", GUARDED, str(tmp_path / "r"), str(process.pid)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert 0 == done.returncode, done.stderr
    others, mine, left = json.loads(done.stdout)
    assert [
        ("fault", "run-1", True, False),
        ("process", "run-2", False, True),
        ("table", "run_1", True, False),
        ("table", "run_2", False, True),
        ("qdisc", "run-1", True, False),
    ] == told(others)
    assert [("fault", "run-1", False, True)] == told(mine)
    assert [] == left


def test_what_a_step_starts_is_not_marked_as_ours_and_does_not_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(marks.RUN, "run1")
    monkeypatch.setenv(marks.OWNER, "1:1")
    (step,) = undo([{"argv": ["sh", "-c", "sleep 5 & env | grep PDCHAOS_ || echo unmarked"], "limit_s": 4.0}])
    assert (True, "unmarked") == (step["ok"], step["said"])


def test_a_step_that_takes_too_long_failed() -> None:
    (step,) = undo([{"argv": ["sleep", "30"], "limit_s": 0.05}])
    assert (False, "did not end within 0.05 s") == (step["ok"], step["said"])
