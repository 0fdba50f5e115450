"""Real SGLang: each server and the router on a host of its own, KV over the hosts' network."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from chaos.lab.real.asking import is_healthy
from chaos.lab.real.sglang.commands import Commands, Place
from chaos.lab.real.sglang.kind import SGLANG
from chaos.lab.real.sglang.lab import READY, START_TIMEOUT_S, WARM_TIMEOUT_S, ask_all
from testbed.engines.real import SCRATCH, RealEngine, spawn
from testbed.errors import BedError
from testbed.network import DEVICE

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.engines.kind import Started, Streams
    from testbed.plan import HostPlan, Plan

_PAUSE_S = 1.0


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
        router = next(place for place in self._places.values() if place.role == "router")
        for prefill in self._of("prefill"):
            for decode in self._of("decode"):
                _generate([prefill, decode], prefill)
        _generate([router], None)

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


def _generate(via: list[Place], prefill: Place | None) -> None:
    """Ask again until one succeeds."""
    deadline = time.monotonic() + WARM_TIMEOUT_S
    while failures := ask_all(via, prefill):
        if time.monotonic() > deadline:
            raise BedError(f"no generation through {' and '.join(place.name for place in via)}: {failures[0]}")
        time.sleep(_PAUSE_S)
