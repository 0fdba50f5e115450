"""A deployment of somebody else is restarted as its owner says, or the trials are refused."""

from __future__ import annotations

import shlex
import socket
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from chaos.engine.fresh import demand_restart, restart_deployment
from chaos.engine.hosts import Here, Hosts
from chaos.model.errors import HarnessError, Refused
from chaos.model.target import ServerSpec, Target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def target(port: int, restart: str | None, allow: tuple[str, ...] = ("kill", "restart")) -> Target:
    spec = ServerSpec(url=f"http://127.0.0.1:{port}")
    return Target(
        version=1, name="here", router=spec, prefill=[spec], decode=[spec], allow=list(allow), restart=restart
    )


def restarted(target: Target, say: Callable[[str], None] = lambda _: None, **limits: float) -> None:
    restart_deployment(target, say, Hosts.here(target), **limits)


class Elsewhere(Here):
    """Another machine, on which everything listens."""

    def call_now(self, op: str, /, *, timeout_s: float = 0.0, **args: object) -> str:
        assert ("deaf", "127.0.0.1") == (op, args["host"])
        return ""


def test_servers_behind_ssh_are_tried_from_their_own_hosts() -> None:
    here = target(free_port(), "true")
    hosts = Hosts(dict.fromkeys((server.id for server in here.servers), Elsewhere()), Here())
    restart_deployment(here.model_copy(update={"via": "tunnel"}), lambda _: None, hosts, listens_s=0)
    with pytest.raises(HarnessError, match="accepts no connection"):
        restart_deployment(here, lambda _: None, hosts, listens_s=0)


def test_a_target_that_says_nothing_or_does_not_allow_it_is_refused_with_the_place_and_what_to_write() -> None:
    demand_restart(target(1, "true"), "s.yaml:9:18")
    with pytest.raises(Refused, match=r"^s\.yaml:9:18: every trial .* here says no way") as silent:
        demand_restart(target(1, None, ("kill",)), "s.yaml:9:18")
    assert "allow: [kill, restart]" in silent.value.hint
    with pytest.raises(Refused, match=r"^s\.yaml:9:18: .* does not allow"):
        demand_restart(target(1, "true", ("kill",)), "s.yaml:9:18")


def test_it_waits_until_every_server_accepts_connections(tmp_path: Path) -> None:
    port, pidfile = free_port(), tmp_path / "pid"
    code = (
        "import os, socket, sys, time; open(sys.argv[2], 'w').write(str(os.getpid())); time.sleep(0.7); "
        "s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(60)"
    )
    serve = shlex.join([sys.executable, "-c", code, str(port), str(pidfile)])
    said: list[str] = []
    begun = time.monotonic()
    restarted(target(port, f"{serve} >/dev/null 2>&1 &"), said.append, listens_s=30)
    socket.create_connection(("127.0.0.1", port)).close()
    psutil.Process(int(pidfile.read_text())).kill()
    assert (["restarting here"], True) == (said, time.monotonic() - begun >= 0.7)


def test_a_command_that_fails_or_starts_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="ended with 3: no such host"):
        restarted(target(free_port(), "echo no such host; exit 3"), lambda _: None)
    with pytest.raises(HarnessError, match="router-0 accepts no connection 0 s after the restart"):
        restarted(target(free_port(), "true"), lambda _: None, listens_s=0)
    with pytest.raises(HarnessError, match=r"did not end within 0\.1 s"):
        restarted(target(free_port(), "sleep 30"), lambda _: None, timeout_s=0.1)
