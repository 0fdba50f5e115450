"""Real Dynamo: the frontend and mock engines, each on a host of its own; they find each other by files on a share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.lab.real.asking import is_healthy
from chaos.lab.real.dynamo.commands import Commands, Place
from chaos.lab.real.dynamo.kind import DYNAMO
from chaos.lab.real.dynamo.lab import START_TIMEOUT_S
from chaos.lab.real.dynamo.warmth import warm
from testbed.engines.real import SCRATCH, RealEngine, failed, spawn
from testbed.errors import BedError
from testbed.folder import SHARED

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.engines.kind import Started, Streams
    from testbed.plan import HostPlan, Plan


class Dynamo(RealEngine):
    """A released version."""

    patience_s = START_TIMEOUT_S

    def __init__(self, plan: Plan, version: str) -> None:
        spec = DYNAMO.parse(version, plan.options)
        super().__init__(spec)
        if spec.settings.discovery != "file":
            raise BedError("in a bed Dynamo's workers are found by files", hint="leave out discovery")
        self._commands = Commands(spec.installer, version, spec.settings, scratch=SCRATCH, run_id="", etcd="")
        self._places = {host.name: _place(host) for host in plan.servers}

    def start(self, host: HostPlan, streams: Streams, logs: tuple[Path, Path]) -> Started:  # noqa: ARG002
        """A worker's `/health` is 503 until it takes requests."""
        place = self._places[host.name]
        environment = {**self._commands.environment(place), "DYN_FILE_KV": str(SHARED / "discovery")}
        return spawn(self._commands.node(place), environment, streams, lambda: is_healthy(place.url))

    def warm(self) -> None:
        """Chat through the frontend until every worker has served and several answers in a row were good."""
        router, *workers = self._places.values()
        warm(router, workers, check=lambda: None, error=failed)


def _place(host: HostPlan) -> Place:
    assert host.role != "laptop"  # noqa: S101, for mypy: it has no node
    ports = host.ports
    if host.role == "router":
        return Place(host.role, host.name, host.address, ports["http"], ports["metrics"])
    return Place(host.role, host.name, host.address, 0, ports["http"], ports.get("bootstrap"))
