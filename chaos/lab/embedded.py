"""The embedded lab `sim`: starts and stops its processes. The only part of the sim that knows of the rest of pdchaos.

The starter binds every listening socket itself, on 127.0.0.1 and port 0, and hands it down, so no port can be taken
between choosing and binding it. It keeps each node's stdin open; a node whose stdin ends kills itself.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chaos.lab.kinds import (
    LOOPBACK,
    RUN_ID_VARIABLE,
    BuildInfo,
    LabInfo,
    LabSpec,
    RunningLab,
    log_tail,
    suggest,
)
from chaos.lab.options import list_options, read_options
from chaos.lab.sim.builds import BUILDS, HEALTHY
from chaos.lab.sim.config import Clocks, NodeConfig, Role, Settings, Upstream
from chaos.model.errors import LabError, UsageError
from chaos.model.target import LogFrom, ServerSpec, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SIM = "sim"
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 3.0
RELOAD_S = 20.0  # a restarted engine loads for this long before anybody listens; its peers notice by heartbeat
GAUGE_LAG_S = 35.0  # 30 s between two idle writes, and some slack


class Embedded:
    """The kind `sim`: no installation, historical bugs as builds."""

    name = SIM
    installer = None

    def info(self) -> LabInfo:
        """Every build and option."""
        return LabInfo(
            name=SIM,
            kind="embedded",
            about="router, prefill and decode as processes on this machine that behave as SGLang PD does; no GPU",
            upstream="sglang 0.5.14 and 0.5.16, sglang-router 0.3.2",
            builds=tuple(
                BuildInfo(build.name, build.about, build.version, build.upstream, build.fixed_in)
                for build in BUILDS.values()
            ),
            options=list_options(Settings),
        )

    def parse(self, build: str, options: Mapping[str, str]) -> SimSpec:
        """`sim` or `sim@BUILD`."""
        build = build or HEALTHY
        if build not in BUILDS:
            raise UsageError(f"lab {SIM} has no build {build!r}", hint=suggest(build, list(BUILDS)))
        return SimSpec(kind=SIM, build=build, settings=read_options(SIM, Settings, options))


@dataclass(frozen=True)
class SimSpec(LabSpec):
    """A sim as asked for."""

    kind: str
    build: str
    settings: Settings

    def outline(self) -> Target:
        """Every address and process is a placeholder."""
        nowhere = ServerSpec(url="http://127.0.0.1:1", pid=1)
        prefill = nowhere.model_copy(update={"bootstrap_port": 1})
        return _describe(self, nowhere, [prefill] * self.settings.prefill, [nowhere] * self.settings.decode)

    def start(self, folder: Path, progress: Callable[[str], None], *, run_id: str) -> RunningSim:
        """Start router, prefills and decodes."""
        lab = RunningSim(self, folder, run_id)
        try:
            _launch(lab, progress)
            _await_ready(lab.nodes, progress)
        except BaseException:
            lab.stop()
            raise
        return lab


# ------------------------------------------------------------------------------------------------ what runs


@dataclass(slots=True)
class _Running:
    """One process of a lab."""

    config: NodeConfig
    url: str
    process: subprocess.Popen[bytes]
    log: Path
    pidfile: Path
    ports: dict[str, int]  # by use: `http`, `bootstrap`, `metrics`
    ready: int = field(repr=False)  # our end of the pipe on which it says that it serves

    @property
    def bootstrap_port(self) -> int | None:
        return self.ports.get("bootstrap")


class RunningSim(RunningLab):
    """A sim that serves."""

    def __init__(self, spec: SimSpec, folder: Path, run_id: str) -> None:
        self.spec = spec
        self.folder = folder
        self.run_id = run_id
        self.nodes: list[_Running] = []
        self.metrics_url = ""

    @property
    def name(self) -> str:
        """`lab:sim`."""
        return self.spec.title

    @property
    def pids(self) -> list[int]:
        """Process ids of the nodes, router first."""
        return [node.process.pid for node in self.nodes]

    @property
    def target(self) -> Target:
        """The lab as a target file would describe it."""
        by_role: dict[Role, list[ServerSpec]] = {"router": [], "prefill": [], "decode": []}
        for node in self.nodes:
            by_role[node.config.role].append(
                ServerSpec(
                    url=node.url,
                    metrics=self.metrics_url if node.config.role == "router" else None,
                    log=[LogFrom(file=str(node.log))],
                    pidfile=str(node.pidfile),
                    bootstrap_port=node.bootstrap_port,
                    name=node.config.name,
                )
            )
        return _describe(self.spec, by_role["router"][0], by_role["prefill"], by_role["decode"])

    def restart(self, node: str, variant: str | None = None) -> None:  # noqa: ARG002 - it has no variants
        """SIGKILL a node and start it anew on the ports it had."""
        at = next((at for at, each in enumerate(self.nodes) if each.config.name == node), None)
        if at is None:
            raise LabError(f"the lab has no node {node!r}", hint=suggest(node, [n.config.name for n in self.nodes]))
        old = self.nodes[at]
        _end([old])
        time.sleep(RELOAD_S * self.spec.settings.time_scale)
        upstreams = {"prefill": old.config.prefill, "decode": old.config.decode}
        sockets = {use: _listen(port) for use, port in old.ports.items()}
        self.nodes[at] = _spawn(self, old.config.role, node, sockets, upstreams)
        _await_ready([self.nodes[at]], lambda _: None)

    def reap(self) -> None:
        """Take note of nodes that have ended, so that they are no zombies."""
        for node in self.nodes:
            node.process.poll()

    def stop(self) -> list[int]:
        """SIGTERM, then SIGKILL, each process by its id; the ids of those that would not die."""
        running = [node for node in self.nodes if node.process.poll() is None]
        for node in running:
            node.process.terminate()
        _wait_all(running)
        return _end(self.nodes)


def _end(nodes: list[_Running]) -> list[int]:
    """SIGKILL what still runs; the ids of those that would not die."""
    running = [node for node in nodes if node.process.poll() is None]
    for node in running:
        node.process.kill()
    _wait_all(running)
    for node in nodes:
        if node.process.stdin is not None:
            node.process.stdin.close()
    return [node.process.pid for node in running if node.process.poll() is None]


def _describe(spec: SimSpec, router: ServerSpec, prefill: list[ServerSpec], decode: list[ServerSpec]) -> Target:
    settings = spec.settings
    timeout_s = Clocks.scaled(settings.time_scale).waiting_timeout_s
    return Target(
        version=1,
        name="lab-sim",
        about="an embedded lab",
        router=router,
        prefill=prefill,
        decode=decode,
        model=settings.model,
        allow=["kill", "signal", "restart", "protocol", "request"],
        timeouts={"waiting": timeout_s, "bootstrap": timeout_s},
        gauge_lag=GAUGE_LAG_S * settings.time_scale,
        time_scale=settings.time_scale,
        content="echo",
    )


def _wait_all(nodes: list[_Running]) -> None:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for node in nodes:
        try:
            node.process.wait(max(0.01, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            continue


# ------------------------------------------------------------------------------------------------ starting


def _launch(lab: RunningSim, progress: Callable[[str], None]) -> None:
    settings = lab.spec.settings
    router, metrics = _listen(settings.port), _listen(0)
    lab.metrics_url = f"{_url(metrics)}/metrics"
    workers: dict[str, tuple[Upstream, ...]] = {}
    listeners: list[tuple[Role, str, dict[str, socket.socket]]] = []
    roles: tuple[tuple[Role, int], ...] = (("prefill", settings.prefill), ("decode", settings.decode))
    for role, count in roles:
        upstreams = []
        for ordinal in range(count):
            sockets = {"http": _listen(0)}
            if role == "prefill":
                sockets["bootstrap"] = _listen(0)
            bootstrap = sockets.get("bootstrap")
            upstreams.append(Upstream(_url(sockets["http"]), bootstrap.getsockname()[1] if bootstrap else 0))
            listeners.append((role, f"{role}-{ordinal}", sockets))
        workers[role] = tuple(upstreams)
    listeners.insert(0, ("router", "router", {"http": router, "metrics": metrics}))
    for role, name, sockets in listeners:
        known = workers if role == "router" else {}
        lab.nodes.append(_spawn(lab, role, name, sockets, known))
        progress(f"{name} started, pid {lab.pids[-1]}")


def _spawn(
    lab: RunningSim,
    role: Role,
    name: str,
    sockets: Mapping[str, socket.socket],
    workers: Mapping[str, tuple[Upstream, ...]],
) -> _Running:
    url = _url(sockets["http"])
    ports = {use: each.getsockname()[1] for use, each in sockets.items()}
    ready, ready_theirs = os.pipe()
    config = NodeConfig(
        role=role,
        name=name,
        build=lab.spec.build,
        settings=lab.spec.settings,
        sockets={use: each.fileno() for use, each in sockets.items()},
        ready_fd=ready_theirs,
        bootstrap_port=ports.get("bootstrap", 8998),
        prefill=workers.get("prefill", ()),
        decode=workers.get("decode", ()),
    )
    path = lab.folder / f"{name}.log"
    try:
        # nodes append: a log that is truncated while they run does not get a hole
        with path.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"chaos.lab.sim.{role}"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(*config.sockets.values(), ready_theirs),
                env={**os.environ, RUN_ID_VARIABLE: lab.run_id},
                # a group of its own: ctrl-C goes to the owner only, and a stopped group whose owner dies is
                # woken by the kernel (SIGHUP, SIGCONT), so that it can notice and end
                process_group=0,
            )
    except OSError as error:
        raise LabError(f"{name} could not be started: {error}") from error
    finally:
        os.close(ready_theirs)
        for each in sockets.values():
            each.close()
    node = _Running(config, url, process, path, lab.folder / f"{name}.pid", ports, ready)
    node.pidfile.write_text(f"{process.pid}\n")
    if process.stdin is not None:
        try:
            process.stdin.write(config.to_json().encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once; waiting for it says how
    return node


def _await_ready(nodes: list[_Running], progress: Callable[[str], None]) -> None:
    """Wait until each node has said that it serves; the first that ends instead is the error."""
    waiting = {node.ready: node for node in nodes}
    deadline = time.monotonic() + READY_TIMEOUT_S
    try:
        while waiting:
            readable, _, _ = select.select(list(waiting), [], [], max(0.0, deadline - time.monotonic()))
            for fd in readable:
                node = waiting[fd]
                if not os.read(fd, 1):
                    raise _start_error(node, f"died while starting ({_exit_status(node.process)})")
                del waiting[fd]
                progress(f"{node.config.name} serves on {node.url}")
            if not readable:
                late = next(iter(waiting.values()))
                raise _start_error(late, f"did not become ready within {READY_TIMEOUT_S:g} s")
    finally:
        for node in nodes:
            os.close(node.ready)


def _start_error(node: _Running, what: str) -> LabError:
    return LabError(f"{node.config.name} {what}\n{log_tail(node.log)}", hint=f"whole log: {node.log}")


def _exit_status(process: subprocess.Popen[bytes]) -> str:
    code = process.wait(STOP_TIMEOUT_S)
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _listen(port: int) -> socket.socket:
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise LabError(
            f"port {port} on {LOOPBACK} cannot be used: {error.strerror}", hint="--set port=0 takes a free one"
        ) from error
    return listening


def _url(listening: socket.socket) -> str:
    return f"http://{LOOPBACK}:{listening.getsockname()[1]}"
