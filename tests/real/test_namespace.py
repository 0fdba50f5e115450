"""The namespace is real, reachable from here and from nowhere else, and gone whatever happens to its owner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos.lab.real import namespace
from chaos.lab.real.namespace import Enclosure, enclose, pids_inside, sweep
from chaos.model.errors import LabError


def can_enclose() -> bool:
    if os.geteuid() != 0:
        return False
    try:
        with enclose() as enclosure:
            return bool(enclosure.name)
    except LabError:
        return False


needs_root = pytest.mark.skipif(not can_enclose(), reason="needs root and the right to make network namespaces")

SERVER = (
    "import http.server as h, sys; h.ThreadingHTTPServer(('0.0.0.0', 8000), h.SimpleHTTPRequestHandler).serve_forever()"
)


def serve_inside(enclosure: Enclosure, folder: Path) -> subprocess.Popen[bytes]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(enclosure.command([sys.executable, "-c", SERVER]), cwd=folder, **quiet)


def connects(address: str, port: int, within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((address, port), timeout=1.0):
                return True
        except OSError:
            time.sleep(0.02)
    return False


def gone(pid: int, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def traces(name: str) -> list[str]:
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    cable = namespace._cable(name)
    return [line for line in (*links.splitlines(), *spaces.splitlines()) if cable in line or name in line]


def await_no_traces(name: str, within_s: float = 10.0) -> list[str]:
    deadline = time.monotonic() + within_s
    while (left := traces(name)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


@needs_root
def test_a_server_inside_is_reached_from_here_by_its_address_and_keeps_the_pid_it_was_started_with(tmp_path: Path):
    with enclose() as enclosure:
        server = serve_inside(enclosure, tmp_path)
        assert connects(enclosure.address, 8000)
        assert [server.pid] == pids_inside(enclosure.name)
        assert not connects("127.0.0.1", 8000, within_s=0.2)
    server.wait()
    assert [] == traces(enclosure.name)


@needs_root
def test_nothing_inside_knows_a_way_out():
    with enclose() as enclosure:
        show = enclosure.command(["ip", "-4", "route", "show"])
        routes = subprocess.run(show, capture_output=True, text=True, check=True).stdout.splitlines()
    assert 1 == len(routes), routes
    assert routes[0].startswith("10.213.")


@needs_root
def test_leaving_ends_what_is_inside_even_when_it_is_stopped(tmp_path: Path):
    enclosure = enclose()
    server = serve_inside(enclosure, tmp_path)
    assert connects(enclosure.address, 8000)
    os.kill(server.pid, signal.SIGSTOP)
    assert [] == enclosure.close()
    assert -signal.SIGKILL == server.wait()
    assert [] == traces(enclosure.name)


OWNER = """
import subprocess, sys, time
from chaos.lab.real.namespace import enclose
enclosure = enclose()
sleep = enclosure.command([sys.executable, "-c", "import time; time.sleep(600)"])
inside = subprocess.Popen(sleep, stdout=subprocess.DEVNULL)
print(enclosure.name, inside.pid, enclosure._supervisor.pid, flush=True)
time.sleep(600)
"""


def start_owner() -> tuple[subprocess.Popen[str], str, int, int]:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    name, inside, supervisor = owner.stdout.readline().split()
    return owner, name, int(inside), int(supervisor)


def kill(owner: subprocess.Popen[str]) -> None:
    owner.kill()
    owner.communicate()


@needs_root
def test_nothing_is_left_when_the_owner_is_killed():
    owner, name, inside, supervisor = start_owner()
    kill(owner)
    assert gone(inside)
    assert gone(supervisor)
    assert [] == await_no_traces(name)


@needs_root
def test_the_next_start_sweeps_what_a_killed_supervisor_left_and_spares_what_is_in_use():
    with enclose() as in_use:
        owner, name, inside, supervisor = start_owner()
        os.kill(supervisor, signal.SIGKILL)
        kill(owner)
        assert gone(supervisor)
        sweep()  # whoever starts a lab on this machine at this moment may come first
        assert gone(inside)
        assert [] == traces(name)
        assert traces(in_use.name)


@needs_root
def test_who_looks_for_latecomers_of_a_dead_owner_spares_the_next_namespace():
    """The kernel gives the number of a namespace that is gone to the next one that is made."""
    owner, name, _, supervisor = start_owner()
    kill(owner)
    assert [] == await_no_traces(name)
    with enclose() as after:
        inside = [subprocess.Popen(after.command(["sleep", "600"])) for _ in range(3)]
        assert gone(supervisor)
        assert [None] * 3 == [process.poll() for process in inside]
    assert [-signal.SIGKILL] * 3 == [process.wait() for process in inside]


@needs_root
def test_a_supervisor_that_was_killed_is_stood_in_for_by_its_owner(tmp_path: Path):
    enclosure = enclose()
    server = serve_inside(enclosure, tmp_path)
    assert enclosure._supervisor is not None
    enclosure._supervisor.kill()
    assert [] == enclosure.close()
    assert -signal.SIGKILL == server.wait()
    assert [] == traces(enclosure.name)


def test_who_is_not_root_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(namespace, "_only_loopback", lambda: False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="only root can enclose it") as raised:
        enclose()
    assert "unshare -rn" in raised.value.hint


@needs_root
def test_a_refusal_of_the_machine_is_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    fake = tmp_path / "ip"
    fake.write_text("#!/bin/sh\necho 'Operation not permitted' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(LabError, match=r"cannot be enclosed: ip netns add .*: Operation not permitted"):
        enclose()


@needs_root
def test_a_namespace_that_has_only_loopback_is_used_as_it_is():
    script = (
        "from chaos.lab.real.namespace import enclose; e = enclose(); print(e.name, e.address, e.command(['true']))"
    )
    with enclose() as outer:
        alone = ["unshare", "-n", "sh", "-c", 'ip link set lo up; exec "$0" -c "$1"', sys.executable, script]
        told = subprocess.run(outer.command(alone), capture_output=True, text=True, check=True)
    assert " 127.0.0.1 ['true']\n" == told.stdout
