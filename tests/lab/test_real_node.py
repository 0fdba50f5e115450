"""A node of a real engine under its warden: real processes that daemonise, die, stop and are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from lab_client import eventually

from chaos.lab.real.node import Node, Order
from chaos.model.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

# starts a child that makes itself a session of its own, as an engine's worker may
FAMILY = """
import subprocess, sys, time
child = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child])
print("up", flush=True); print("words on stderr", file=sys.stderr, flush=True); time.sleep(600)
"""

OWNER = """
import sys, time
from pathlib import Path
from chaos.lab.real.node import Node, Order
folder = Path(sys.argv[1])
node = Node(Order("n", [sys.executable, "-c", sys.argv[2]], {}, folder, folder / "n.log", folder / "n.pid"))
while len((folder / "n.log").read_text().split()) < 5: time.sleep(0.01)
print(node.pid, flush=True); time.sleep(600)
"""


def order(folder: Path, *command: str) -> Order:
    return Order("n", command or (sys.executable, "-c", FAMILY), {}, folder, folder / "n.log", folder / "n.pid")


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def grandchild(log: Path) -> int:
    eventually(lambda: len(log.read_text().split()) == 5, "the family is complete")
    return next(int(word) for word in log.read_text().split() if word.isdigit())


def test_stop_ends_a_node_to_its_last_child_even_where_one_made_itself_a_session_and_one_is_stopped(tmp_path):
    node = Node(order(tmp_path))
    child = grandchild(tmp_path / "n.log")
    os.kill(node.pid, signal.SIGSTOP)
    assert [] == node.stop()
    assert not lives(node.pid)
    assert not lives(child)
    assert [] == node.stop()


def test_both_streams_are_in_the_log_and_the_pid_in_its_file(tmp_path):
    node = Node(order(tmp_path))
    try:
        grandchild(tmp_path / "n.log")
        assert "words on stderr" in (tmp_path / "n.log").read_text()
        assert f"{node.pid}\n" == (tmp_path / "n.pid").read_text()
        assert node.said(b"words on stderr")
    finally:
        node.stop()


def test_a_second_start_does_not_take_the_firsts_words_for_its_own(tmp_path):
    first = Node(order(tmp_path))
    grandchild(tmp_path / "n.log")
    first.stop()
    second = Node(order(tmp_path, "sleep", "60"))
    try:
        assert not second.said(b"up")
        assert b"up" in (tmp_path / "n.log").read_bytes()
    finally:
        second.stop()


def test_a_main_process_that_is_killed_takes_nothing_along_until_stop(tmp_path):
    node = Node(order(tmp_path))
    child = grandchild(tmp_path / "n.log")
    node.check()
    os.kill(node.pid, signal.SIGKILL)
    eventually(lambda: node.exit_status == -signal.SIGKILL, "the warden tells")
    assert lives(child)
    with pytest.raises(LabError, match=r"n died \(signal 9\)\n(?s:.*)words on stderr"):
        node.check()
    assert [] == node.stop()
    assert not lives(child)


def test_a_program_that_is_not_there_is_a_lab_error(tmp_path):
    with pytest.raises(LabError, match=r"n could not be started: .*nowhere: No such file"):
        Node(order(tmp_path, str(tmp_path / "nowhere")))


def test_nothing_outlives_an_owner_that_is_killed(tmp_path):
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path), FAMILY], stdout=subprocess.PIPE, text=True)
    with owner, owner.stdout as said:
        main, child = int(said.readline()), grandchild(tmp_path / "n.log")
        assert lives(main)
        assert lives(child)
        owner.kill()
        owner.wait()
        eventually(lambda: not lives(main) and not lives(child), "all is gone")
