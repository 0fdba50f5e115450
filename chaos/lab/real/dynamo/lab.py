"""A running Dynamo lab: the real frontend, mock engines as workers, warm before anybody judges them."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from chaos.lab.kinds import RUN_ID_VARIABLE
from chaos.lab.real.asking import is_healthy
from chaos.lab.real.dynamo.commands import Commands, Place
from chaos.lab.real.dynamo.warmth import warm
from chaos.lab.real.lab import RealLab
from chaos.lab.real.ports import free_ports
from chaos.model.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from chaos.lab.real.dynamo.kind import DynamoSpec

    Progress = Callable[[str], None]

START_TIMEOUT_S = 90.0  # a second or two on idle cores
_POLL_S = 0.1
_ETCD = "etcd"


class RunningDynamo(RealLab[Place]):
    """A lab that serves."""

    spec: DynamoSpec

    def launch(self, progress: Progress) -> None:
        """Start everything and return once every worker has generated."""
        spec = self.spec
        etcd_program = _find_etcd() if spec.settings.discovery == "etcd" else ""
        spec.installer.require(spec.build)
        # it must be enclosed: events and rendezvous of 1.6.1 listen everywhere, whatever they are told
        scratch = self._move_in(progress)
        ports = free_ports()
        self._places = self._find_places(ports)
        etcd = self._start_etcd(etcd_program, scratch, ports, progress) if etcd_program else ""
        self._commands = Commands(
            spec.installer, spec.build, spec.settings, scratch=scratch, run_id=self._run_id, etcd=etcd
        )
        for place in self._places:
            self._run_place(place)
            progress(f"{place.name} started, pid {self._nodes[place.name].pid}")
        self._await(self._places, progress)
        router, *workers = self._places
        took = warm(router, workers, check=self._check, error=self._error)
        progress(f"every worker has served, {took:.1f} s after they were ready")

    def _find_places(self, ports: Iterator[int]) -> list[Place]:
        settings, address = self.spec.settings, self._enclosure.address
        places = [Place("router", "router", address, settings.port or next(ports), next(ports))]
        places += [
            Place("prefill", f"prefill-{n}", address, 0, next(ports), bootstrap_port=next(ports))
            for n in range(settings.prefill)
        ]
        return places + [Place("decode", f"decode-{n}", address, 0, next(ports)) for n in range(settings.decode)]

    def _start_etcd(self, program: str, scratch: Path, ports: Iterator[int], progress: Progress) -> str:
        address = self._enclosure.address
        clients, peers = (f"http://{address}:{next(ports)}" for _ in range(2))
        command = [
            *(program, "--data-dir", str(scratch / "etcd")),
            *("--listen-client-urls", clients, "--advertise-client-urls", clients),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", f"default={peers}"),
        ]
        self._run(_ETCD, command, {RUN_ID_VARIABLE: self._run_id})
        self._until_healthy(_ETCD, clients)
        progress(f"etcd serves on {clients}")
        return clients

    def _order(self, place: Place, variant: str | None) -> tuple[list[str], dict[str, str]]:  # noqa: ARG002 - it has none
        return self._commands.node(place), self._commands.environment(place)

    def _await(self, places: list[Place], progress: Progress) -> None:  # noqa: ARG002 - it takes a second or two
        """Until each says that it is ready; a worker's `/health` is 503 until it takes requests."""
        for place in places:
            self._until_healthy(place.name, place.url)

    def _until_healthy(self, name: str, url: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not is_healthy(url):
            self._nodes[name].check()
            if time.monotonic() > deadline:
                raise self._nodes[name].error(f"was not ready within {START_TIMEOUT_S:g} s")
            time.sleep(_POLL_S)


def _find_etcd() -> str:
    found = shutil.which("etcd")
    if found is None:
        raise LabError("discovery=etcd needs the program etcd", hint="apt-get install etcd-server")
    return found
