"""The processes of a sim: each started on sockets that listen already, awaited, ended.

Their starter keeps each one's stdin open; a node whose stdin ends kills itself.
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

from chaos.lab.kinds import LOOPBACK, RUN_ID_VARIABLE, log_tail
from chaos.lab.sim.config import NodeConfig, Role, Settings, Upstream
from chaos.model.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 3.0


@dataclass(slots=True)
class Node:
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
        """Of a prefill."""
        return self.ports.get("bootstrap")


def listen(port: int) -> socket.socket:
    """A socket that listens on this machine alone; 0 takes a free port. LabError when the port cannot be had."""
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


def url_of(listening: socket.socket) -> str:
    """Where it is reached."""
    return f"http://{LOOPBACK}:{listening.getsockname()[1]}"


def start_node(
    role: Role,
    name: str,
    sockets: Mapping[str, socket.socket],
    workers: Mapping[str, tuple[Upstream, ...]],
    *,
    build: str,
    settings: Settings,
    folder: Path,
    run_id: str,
) -> Node:
    """Start a process on sockets that listen already, which are its own from then on; LabError when it cannot be run.

    `workers` are those that it is told of, by role.
    """
    url = url_of(sockets["http"])
    ports = {use: each.getsockname()[1] for use, each in sockets.items()}
    ready, ready_theirs = os.pipe()
    config = NodeConfig(
        role=role,
        name=name,
        build=build,
        settings=settings,
        sockets={use: each.fileno() for use, each in sockets.items()},
        ready_fd=ready_theirs,
        bootstrap_port=ports.get("bootstrap", 8998),
        prefill=workers.get("prefill", ()),
        decode=workers.get("decode", ()),
    )
    path = folder / f"{name}.log"
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
    node = Node(config, url, process, path, folder / f"{name}.pid", ports, ready)
    node.pidfile.write_text(f"{process.pid}\n")
    if process.stdin is not None:
        try:
            process.stdin.write(config.to_json().encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once; waiting for it says how
    return node


def await_ready(nodes: list[Node], progress: Callable[[str], None]) -> None:
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


def _start_error(node: Node, what: str) -> LabError:
    return LabError(f"{node.config.name} {what}\n{log_tail(node.log)}", hint=f"whole log: {node.log}")


def _exit_status(process: subprocess.Popen[bytes]) -> str:
    code = process.wait(STOP_TIMEOUT_S)
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def stop(nodes: list[Node]) -> list[int]:
    """SIGTERM, then SIGKILL, each process by its id; the ids of those that would not die."""
    running = [node for node in nodes if node.process.poll() is None]
    for node in running:
        node.process.terminate()
    _wait_all(running)
    return end(nodes)


def end(nodes: list[Node]) -> list[int]:
    """SIGKILL what still runs; the ids of those that would not die."""
    running = [node for node in nodes if node.process.poll() is None]
    for node in running:
        node.process.kill()
    _wait_all(running)
    for node in nodes:
        if node.process.stdin is not None:
            node.process.stdin.close()
    return [node.process.pid for node in running if node.process.poll() is None]


def _wait_all(nodes: list[Node]) -> None:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for node in nodes:
        try:
            node.process.wait(max(0.01, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            continue
