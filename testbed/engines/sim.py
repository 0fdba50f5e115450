"""The embedded lab: the processes that `lab:sim` starts, each bound to its host's address."""

from __future__ import annotations

import dataclasses
import os
import select
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from chaos.lab.options import read_options
from chaos.lab.sim.config import NodeConfig, Role, Settings, Upstream
from testbed.engines.kind import Engine, Started
from testbed.errors import BedError
from testbed.plan import BOOTSTRAP_PORT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from testbed.engines.kind import Streams
    from testbed.plan import HostPlan, Plan

_RELOAD_S = 20.0  # a restarted engine loads for this long, times the time scale, before anybody listens


class Sim(Engine):
    """A build of the embedded lab."""

    def __init__(self, plan: Plan, build: str) -> None:
        self._plan = plan
        self._build = build
        self._settings = dataclasses.replace(
            read_options("sim", Settings, plan.options),
            prefill=len(plan.by_role("prefill")),
            decode=len(plan.by_role("decode")),
        )
        self.reload_s = _RELOAD_S * self._settings.time_scale

    def start(self, host: HostPlan, streams: Streams, logs: tuple[Path, Path]) -> Started:  # noqa: ARG002
        """Bind its ports, and hand them down."""
        sockets = {use: _listen(host.address, port) for use, port in host.ports.items()}
        ready, theirs = os.pipe()
        try:
            process = self._spawn(self._config(host, sockets, theirs), streams)
        finally:
            os.close(theirs)
            for each in sockets.values():
                each.close()
        return Started(process, lambda timeout_s: _heard(ready, timeout_s))

    def warm(self) -> None:
        """Nothing does."""

    @staticmethod
    def _spawn(config: NodeConfig, streams: Streams) -> subprocess.Popen[bytes]:
        out, err = streams
        process = subprocess.Popen(
            [sys.executable, "-m", f"chaos.lab.sim.{config.role}"],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            pass_fds=(*config.sockets.values(), config.ready_fd),
            start_new_session=True,
        )
        if process.stdin is not None:
            try:
                process.stdin.write(config.to_json().encode() + b"\n")
                process.stdin.flush()  # and stays open: it is the node's lifeline
            except BrokenPipeError:
                pass  # it died at once; waiting for it says how
        return process

    def _config(self, host: HostPlan, sockets: Mapping[str, socket.socket], ready: int) -> NodeConfig:
        assert host.role != "laptop"  # noqa: S101, for mypy: it has no node
        knows = host.role == "router"
        return NodeConfig(
            role=host.role,
            name=host.name,
            build=self._build,
            settings=self._settings,
            sockets={use: each.fileno() for use, each in sockets.items()},
            ready_fd=ready,
            bootstrap_port=host.ports.get("bootstrap", BOOTSTRAP_PORT),
            prefill=self._upstreams("prefill") if knows else (),
            decode=self._upstreams("decode") if knows else (),
            address=host.address,
        )

    def _upstreams(self, role: Role) -> tuple[Upstream, ...]:
        return tuple(Upstream(each.url, each.ports.get("bootstrap", 0)) for each in self._plan.by_role(role))


def _heard(ready: int, timeout_s: float) -> bool:
    """Whether the node said that it serves, on the pipe that it was given for this."""
    try:
        return bool(select.select([ready], [], [], timeout_s)[0] and os.read(ready, 1))
    finally:
        os.close(ready)


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
