"""A sim that runs: which processes it has, and how they find each other.

The starter binds every listening socket itself, on 127.0.0.1 and port 0, and hands it down, so no port can be taken
between choosing and binding it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from chaos.lab.embedded.node import Node, await_ready, end, listen, start_node, stop, url_of
from chaos.lab.kinds import RunningLab, suggest
from chaos.lab.sim.config import Role, Upstream
from chaos.model.errors import LabError
from chaos.model.target import LogFrom, ServerSpec, Target

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from chaos.lab.embedded.kind import SimSpec

RELOAD_S = 20.0  # a restarted engine loads for this long before anybody listens; its peers notice by heartbeat


class RunningSim(RunningLab):
    """A sim that serves."""

    spec: SimSpec

    def __init__(self, spec: SimSpec, folder: Path, run_id: str) -> None:
        self.spec = spec
        self.folder = folder
        self.run_id = run_id
        self.nodes: list[Node] = []
        self.metrics_url = ""

    def launch(self, progress: Callable[[str], None]) -> None:
        """Start router, prefills and decodes, and return once all serve."""
        settings = self.spec.settings
        router, metrics = listen(settings.port), listen(0)
        self.metrics_url = f"{url_of(metrics)}/metrics"
        workers: dict[str, tuple[Upstream, ...]] = {}
        listeners: list[tuple[Role, str, dict[str, socket.socket]]] = []
        roles: tuple[tuple[Role, int], ...] = (("prefill", settings.prefill), ("decode", settings.decode))
        for role, count in roles:
            upstreams = []
            for ordinal in range(count):
                sockets = {"http": listen(0)}
                if role == "prefill":
                    sockets["bootstrap"] = listen(0)
                bootstrap = sockets.get("bootstrap")
                upstreams.append(Upstream(url_of(sockets["http"]), bootstrap.getsockname()[1] if bootstrap else 0))
                listeners.append((role, f"{role}-{ordinal}", sockets))
            workers[role] = tuple(upstreams)
        listeners.insert(0, ("router", "router", {"http": router, "metrics": metrics}))
        for role, name, sockets in listeners:
            known = workers if role == "router" else {}
            self.nodes.append(self._spawn(role, name, sockets, known))
            progress(f"{name} started, pid {self.pids[-1]}")
        await_ready(self.nodes, progress)

    def _spawn(
        self,
        role: Role,
        name: str,
        sockets: Mapping[str, socket.socket],
        workers: Mapping[str, tuple[Upstream, ...]],
    ) -> Node:
        return start_node(
            role,
            name,
            sockets,
            workers,
            build=self.spec.build,
            settings=self.spec.settings,
            folder=self.folder,
            run_id=self.run_id,
        )

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
        return self.spec.describe(by_role["router"][0], by_role["prefill"], by_role["decode"])

    def restart(self, node: str, variant: str | None = None) -> None:  # noqa: ARG002 - it has no variants
        """SIGKILL a node and start it anew on the ports it had."""
        at = next((at for at, each in enumerate(self.nodes) if each.config.name == node), None)
        if at is None:
            raise LabError(f"the lab has no node {node!r}", hint=suggest(node, [n.config.name for n in self.nodes]))
        old = self.nodes[at]
        end([old])
        time.sleep(RELOAD_S * self.spec.settings.time_scale)
        upstreams = {"prefill": old.config.prefill, "decode": old.config.decode}
        sockets = {use: listen(port) for use, port in old.ports.items()}
        self.nodes[at] = self._spawn(old.config.role, node, sockets, upstreams)
        await_ready([self.nodes[at]], lambda _: None)

    def reap(self) -> None:
        """Take note of nodes that have ended, so that they are no zombies."""
        for node in self.nodes:
            node.process.poll()

    def stop(self) -> list[int]:
        """SIGTERM, then SIGKILL, each process by its id; the ids of those that would not die."""
        return stop(self.nodes)
