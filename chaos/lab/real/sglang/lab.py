"""A running SGLang lab: real prefill, decode and router processes, warm before anybody judges them."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

from chaos.lab.real.asking import is_healthy
from chaos.lab.real.lab import RealLab
from chaos.lab.real.ports import free_ports
from chaos.lab.real.sglang.commands import Commands, Place
from chaos.lab.real.sglang.warmth import warm
from chaos.model.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.lab.real.sglang.kind import SGLangSpec
    from chaos.model.target import ServerSpec

    Progress = Callable[[str], None]

START_TIMEOUT_S = 420.0  # about 30 s on two idle cores, two minutes on busy ones
_ROUTER_TIMEOUT_S = 60.0
_HEALTH_TIMEOUT_S = 2.0
_POLL_S = 0.2
_STILL_EVERY_S = 15.0
READY = b"The server is fired up and ready to roll!"
_MOONCAKE_LIBRARIES = {
    "libibverbs.so.1": "libibverbs1",
    "librdmacm.so.1": "librdmacm1",
    "libnuma.so.1": "libnuma1",
}


class RunningSGLang(RealLab[Place]):
    """A lab that serves."""

    spec: SGLangSpec

    def launch(self, progress: Progress) -> None:
        """Start everything and return once every path has generated."""
        spec = self.spec
        if spec.settings.transfer == "mooncake":
            check_mooncake()
        spec.installer.require(spec.build)
        if spec.settings.router == "smg":
            spec.installer.build_smg(progress)
        scratch = self._move_in(progress)
        device = "cable" if self._enclosure.name else "lo"
        self._commands = Commands(
            spec.installer, spec.build, spec.settings, scratch=scratch, device=device, run_id=self._run_id
        )
        self._places = self._find_places()
        self._start(progress)
        warm(self._places, progress, check=self._check, error=self._error)

    def restart(self, node: str, variant: str | None = None) -> None:
        """Unless the node must come up with Mooncake and cannot."""
        if self._commands.transfer(variant) == "mooncake":
            check_mooncake()
        super().restart(node, variant)

    def _spec_of(self, place: Place) -> ServerSpec:
        metrics = f"http://{place.address}:{place.metrics_port}/metrics" if place.metrics_port else None
        return super()._spec_of(place).model_copy(update={"metrics": metrics, "bootstrap_port": place.bootstrap_port})

    # ------------------------------------------------------------------ starting

    def _enclose(self, progress: Progress) -> None:
        try:
            super()._enclose(progress)
        except LabError as error:
            progress(f"NOT ENCLOSED, some of the engine's ports are open to the network: {error.message}")

    def _find_places(self) -> list[Place]:
        settings, address = self.spec.settings, self._enclosure.address
        ports = free_ports()
        metrics = None if settings.router == "mini-lb" else next(ports)
        places = [Place("router", "router", address, settings.port or next(ports), metrics_port=metrics)]
        places += [
            Place("prefill", f"prefill-{n}", address, next(ports), bootstrap_port=next(ports))
            for n in range(settings.prefill)
        ]
        return places + [Place("decode", f"decode-{n}", address, next(ports)) for n in range(settings.decode)]

    def _start(self, progress: Progress) -> None:
        router, *servers = self._places
        for place in servers:
            self._run_place(place)
            progress(f"{place.name} started, pid {self._nodes[place.name].pid}")
        self._await(servers, progress)
        self._run_place(router)
        self._await([router], progress)

    def _order(self, place: Place, variant: str | None) -> tuple[list[str], dict[str, str]]:
        commands = self._commands
        if place.role == "router":
            return commands.router(place, self._of("prefill"), self._of("decode")), commands.router_environment()
        return commands.server(place, variant), commands.server_environment(place, variant)

    def _of(self, role: str) -> list[Place]:
        return [place for place in self._places if place.role == role]

    def _await(self, places: list[Place], progress: Progress) -> None:
        """Until each of them serves; LabError for the first that dies, or is late."""
        waiting, began, told = list(places), time.monotonic(), 0.0
        while waiting:
            for place in list(waiting):
                self._nodes[place.name].check()
                if self._serves(place):
                    waiting.remove(place)
                    progress(f"{place.name} serves on {place.url}")
            waited = time.monotonic() - began
            if waiting and waited > (_ROUTER_TIMEOUT_S if waiting[0].role == "router" else START_TIMEOUT_S):
                raise self._nodes[waiting[0].name].error(f"did not serve within {waited:.0f} s")
            if waiting and waited - told >= _STILL_EVERY_S:
                told = waited
                progress(f"waiting for {', '.join(place.name for place in waiting)}: {waited:.0f} s so far")
            time.sleep(_POLL_S)

    def _serves(self, place: Place) -> bool:
        if place.role != "router":
            return self._nodes[place.name].said(READY)
        return is_healthy(place.url, timeout_s=_HEALTH_TIMEOUT_S)


def check_mooncake() -> None:
    """LabError unless the system libraries that Mooncake is linked against are there."""
    missing = []
    for library, package in _MOONCAKE_LIBRARIES.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            missing.append(package)
    if missing:
        raise LabError(
            f"mooncake needs system libraries that are not here: {', '.join(missing)}",
            hint=f"apt-get install {' '.join(missing)}",
        )
