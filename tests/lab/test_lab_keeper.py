"""A lab kept up in the background."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from lab_client import eventually

from chaos import library
from chaos.lab import keeper
from chaos.lab.keeper import State
from chaos.model.errors import LabError, UsageError

OPTIONS = {"time_scale": "0.02"}
keepers: list[int] = []
"""Those that were started: they are to outlive whoever starts them, so nobody else waits for one that has ended."""


@pytest.fixture
def folder(tmp_path):
    yield tmp_path / "kept"
    assert [] == keeper.down(tmp_path / "kept")
    while keepers:
        with suppress(ChildProcessError):
            os.waitpid(keepers.pop(), 0)


def up(folder, **more):
    kept = keeper.up("sim@nixl-abort-unhandled", OPTIONS, folder, lambda _: None, **more)
    keepers.append(kept.keeper_pid)
    return kept


def test_up_starts_a_lab_that_status_sees_and_down_stops(folder):
    kept = up(folder)
    assert (State.UP, "sim@nixl-abort-unhandled", 3) == (kept.state, kept.lab, len(kept.pids))
    assert 0 < kept.seconds_left <= keeper.DEFAULT_TTL_S
    assert kept.pids == keeper.status(folder).pids
    # a session of its own: neither ctrl-C nor a closed terminal reaches it
    assert kept.keeper_pid == os.getsid(kept.keeper_pid) != os.getsid(0)
    with pytest.raises(UsageError, match="already up"):
        up(folder)

    target = library.load_target(kept.target).value  # the file is one that pdchaos reads
    assert list(kept.pids) == [
        int(Path(spec.pidfile).read_text()) for spec in (target.router, *target.prefill, *target.decode)
    ]
    assert (0.02, pytest.approx(6.0), pytest.approx(0.7)) == (
        target.time_scale,
        target.timeouts["waiting"],
        target.gauge_lag,
    )
    assert str(folder.resolve() / "prefill-0.log") == target.prefill[0].log[0].file

    assert [] == keeper.down(folder)
    assert State.DOWN is keeper.status(folder).state
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in kept.pids)


def test_a_kept_lab_ends_when_its_time_is_over(folder):
    up(folder, ttl_s=0.3)
    eventually(lambda: State.DOWN is keeper.status(folder).state, "its time is over")
    assert not (folder / keeper.STATE_FILE).exists()


def test_a_dead_node_and_a_killed_keeper_are_told(folder):
    kept = up(folder)
    os.kill(kept.pids[2], signal.SIGKILL)
    eventually(lambda: State.DEGRADED is keeper.status(folder).state, "a node is missing")
    assert (kept.pids[2],) == keeper.status(folder).dead
    os.kill(kept.keeper_pid, signal.SIGKILL)
    eventually(lambda: State.DOWN is keeper.status(folder).state, "the keeper is gone")
    assert [] == keeper.down(folder)


def test_its_target_file_restarts_its_nodes_also_several_at_once(folder):
    kept = up(folder)
    target = library.load_target(kept.target).value
    commands = [target.prefill[0].restart, target.decode[0].restart]
    running = [subprocess.Popen(shlex.split(command), stdout=subprocess.DEVNULL) for command in commands]
    assert [0, 0] == [process.wait(60) for process in running]
    eventually(lambda: State.UP is keeper.status(folder).state, "all nodes are up")
    now = keeper.status(folder).pids
    assert kept.pids[0] == now[0]
    assert not {*kept.pids[1:]} & {*now[1:]}
    # the keeper took its signals back, and the new nodes have none of them blocked
    assert all("SigBlk:\t0000000000000000" in Path(f"/proc/{pid}/status").read_text() for pid in now)
    keeper.restart(folder, "decode-0")
    with pytest.raises(LabError, match="the lab has no node 'decode-7'"):
        keeper.restart(folder, "decode-7")
    assert State.UP is keeper.status(folder).state
    assert not list(folder.glob("restart-*"))


def test_what_is_not_up_cannot_be_restarted(tmp_path):
    with pytest.raises(UsageError, match="no lab is up in"):
        keeper.restart(tmp_path, "decode-0")


def test_a_lab_that_does_not_come_up_says_why(folder, calm):
    port = calm.router.rpartition(":")[2]
    with pytest.raises(LabError, match=f"port {port} on 127.0.0.1 cannot be used"):
        keeper.up("sim", {"port": port}, folder, lambda _: None)


def test_a_state_file_that_is_garbage_is_an_error_with_a_hint(tmp_path):
    (tmp_path / keeper.STATE_FILE).write_text("{")
    with pytest.raises(LabError, match="cannot be read"):
        keeper.status(tmp_path)
