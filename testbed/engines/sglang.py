"""Real SGLang: each server and the router on a host of its own, KV over the hosts' network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.lab.real.asking import is_healthy
from chaos.lab.real.sglang.commands import Commands, Place
from chaos.lab.real.sglang.kind import SGLANG
from chaos.lab.real.sglang.lab import READY, START_TIMEOUT_S
from chaos.lab.real.sglang.warmth import warm
from testbed.engines.real import SCRATCH, RealEngine, failed, spawn
from testbed.network import DEVICE

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.engines.kind import Started, Streams
    from testbed.plan import HostPlan, Plan


class SGLang(RealEngine):
    """A released version."""

    patience_s = START_TIMEOUT_S

    def __init__(self, plan: Plan, version: str) -> None:
        spec = SGLANG.parse(version, plan.options)
        super().__init__(spec)
        self._commands = Commands(spec.installer, version, spec.settings, scratch=SCRATCH, device=DEVICE, run_id="")
        self._places = {host.name: _place(host) for host in plan.servers}

    def start(self, host: HostPlan, streams: Streams, logs: tuple[Path, Path]) -> Started:
        """A server is ready when it says so in its log, the router when its `/health` does."""
        place = self._places[host.name]
        if place.role == "router":
            command = self._commands.router(place, self._of("prefill"), self._of("decode"))
            return spawn(command, self._commands.router_environment(), streams, lambda: is_healthy(place.url))
        begins = {log: log.stat().st_size for log in logs}
        return spawn(
            self._commands.server(place),
            self._commands.server_environment(place),
            streams,
            lambda: any(_said(log, at) for log, at in begins.items()),
        )

    def warm(self) -> None:
        """A generation from every prefill to every decode, then one through the router."""
        warm(self._places.values(), lambda _: None, check=lambda: None, error=failed)

    def _of(self, role: str) -> list[Place]:
        return [place for place in self._places.values() if place.role == role]


def _place(host: HostPlan) -> Place:
    assert host.role != "laptop"  # noqa: S101, for mypy: it has no node
    ports = host.ports
    return Place(host.role, host.name, host.address, ports["http"], ports.get("bootstrap"), ports.get("metrics"))


def _said(log: Path, begins: int) -> bool:
    with log.open("rb") as lines:
        lines.seek(begins)
        return READY in lines.read()
