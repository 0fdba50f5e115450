"""A server's process is found by every selector, and refused where two unrelated ones fit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from people import STAYS, listening, running, staying, tool, until

from chaos.outpost import find as finding
from chaos.outpost import proc
from chaos.outpost.find import find, locate
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = 2**22 + 1


def refused(**selectors: object) -> tuple[str, str]:
    with pytest.raises(Trouble) as caught:
        find(**selectors)
    return caught.value.kind, caught.value.text


def test_a_process_is_found_by_its_pid_with_when_it_started() -> None:
    me = locate(pid=os.getpid())
    assert (os.getpid(), psutil.Process().create_time()) == (me["pid"], me["start_time"])


def test_a_process_is_found_by_a_pid_file(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(f" {os.getpid()} \n")
    assert os.getpid() == find(pidfile=str(tmp_path / "pid")).pid


def test_the_first_selector_counts_and_none_finds_nothing(tmp_path: Path) -> None:
    assert os.getpid() == find(port=1, pid=os.getpid(), pidfile=None).pid
    assert ("not-located", "nothing says how to find it") == refused(pid=None)


def test_what_is_not_there_says_why(tmp_path: Path, unused_tcp_port: int) -> None:
    (tmp_path / "words").write_text("no pid")
    os.mkfifo(tmp_path / "pipe")
    gone = str(tmp_path / "gone")
    assert ("not-located", f"the target's pid, {NOBODY}, is no process on its host") == refused(pid=NOBODY)
    assert ("not-located", f"cannot read {gone}: No such file or directory") == refused(pidfile=gone)
    assert ("not-located", f"{tmp_path}/words holds no pid") == refused(pidfile=str(tmp_path / "words"))
    assert ("not-located", f"{tmp_path}/pipe holds no pid") == refused(pidfile=str(tmp_path / "pipe"))
    assert ("not-located", f"nobody on its host listens on port {unused_tcp_port}") == refused(port=unused_tcp_port)
    assert ("not-located", "no process has exactly the command line 'no such thing'") == refused(
        cmdline="no such thing"
    )


def test_a_zombie_is_no_server() -> None:
    with subprocess.Popen(["true"]) as child:
        until(lambda: (seen := proc.stat(child.pid)) is not None and seen.state == "Z")
        assert ("not-located", f"the target's pid, {child.pid}, is a zombie") == refused(pid=child.pid)


# ---------------------------------------------------------------------------------------------- by command line


def test_a_command_line_must_fit_exactly() -> None:
    with staying("an engine", "--port", "1") as process:
        whole = f"{sys.executable} -c {STAYS} an engine --port 1"
        assert process.pid == find(cmdline=whole).pid
        for near in (whole[:-2], whole + " 2", whole.replace(sys.executable, "python")):
            assert "not-located" == refused(cmdline=near)[0]


def test_two_of_a_command_line_are_refused_with_their_pids_and_a_fork_belongs_to_its_parent() -> None:
    forks = "import os, sys\nos.fork()\nos.write(1, b'up\\n')\nsys.stdin.read()"
    with running("-c", forks, "twin") as one:
        assert ["up\n", "up\n"] == [one.stdout.readline(), one.stdout.readline()]
        whole = f"{sys.executable} -c {forks} twin"
        assert one.pid == find(cmdline=whole).pid
        with running("-c", forks, "twin") as other:
            assert "up\n" == other.stdout.readline()
            kind, text = refused(cmdline=whole)
        first, second = sorted((one.pid, other.pid))
        assert "ambiguous" == kind
        assert text.endswith(f"fits 2 unrelated processes: pid {first} (python), pid {second} (python)")


# ---------------------------------------------------------------------------------------------- by port


def test_of_a_server_and_the_workers_that_inherited_its_socket_the_server_is_meant() -> None:
    with listening(children=2) as (server, port):
        assert server.pid == find(port=port).pid


def test_a_worker_that_outlived_its_server_holds_the_port() -> None:
    with listening(children=1) as (server, port):
        (child,) = psutil.Process(server.pid).children()
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        assert child.pid == find(port=port).pid


def test_two_servers_that_share_a_port_are_refused_with_their_pids() -> None:
    with listening() as (one, port), listening(port) as (other, _):
        kind, text = refused(port=port)
        first, second = sorted((one.pid, other.pid))
    told = f"port {port} fits 2 unrelated processes: pid {first} (python), pid {second} (python)"
    assert ("ambiguous", told) == (kind, text)


def test_a_child_with_a_listening_socket_of_its_own_is_another_server() -> None:
    code = (
        "import socket, subprocess, sys\nfrom socket import create_server as make\n"
        "mine = make(('127.0.0.1', 0), reuse_port=True); port = mine.getsockname()[1]\n"
        "child = 'import socket, sys; s = socket.create_server((\"127.0.0.1\", int(sys.argv[1])), reuse_port=True);'\n"
        "child += 'print(s.getsockname()[1], flush=True); sys.stdin.read()'\n"
        "subprocess.Popen([sys.executable, '-c', child, str(port)])\nsys.stdin.read()"
    )
    with running("-c", code) as process:
        assert "ambiguous" == refused(port=int(process.stdout.readline()))[0]


def test_a_listener_of_another_user_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(_pid: int) -> set[str]:
        raise PermissionError(13, "Permission denied")

    with listening() as (_, port):
        monkeypatch.setattr(proc, "sockets", hidden)
        assert ("denied", f"the listener on port {port} belongs to another user") == refused(port=port)


# ---------------------------------------------------------------------------------------------- by unit, by container


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_a_unit_s_main_process_is_found(tools: Path) -> None:
    asked = tools / "asked"
    tool(tools, "systemctl", f'echo "$@" > {asked}; echo LoadState=loaded; echo MainPID={os.getpid()}')
    assert os.getpid() == find(systemd="engine").pid
    assert "show --property=LoadState,ActiveState,MainPID engine.service\n" == asked.read_text()


def test_a_unit_without_a_main_process_is_found_by_its_control_group(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tools, "systemctl", "echo LoadState=loaded; echo ActiveState=active; echo MainPID=0")
    assert ("not-located", "no process belongs to the unit engine.service (it is active)") == refused(systemd="engine")
    read = proc.read

    def grouped(path: str) -> bytes:
        mine = path == f"/proc/{os.getpid()}/cgroup"
        return b"0::/system.slice/engine.service/inner\n" if mine else read(path)

    monkeypatch.setattr(proc, "read", grouped)
    assert os.getpid() == find(systemd="engine.service").pid


def test_a_host_without_systemd_is_no_trouble_but_an_unknown_unit_is(tools: Path) -> None:
    assert ("not-located", "no process belongs to the unit engine.service") == refused(systemd="engine")
    tool(tools, "systemctl", "echo LoadState=not-found; echo ActiveState=inactive; echo MainPID=0")
    assert ("not-located", "systemd knows no unit engine.service") == refused(systemd="engine")


def test_a_container_s_process_is_found(tools: Path) -> None:
    tool(tools, "docker", f"[ $# = 6 ] && [ $6 = prefill-0 ] && echo {os.getpid()}")
    assert os.getpid() == find(docker="prefill-0").pid


def test_a_container_that_is_not_there_or_does_not_run_is_told(tools: Path) -> None:
    assert ("missing", "the container c cannot be asked for: there is no docker command on this host") == refused(
        docker="c"
    )
    tool(tools, "docker", "echo 0")
    assert ("not-located", "the container c does not run") == refused(docker="c")
    tool(tools, "docker", "echo 'Error: No such container: c' >&2; exit 1")
    assert ("not-located", "docker inspect failed with 1: Error: No such container: c") == refused(docker="c")


def test_a_tool_that_hangs_is_given_up(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "ASK_S", 0.05)
    tool(tools, "docker", "exec /bin/sleep 30")
    assert ("not-located", "docker did not answer within 0.05 s") == refused(docker="c")
