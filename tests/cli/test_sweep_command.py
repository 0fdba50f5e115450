"""`pdchaos sweep` in a small world of its own: what is left over goes, what lives stays, and the exit code says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALONE = ["unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc"]
TARGET = """\
version: 1
name: here
environment: staging
router: {url: "http://127.0.0.1:1"}
prefill: [{url: "http://127.0.0.1:2"}]
decode: [{url: "http://127.0.0.1:3"}]
allow: []
"""
WORLD = """
import json, os, signal, subprocess, sys
for folder in ("/run", "/dev/shm"):
    subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
from chaos.engine.hosts import Hosts
from chaos.engine.hosts.lock import lock_keys
from chaos.outpost import guards, locks, marks, state
from chaos import library

target = library.load_target("target.yaml").value
((_, keys),) = lock_keys(target, Hosts.here(target))

def marked(run, owner, code="import signal; signal.pause()"):
    env = {**os.environ, marks.RUN: run, marks.OWNER: owner}
    return subprocess.Popen([sys.executable, "-c", code], env=env)

def sweep(*words):
    command = [sys.executable, "-m", "chaos", "sweep", "--target", "target.yaml", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    said.append({"code": done.returncode, "out": done.stdout, "err": done.stderr})

said = []
PLAY
print(json.dumps(said))
"""


def world(tmp_path: Path, play: str) -> list[dict]:
    """Run `play` alone: own processes, own network, own folders for records; what each `sweep(...)` in it said."""
    (tmp_path / "target.yaml").write_text(TARGET)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160", "NO_COLOR": "1"}
    if subprocess.run([*ALONE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make namespaces")
    done = subprocess.run(
        [*ALONE, sys.executable, "-c", WORLD.replace("PLAY", play)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=env,
        timeout=240,
    )
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_nothing_left_is_nothing_to_do(tmp_path: Path) -> None:
    (said,) = world(tmp_path, "sweep()")
    assert (0, "nothing of ours was found\n") == (said["code"], said["out"])


def test_leftovers_are_told_by_a_dry_run_and_removed_by_the_next(tmp_path: Path) -> None:
    play = """
left = marked("dead0001", "999999:1")
locks.take(keys, "dead0002", "ops@laptop", -1.0)
frozen = subprocess.Popen(["sleep", "300"])
os.kill(frozen.pid, signal.SIGSTOP)
start = marks.proc.stat(frozen.pid).start_ticks
record = {"run": "dead0003", "fault": "freeze", "undo": [{"cont": [[frozen.pid, start]]}], "guard": "999998:1",
          "owner": "999999:1", "boot": marks.proc.boot_id()}
state.write(state.private_folder() / "dead0003-freeze.json", record)
sweep("--dry-run")
assert left.poll() is None and marks.proc.stat(frozen.pid).state == "T"
sweep()
assert left.wait(10) is not None and marks.proc.stat(frozen.pid).state != "T"
sweep()
"""
    looked, swept, again = world(tmp_path, play)
    assert 8 == looked["code"], looked
    for run in ("dead0001", "dead0002", "dead0003"):
        assert run in looked["out"]
    assert 3 == looked["out"].count("would be removed"), looked["out"]
    assert (0, 3) == (swept["code"], swept["out"].count("removed")), swept
    assert (0, "nothing of ours was found\n") == (again["code"], again["out"])


def test_what_a_living_run_owns_is_left_alone_until_somebody_says_why(tmp_path: Path) -> None:
    play = """
living = marked("live0001", marks.me())
locks.take(keys, "live0001", "ops@laptop", 600.0, target="here")
sweep()
assert living.poll() is None
sweep("--steal-lock", "")
sweep("--steal-lock", "it hangs")
assert living.wait(10) is not None
sweep()
"""
    left, unsaid, stolen, again = world(tmp_path, play)
    assert (0, 1) == (left["code"], left["out"].count("left alone")), left
    assert "2 things of run live0001 of ops@laptop on here, since " in left["out"], left
    assert "it holds the lock of this target: --steal-lock REASON" in left["out"], left
    assert 2 == unsaid["code"]
    assert (0, 2) == (stolen["code"], stolen["out"].count("removed")), stolen
    assert (0, "nothing of ours was found\n") == (again["code"], again["out"])


def test_what_living_runs_on_other_targets_own_is_never_taken_and_told_with_who_where_and_since_when(
    tmp_path: Path,
) -> None:
    play = """
mine, others = (marked(run, marks.me()) for run in ("live0001", "live0002"))
unlocked = marked("live0003", marks.me())
locks.take(keys, "live0001", "ops@laptop", 600.0, target="here")
locks.take(["cc", "dd"], "live0002", "eve@desk", 600.0, target="neighbour")
frozen = subprocess.Popen(["sleep", "300"])
os.kill(frozen.pid, signal.SIGSTOP)
guards.arm("live0002", "freeze", 600.0, [{"cont": [[frozen.pid, marks.proc.stat(frozen.pid).start_ticks]]}])
sweep("--dry-run", "--steal-lock", "it hangs")
assert mine.poll() is None
sweep("--steal-lock", "it hangs")
assert mine.wait(10) is not None
assert others.poll() is None and unlocked.poll() is None and marks.proc.stat(frozen.pid).state == "T"
assert ["live0002"] * 2 == [lock["run"] for lock in locks.seen()]
sweep()
"""
    dry, stolen, again = world(tmp_path, play)
    assert (8, 2) == (dry["code"], dry["out"].count("would be removed")), dry
    assert (0, 2) == (stolen["code"], stolen["out"].count("removed")), stolen
    for said in (dry, stolen, again):
        assert "3 things of run live0002 of eve@desk on neighbour, since 20" in said["out"], said
        assert "1 thing of run live0003, since 20" in said["out"], said
        assert 2 == said["out"].count("it lives, and is not of this target"), said
    assert (0, True) == (again["code"], again["out"].startswith("nothing of ours was left behind")), again


def test_of_many_runs_that_live_five_are_named_those_on_this_target_first(tmp_path: Path) -> None:
    play = """
others = [marked(f"live000{number}", marks.me()) for number in range(6)]
mine = marked("mine0001", marks.me())
locks.take(keys, "mine0001", "ops@laptop", 600.0, target="here")
sweep()
"""
    (said,) = world(tmp_path, play)
    named = [line for line in said["out"].splitlines() if line.startswith("left alone on this machine: ")]
    assert (0, 5, True) == (said["code"], len(named), "of run mine0001 of ops@laptop on here" in named[0]), said
    assert said["out"].endswith("\nand 2 more on this machine, likewise left alone\n"), said


def test_what_cannot_be_taken_back_is_told_with_its_reason_and_forgotten_for_a_reason(tmp_path: Path) -> None:
    play = """
record = {"run": "dead0001", "fault": "cut", "undo": [{"argv": ["false"]}], "guard": "999998:1", "owner": "999999:1",
          "boot": marks.proc.boot_id()}
state.write(state.private_folder() / "dead0001-cut.json", record)
(state.private_folder() / "dead0002-cut.json").write_text("{")
sweep()
sweep("--forget", "dead0001-cut")
sweep("--because", "nobody knows")
sweep("--forget", "no-such", "--because", "the interface is gone")
sweep("--forget", "dead0001-cut", "--because", "the interface is gone")
sweep("--forget", "dead0002-cut", "--because", "looked at it")
sweep()
"""
    said, no_reason, no_id, unknown, forgotten, damaged, after = world(tmp_path, play)
    assert (8, True) == (said["code"], "STILL THERE: false: it ended with code 1" in said["out"]), said
    told = "by hand, on this machine, about fault cut (its record: /run/pdchaos/dead0001-cut.json):\n    false\n"
    assert told in said["out"], said
    assert "pdchaos sweep --target target.yaml --forget dead0001-cut --because REASON\n" in said["out"]
    assert "    cat /run/pdchaos/dead0002-cut.json\n" in said["out"], said
    assert [2, 2, 2] == [one["code"] for one in (no_reason, no_id, unknown)]
    assert "there are: dead0001-cut on this machine, dead0002-cut on this machine" in unknown["err"], unknown
    assert 0 == forgotten["code"], forgotten
    assert "removed /run/pdchaos/dead0001-cut.json on this machine: {" in forgotten["out"], forgotten
    assert "(the interface is gone): nothing was undone" in forgotten["err"]
    assert "at your risk" in forgotten["err"]
    assert 0 == damaged["code"], damaged
    assert (0, "nothing of ours was found\n") == (after["code"], after["out"])


def test_a_lab_has_nothing_to_sweep_and_a_host_that_cannot_be_reached_is_doubt(tmp_path: Path) -> None:
    play = """
command = [sys.executable, "-m", "chaos", "sweep", "--target", "lab:sim"]
done = subprocess.run(command, capture_output=True, text=True, timeout=120)
said.append({"code": done.returncode, "err": done.stderr})
text = open("target.yaml").read().replace('2"}', '2", ssh: {host: 127.0.0.1, port: 9, ssh_config: false}}')
open("target.yaml", "w").write(text)
sweep()
"""
    lab, lost = world(tmp_path, play)
    assert (2, True) == (lab["code"], "ends with the run" in lab["err"])
    assert (8, True) == (lost["code"], "127.0.0.1" in lost["err"]), lost
    assert "nothing of ours was found" in lost["out"], "the other host was looked at all the same"
