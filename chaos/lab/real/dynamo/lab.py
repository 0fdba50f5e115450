"""A running Dynamo lab: the real frontend, mock engines as workers, warm before anybody judges them."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from chaos.lab.kinds import LOOPBACK, RUN_ID_VARIABLE, RunningLab, suggest
from chaos.lab.real import cache
from chaos.lab.real.dynamo.commands import ETCD_LEASE_S, FILE_LEASE_S, MODEL_NAME, RENDEZVOUS_S, Commands, Place
from chaos.lab.real.namespace import Enclosure, enclose
from chaos.lab.real.node import Node, Order
from chaos.lab.real.ports import free_ports
from chaos.lab.real.scratch import scratch_folder
from chaos.model.errors import LabError
from chaos.model.target import LogFrom, ServerSpec, Target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chaos.lab.real.dynamo.commands import Settings
    from chaos.lab.real.dynamo.install import DynamoInstaller

    Progress = Callable[[str], None]

START_TIMEOUT_S = 90.0  # a second or two on idle cores
WARM_TIMEOUT_S = 60.0
_ASK_TIMEOUT_S = 10.0
_POLL_S = 0.1
WARM_IN_A_ROW = 3  # generations that succeed on end, once every worker has served
_SERVED = re.compile(
    r'^dynamo_component_requests_total\{[^}]*dynamo_endpoint="generate"[^}]*\} ([0-9.e+]+)$', re.MULTILINE
)
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def describe(settings: Settings, router: ServerSpec, prefill: list[ServerSpec], decode: list[ServerSpec]) -> Target:
    """The lab as a target file would describe it."""
    return Target(
        version=1,
        name="lab-dynamo",
        about="the real Dynamo frontend with mock engines as workers",
        engine="dynamo",
        router_engine="dynamo-frontend",
        router=router,
        prefill=prefill,
        decode=decode,
        model=MODEL_NAME,
        allow=["kill", "signal", "restart", "network", "protocol", "request"],
        timeouts={"lease": FILE_LEASE_S if settings.discovery == "file" else ETCD_LEASE_S, "rendezvous": RENDEZVOUS_S},
    )


class RunningDynamo(RunningLab):
    """A lab that serves."""

    def __init__(
        self,
        installer: DynamoInstaller,
        version: str,
        settings: Settings,
        folder: Path,
        progress: Progress,
        run_id: str,
    ) -> None:
        """Start everything and return once every worker has generated."""
        self._settings = settings
        self._run_id = run_id
        self._folder = folder.absolute()
        self._nodes: dict[str, Node] = {}
        self._helpers: dict[str, Node] = {}
        self._enclosure = Enclosure("", LOOPBACK)
        self._undo = contextlib.ExitStack()
        etcd_program = _find_etcd() if settings.discovery == "etcd" else ""
        try:
            self._in_use(installer, version)
            self._scratch = self._undo.enter_context(scratch_folder())
            self._enclosure = enclose()  # events and rendezvous of 1.6.1 listen everywhere, whatever they are told
            if self._enclosure.name:
                progress(f"enclosed in network namespace {self._enclosure.name}")
            self._ports = free_ports()
            self._places = self._find_places()
            etcd = self._start_etcd(etcd_program, progress) if etcd_program else ""
            self._commands = Commands(installer, version, settings, scratch=self._scratch, run_id=run_id, etcd=etcd)
            self._start(progress)
            self._warm(progress)
        except BaseException:
            self.stop()
            raise

    # ------------------------------------------------------------------ what others see

    @property
    def name(self) -> str:
        """`lab:dynamo`."""
        return "lab:dynamo"

    @property
    def pids(self) -> list[int]:
        """Main process ids, frontend first."""
        return [self._nodes[place.name].pid for place in self._places]

    @property
    def target(self) -> Target:
        """Addresses, logs and pid files."""
        router, *workers = [(place, self._spec(place)) for place in self._places]
        prefill = [spec for place, spec in workers if place.role == "prefill"]
        decode = [spec for place, spec in workers if place.role == "decode"]
        return describe(self._settings, router[1], prefill, decode)

    def _spec(self, place: Place) -> ServerSpec:
        return ServerSpec(
            url=place.url,
            log=[LogFrom(file=str(self._log(place.name)))],
            pidfile=str(self._folder / f"{place.name}.pid"),
            name=place.name,
        )

    def restart(self, node: str, variant: str | None = None) -> None:  # noqa: ARG002 - it has no variants
        """Kill what is left of a node and start it anew; it says that it is ready when this returns."""
        place = next((place for place in self._places if place.name == node), None)
        if place is None:
            raise LabError(f"the lab has no node {node!r}", hint=suggest(node, list(self._nodes)))
        left = self._nodes[node].stop()
        if left:
            raise LabError(f"{node}: processes that did not end: {', '.join(map(str, left))}")
        self._launch(place)
        self._await([place])

    def reap(self) -> None:
        """Wardens bury their dead."""

    def stop(self) -> list[int]:
        """Kill every process, all nodes at once."""
        every = [*self._nodes.values(), *self._helpers.values()]
        for node in every:
            node.let_go()
        left = [pid for node in every for pid in node.stop()]
        left += self._enclosure.close()
        self._undo.close()
        return left

    # ------------------------------------------------------------------ starting

    def _in_use(self, installer: DynamoInstaller, version: str) -> None:
        installer.require(version)
        for part in (installer.deps, installer.model, installer.version(version)):
            self._undo.callback(cache.use(part.folder).close)

    def _find_places(self) -> list[Place]:
        settings, address, ports = self._settings, self._enclosure.address, self._ports
        places = [Place("router", "router", address, settings.port or next(ports), next(ports))]
        places += [
            Place("prefill", f"prefill-{n}", address, 0, next(ports), bootstrap_port=next(ports))
            for n in range(settings.prefill)
        ]
        return places + [Place("decode", f"decode-{n}", address, 0, next(ports)) for n in range(settings.decode)]

    def _start_etcd(self, program: str, progress: Progress) -> str:
        address = self._enclosure.address
        clients, peers = (f"http://{address}:{next(self._ports)}" for _ in range(2))
        self._helpers["etcd"] = self._node(
            "etcd",
            [
                *(program, "--data-dir", str(self._scratch / "etcd")),
                *("--listen-client-urls", clients, "--advertise-client-urls", clients),
                *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
                *("--initial-cluster", f"default={peers}"),
            ],
            {RUN_ID_VARIABLE: self._run_id},
        )
        self._until_healthy(clients, self._helpers["etcd"])
        progress(f"etcd serves on {clients}")
        return clients

    def _start(self, progress: Progress) -> None:
        for place in self._places:
            self._launch(place)
            progress(f"{place.name} started, pid {self._nodes[place.name].pid}")
        self._await(self._places)

    def _launch(self, place: Place) -> None:
        environment = self._commands.environment(place)
        self._nodes[place.name] = self._node(place.name, self._commands.node(place), environment)

    def _node(self, name: str, command: list[str], environment: dict[str, str]) -> Node:
        return Node(
            Order(
                name=name,
                command=self._enclosure.command(command),
                environment=environment,
                folder=self._folder,
                log=self._log(name),
                pidfile=self._folder / f"{name}.pid",
            )
        )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _await(self, places: list[Place]) -> None:
        """Until each says that it is ready; a worker's `/health` is 503 until it takes requests."""
        for place in places:
            self._until_healthy(place.url, self._nodes[place.name])

    def _until_healthy(self, url: str, node: Node) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not is_healthy(url):
            node.check()
            if time.monotonic() > deadline:
                raise node.error(f"was not ready within {START_TIMEOUT_S:g} s")
            time.sleep(_POLL_S)

    # ------------------------------------------------------------------ warmth

    def _warm(self, progress: Progress) -> None:
        """Chat through the frontend until every worker has served and several answers in a row were good."""
        router, *workers = self._places
        began, in_a_row, failure = time.monotonic(), 0, ""
        while in_a_row < WARM_IN_A_ROW or not all(map(has_served, workers)):
            for place in self._places:
                self._nodes[place.name].check()
            if time.monotonic() - began > WARM_TIMEOUT_S:
                idle = [place.name for place in workers if not has_served(place)]
                what = f"{', '.join(idle)} served nothing" if idle else failure
                raise self._nodes["router"].error(f"was not warm within {WARM_TIMEOUT_S:g} s: {what}")
            failure = chat(router)
            in_a_row = 0 if failure else in_a_row + 1
            if failure:
                time.sleep(_POLL_S)
        progress(f"every worker has served, {time.monotonic() - began:.1f} s after they were ready")


def chat(router: Place) -> str:
    """One generation through the frontend; what went wrong, or nothing."""
    body = {
        "model": MODEL_NAME,
        "messages": [{"role": "user", "content": "say something"}],
        "max_tokens": 4,
        "ignore_eos": True,
    }
    request = urllib.request.Request(  # noqa: S310, our own address
        f"{router.url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with _NO_PROXY.open(request, timeout=_ASK_TIMEOUT_S) as answer:
            read = json.load(answer)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return str(error)
    return "" if read.get("usage", {}).get("completion_tokens") else f"no tokens: {read}"


def has_served(worker: Place) -> bool:
    """Whether a worker has generated for anybody."""
    try:
        with _NO_PROXY.open(f"{worker.url}/metrics", timeout=_ASK_TIMEOUT_S) as answer:
            found = _SERVED.findall(answer.read().decode())
    except (OSError, http.client.HTTPException):
        return False
    return any(float(value) > 0 for value in found)


def is_healthy(url: str) -> bool:
    """Whether `/health` says 200."""
    try:
        with _NO_PROXY.open(f"{url}/health", timeout=_ASK_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False


def _find_etcd() -> str:
    found = shutil.which("etcd")
    if found is None:
        raise LabError("discovery=etcd needs the program etcd", hint="apt-get install etcd-server")
    return found
