"""Starts and stops labs: the only part of the lab that knows of the rest of pdchaos.

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
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from chaos.lab.catalogue import LabInfo, LabSpec, catalogue, parse_lab
from chaos.lab.sim.config import Clocks, NodeConfig, Role, Upstream
from chaos.model.errors import LabError
from chaos.model.target import ServerSpec, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

__all__ = ["LabInfo", "LabSpec", "RunningLab", "catalogue", "log_tail", "parse_lab", "start_lab"]

RUN_ID_VARIABLE = "PDCHAOS_RUN"  # in every node's environment, so that leftovers can be found
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 3.0
GAUGE_LAG_S = 35.0  # 30 s between two idle writes, and some slack
_TAIL_LINES = 15
_HOST = "127.0.0.1"


# ------------------------------------------------------------------------------------------------ what runs


@dataclass(slots=True)
class _Running:
    """One process of a lab."""

    config: NodeConfig
    url: str
    process: subprocess.Popen[bytes]
    log: Path
    ready: int = field(repr=False)  # our end of the pipe on which it says that it serves
    bootstrap_port: int | None = None


class RunningLab:
    """A lab that serves. Leaving the context, or `stop`, ends every process of it."""

    def __init__(self, spec: LabSpec, folder: Path) -> None:
        self.spec = spec
        self.folder = folder
        self._nodes: list[_Running] = []
        self._metrics_url = ""

    @property
    def name(self) -> str:
        """`lab:sim`."""
        return self.spec.title

    @property
    def pids(self) -> list[int]:
        """Process ids of the nodes, router first."""
        return [node.process.pid for node in self._nodes]

    @property
    def target(self) -> Target:
        """The lab as a target file would describe it."""
        by_role: dict[Role, list[ServerSpec]] = {"router": [], "prefill": [], "decode": []}
        for node in self._nodes:
            by_role[node.config.role].append(
                ServerSpec(
                    url=node.url,
                    metrics=self._metrics_url if node.config.role == "router" else None,
                    log=[str(node.log)],
                    pid=node.process.pid,
                    bootstrap_port=node.bootstrap_port,
                    name=node.config.name,
                )
            )
        return _describe(self.spec, by_role["router"][0], by_role["prefill"], by_role["decode"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def reap(self) -> None:
        """Take note of nodes that have ended, so that they are no zombies."""
        for node in self._nodes:
            node.process.poll()

    def stop(self) -> list[int]:
        """SIGTERM, then SIGKILL, each process by its id; the ids of those that would not die."""
        running = [node for node in self._nodes if node.process.poll() is None]
        for node in running:
            node.process.terminate()
        _wait_all(running)
        running = [node for node in running if node.process.poll() is None]
        for node in running:
            node.process.kill()
        _wait_all(running)
        for node in self._nodes:
            if node.process.stdin is not None:
                node.process.stdin.close()
        return [node.process.pid for node in running if node.process.poll() is None]


def outline_lab(spec: LabSpec) -> Target:
    """The lab as a target before it is started: every address is a placeholder."""
    nowhere = ServerSpec(url="http://127.0.0.1:1")
    return _describe(spec, nowhere, [nowhere] * spec.settings.prefill, [nowhere] * spec.settings.decode)


def _describe(spec: LabSpec, router: ServerSpec, prefill: list[ServerSpec], decode: list[ServerSpec]) -> Target:
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
        timeouts={"waiting": timeout_s, "bootstrap": timeout_s},
        gauge_lag=GAUGE_LAG_S * settings.time_scale,
        time_scale=settings.time_scale,
    )


def _wait_all(nodes: list[_Running]) -> None:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for node in nodes:
        try:
            node.process.wait(max(0.01, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            continue


# ------------------------------------------------------------------------------------------------ starting


def start_lab(spec: LabSpec, folder: Path, progress: Callable[[str], None], *, run_id: str = "") -> RunningLab:
    """Start every process of a lab and return once all serve; LabError carries the tail of a failed one's log."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"folder {folder} cannot be used: {error.strerror}") from error
    lab = RunningLab(spec, folder)
    try:
        _launch(lab, run_id or os.environ.get(RUN_ID_VARIABLE, "") or uuid.uuid4().hex, progress)
        _await_ready(lab._nodes, progress)  # noqa: SLF001, one module
    except BaseException:
        lab.stop()
        raise
    return lab


def _launch(lab: RunningLab, run_id: str, progress: Callable[[str], None]) -> None:
    settings = lab.spec.settings
    router, metrics = _listen(settings.port), _listen(0)
    lab._metrics_url = f"{_url(metrics)}/metrics"  # noqa: SLF001, one module
    workers: dict[str, tuple[Upstream, ...]] = {}
    listeners: list[tuple[Role, str, dict[str, socket.socket]]] = []
    roles: tuple[tuple[Role, int], ...] = (("prefill", settings.prefill), ("decode", settings.decode))
    for role, count in roles:
        upstreams = []
        for ordinal in range(count):
            sockets = {"http": _listen(0)}
            if role == "prefill":
                sockets["bootstrap"] = _listen(0)
            upstreams.append(Upstream(_url(sockets["http"]), _port(sockets.get("bootstrap")) or 0))
            listeners.append((role, f"{role}-{ordinal}", sockets))
        workers[role] = tuple(upstreams)
    listeners.insert(0, ("router", "router", {"http": router, "metrics": metrics}))
    for role, name, sockets in listeners:
        known = workers if role == "router" else {}
        lab._nodes.append(_spawn(lab, role, name, sockets, known, run_id))  # noqa: SLF001, one module
        progress(f"{name} started, pid {lab.pids[-1]}")


def _spawn(
    lab: RunningLab,
    role: Role,
    name: str,
    sockets: Mapping[str, socket.socket],
    workers: Mapping[str, tuple[Upstream, ...]],
    run_id: str,
) -> _Running:
    url, bootstrap_port = _url(sockets["http"]), _port(sockets.get("bootstrap"))
    ready, ready_theirs = os.pipe()
    config = NodeConfig(
        role=role,
        name=name,
        build=lab.spec.build,
        settings=lab.spec.settings,
        sockets={use: each.fileno() for use, each in sockets.items()},
        ready_fd=ready_theirs,
        bootstrap_port=bootstrap_port or 8998,
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
                env={**os.environ, RUN_ID_VARIABLE: run_id},
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
    node = _Running(config, url, process, path, ready, bootstrap_port)
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


def log_tail(path: Path, lines: int = _TAIL_LINES) -> str:
    """The last lines of a log, or that there is nothing in it."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        return f"({error})"
    return "\n".join(text.splitlines()[-lines:]) or "(its log is empty)"


def _listen(port: int) -> socket.socket:
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_HOST, port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise LabError(
            f"port {port} on {_HOST} cannot be used: {error.strerror}", hint="--set port=0 takes a free one"
        ) from error
    return listening


def _port(listening: socket.socket | None) -> int | None:
    return listening.getsockname()[1] if listening is not None else None


def _url(listening: socket.socket) -> str:
    return f"http://{_HOST}:{_port(listening)}"
