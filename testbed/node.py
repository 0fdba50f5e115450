"""The engine's node on a host: a process of the embedded lab, as a service manager would run it.

Killed, it stays dead until it is restarted, and its pid file keeps the old number. Its log goes to a file, or where
only `pd-logs` finds it.
"""

from __future__ import annotations

import dataclasses
import os
import select
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from chaos.lab.options import read_options
from chaos.lab.sim.config import NodeConfig, Role, Settings, Upstream
from testbed.errors import BedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from testbed.folder import HostFolder
    from testbed.plan import HostPlan, Plan

RELOAD_S = 20.0  # a restarted engine loads for this long, times the time scale, before anybody listens
_READY_TIMEOUT_S = 60.0
_TAIL = 2000


class Node:
    """Started, ended, restarted."""

    def __init__(self, plan: Plan, host: HostPlan, settings: Settings, folder: HostFolder) -> None:
        self._plan = plan
        self._host = host
        self._settings = settings
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._changing = threading.Lock()
        self.out, self.err = log_files(folder, host)

    @property
    def pid(self) -> int:
        """Of the process; 0 when it is dead."""
        return self._process.pid if self._process and self._process.returncode is None else 0

    def start(self) -> None:
        """Return once it serves; BedError carries the end of its log."""
        with self._changing:
            if not self.pid:
                self._start()

    def stop(self) -> None:
        """SIGKILL it."""
        with self._changing:
            self._end()

    def restart(self) -> None:
        """End it, and start it anew on the same ports."""
        with self._changing:
            self._end()
            time.sleep(RELOAD_S * self._settings.time_scale)
            self._start()

    def _end(self) -> None:
        process = self._process
        if process is not None and self.pid:
            process.kill()
            process.wait(_READY_TIMEOUT_S)
        if process is not None and process.stdin is not None:
            process.stdin.close()

    def _start(self) -> None:
        sockets = {use: _listen(self._host.address, port) for use, port in self._host.ports.items()}
        ready, ready_theirs = os.pipe()
        try:
            process = self._spawn(sockets, ready_theirs)
        finally:
            os.close(ready_theirs)
            for each in sockets.values():
                each.close()
        threading.Thread(target=process.wait, daemon=True).start()  # so that it is no zombie when somebody kills it
        self._process = process
        self._folder.pidfile(self._host.name).write_text(f"{process.pid}\n")
        try:
            if not select.select([ready], [], [], _READY_TIMEOUT_S)[0] or not os.read(ready, 1):
                raise BedError(f"{self._host.name} does not serve\n{_tail(self.err)}")
        finally:
            os.close(ready)

    def _spawn(self, sockets: Mapping[str, socket.socket], ready: int) -> subprocess.Popen[bytes]:
        config = self._config({use: each.fileno() for use, each in sockets.items()}, ready)
        with self.out.open("ab") as out, self.err.open("ab") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", f"chaos.lab.sim.{config.role}"],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                pass_fds=(*config.sockets.values(), ready),
                process_group=0,
            )
        if process.stdin is not None:
            try:
                process.stdin.write(config.to_json().encode() + b"\n")
                process.stdin.flush()  # and stays open: it is the node's lifeline
            except BrokenPipeError:
                pass  # it died at once; waiting for it says how
        return process

    def _config(self, sockets: dict[str, int], ready: int) -> NodeConfig:
        role = self._host.role
        assert role != "laptop"  # noqa: S101, for mypy: it has no node
        knows = role == "router"
        return NodeConfig(
            role=role,
            name=self._host.name,
            build=self._plan.build,
            settings=self._settings,
            sockets=sockets,
            ready_fd=ready,
            bootstrap_port=self._host.ports.get("bootstrap", 8998),
            prefill=self._upstreams("prefill") if knows else (),
            decode=self._upstreams("decode") if knows else (),
            address=self._host.address,
        )

    def _upstreams(self, role: Role) -> tuple[Upstream, ...]:
        return tuple(Upstream(each.url, each.ports.get("bootstrap", 0)) for each in self._plan.by_role(role))


def log_files(folder: HostFolder, host: HostPlan) -> tuple[Path, Path]:
    """Where a node's standard output and error go."""
    if host.source == "file":
        log = folder.logs / f"{host.name}.log"
        return log, log
    return folder.journal / f"{host.name}.out", folder.journal / f"{host.name}.err"


def settings_of(plan: Plan) -> Settings:
    """The lab's settings; the numbers of nodes are those of the hosts."""
    given = read_options("sim", Settings, plan.options)
    return dataclasses.replace(given, prefill=len(plan.by_role("prefill")), decode=len(plan.by_role("decode")))


def _listen(address: str, port: int) -> socket.socket:
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise BedError(f"port {port} on {address} cannot be used: {error.strerror}") from error
    return listening


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-_TAIL:].decode(errors="replace")
    except OSError:
        return ""
