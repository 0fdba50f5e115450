"""A running SGLang lab: real prefill, decode and router processes, warm before anybody judges them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import random
import threading
import time
import urllib.error
import urllib.request
from typing import IO, TYPE_CHECKING

from chaos.lab.kinds import LOOPBACK, RunningLab, suggest
from chaos.lab.real import cache
from chaos.lab.real.namespace import Enclosure, enclose
from chaos.lab.real.node import Node, Order
from chaos.lab.real.ports import free_ports
from chaos.lab.real.scratch import scratch_folder
from chaos.lab.real.sglang.commands import MODEL_NAME, Commands, Place
from chaos.model.errors import LabError
from chaos.model.target import LogFrom, ServerSpec, Target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chaos.lab.real.sglang.commands import Settings
    from chaos.lab.real.sglang.install import SGLangInstaller

    Progress = Callable[[str], None]

START_TIMEOUT_S = 420.0  # about 30 s on two idle cores, two minutes on busy ones
WARM_TIMEOUT_S = 180.0
_ROUTER_TIMEOUT_S = 60.0
_GENERATION_TIMEOUT_S = 60.0  # the first one on a path can take 15 s and more
_POLL_S = 0.2
_STILL_EVERY_S = 15.0
READY = b"The server is fired up and ready to roll!"
_MOONCAKE_LIBRARIES = {
    "libibverbs.so.1": "libibverbs1",
    "librdmacm.so.1": "librdmacm1",
    "libnuma.so.1": "libnuma1",
}
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def describe(settings: Settings, router: ServerSpec, prefill: list[ServerSpec], decode: list[ServerSpec]) -> Target:
    """The lab as a target file would describe it."""
    timeout_s = float(settings.waiting_timeout)
    return Target(
        version=1,
        name="lab-sglang",
        about="real SGLang on CPU with random weights",
        router=router,
        prefill=prefill,
        decode=decode,
        model=MODEL_NAME,
        allow=["kill", "signal", "restart", "network", "protocol", "request"],
        timeouts={"waiting": timeout_s, "bootstrap": timeout_s},
    )


class RunningSGLang(RunningLab):
    """A lab that serves."""

    def __init__(
        self,
        installer: SGLangInstaller,
        version: str,
        settings: Settings,
        folder: Path,
        progress: Progress,
        run_id: str,
    ) -> None:
        """Start everything and return once every path has generated."""
        if settings.transfer == "mooncake":
            check_mooncake()
        self._settings = settings
        self._folder = folder.absolute()
        self._nodes: dict[str, Node] = {}
        self._enclosure = Enclosure("", LOOPBACK)
        self._undo = contextlib.ExitStack()
        try:
            self._in_use(installer, version, progress)
            scratch = self._undo.enter_context(scratch_folder())
            self._enclosure = self._enclose(progress)
            device = "cable" if self._enclosure.name else "lo"
            self._commands = Commands(installer, version, settings, scratch=scratch, device=device, run_id=run_id)
            self._places = self._find_places()
            self._start(progress)
            self._warm(progress)
        except BaseException:
            self.stop()
            raise

    # ------------------------------------------------------------------ what others see

    @property
    def name(self) -> str:
        """`lab:sglang`."""
        return "lab:sglang"

    @property
    def pids(self) -> list[int]:
        """Main process ids, router first."""
        return [self._nodes[place.name].pid for place in self._places]

    @property
    def target(self) -> Target:
        """Addresses, logs and pid files."""
        router, *servers = [(place, self._spec(place)) for place in self._places]
        prefill = [spec for place, spec in servers if place.role == "prefill"]
        decode = [spec for place, spec in servers if place.role == "decode"]
        return describe(self._settings, router[1], prefill, decode)

    def _spec(self, place: Place) -> ServerSpec:
        return ServerSpec(
            url=place.url,
            metrics=f"http://{place.address}:{place.metrics_port}/metrics" if place.metrics_port else None,
            log=[LogFrom(file=str(self._log(place)))],
            pidfile=str(self._folder / f"{place.name}.pid"),
            bootstrap_port=place.bootstrap_port,
            name=place.name,
        )

    def restart(self, node: str, variant: str | None = None) -> None:
        """Kill what is left of a node and start it anew; it serves again when this returns, warm or not."""
        place = next((place for place in self._places if place.name == node), None)
        if place is None:
            raise LabError(f"the lab has no node {node!r}", hint=suggest(node, list(self._nodes)))
        if self._commands.transfer(variant) == "mooncake":
            check_mooncake()
        left = self._nodes[node].stop()
        if left:
            raise LabError(f"{node}: processes that did not end: {', '.join(map(str, left))}")
        self._launch(place, variant)
        self._await([place], lambda _: None)

    def reap(self) -> None:
        """Wardens bury their dead."""

    def stop(self) -> list[int]:
        """Kill every process, all nodes at once."""
        for node in self._nodes.values():
            node.let_go()
        left = [pid for node in self._nodes.values() for pid in node.stop()]
        left += self._enclosure.close()
        self._undo.close()
        return left

    # ------------------------------------------------------------------ starting

    def _in_use(self, installer: SGLangInstaller, version: str, progress: Progress) -> None:
        installer.require(version)
        router = installer.router
        if self._settings.router == "smg":
            installer.build_smg(progress)
            router = installer.smg
        for part in (installer.deps, router, installer.model, installer.version(version)):
            held: IO[bytes] = cache.use(part.folder)
            self._undo.callback(held.close)

    @staticmethod
    def _enclose(progress: Progress) -> Enclosure:
        try:
            enclosure = enclose()
        except LabError as error:
            progress(f"NOT ENCLOSED, some of the engine's ports are open to the network: {error.message}")
            return Enclosure("", LOOPBACK)
        if enclosure.name:
            progress(f"enclosed in network namespace {enclosure.name}")
        return enclosure

    def _find_places(self) -> list[Place]:
        settings, address = self._settings, self._enclosure.address
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
            self._launch(place)
            progress(f"{place.name} started, pid {self._nodes[place.name].pid}")
        self._await(servers, progress)
        self._launch(router)
        self._await([router], progress)

    def _launch(self, place: Place, variant: str | None = None) -> None:
        if place.role == "router":
            by_role = [[each for each in self._places if each.role == role] for role in ("prefill", "decode")]
            command, environment = self._commands.router(place, *by_role), self._commands.router_environment()
        else:
            command, environment = (
                self._commands.server(place, variant),
                self._commands.server_environment(place, variant),
            )
        order = Order(
            name=place.name,
            command=self._enclosure.command(command),
            environment=environment,
            folder=self._folder,
            log=self._log(place),
            pidfile=self._folder / f"{place.name}.pid",
        )
        self._nodes[place.name] = Node(order)

    def _log(self, place: Place) -> Path:
        return self._folder / f"{place.name}.log"

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
        try:
            with _NO_PROXY.open(f"{place.url}/health", timeout=2.0) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    # ------------------------------------------------------------------ warmth

    def _warm(self, progress: Progress) -> None:
        """A real generation from every prefill to every decode, then one through the router."""
        router, *servers = self._places
        for prefill in (place for place in servers if place.role == "prefill"):
            for decode in (place for place in servers if place.role == "decode"):
                took = self._generate([prefill, decode], prefill)
                progress(f"{prefill.name} to {decode.name}: first generation after {took:.1f} s")
        took = self._generate([router], None)
        progress(f"through the router: first generation after {took:.1f} s")

    def _generate(self, via: list[Place], prefill: Place | None) -> float:
        """Ask again until one succeeds; how long that took."""
        began = time.monotonic()
        while True:
            failures = ask_all(via, prefill)
            took = time.monotonic() - began
            if not failures:
                return took
            for place in self._places:
                self._nodes[place.name].check()
            if took > WARM_TIMEOUT_S:
                names = " and ".join(place.name for place in via)
                raise self._nodes[via[-1].name].error(f"no generation through {names} in {took:.0f} s: {failures[0]}")
            time.sleep(1.0)


def ask_all(via: list[Place], prefill: Place | None) -> list[str]:
    """One generation, sent to all of `via` at once as a router would; what went wrong."""
    body: dict[str, object] = {
        "text": "say something",
        "sampling_params": {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True},
    }
    if prefill is not None:
        body["bootstrap_host"] = prefill.address
        body["bootstrap_port"] = prefill.bootstrap_port
        body["bootstrap_room"] = random.getrandbits(62)
    failures: list[str] = []

    def ask(place: Place) -> None:
        request = urllib.request.Request(  # noqa: S310, our own address
            f"{place.url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with _NO_PROXY.open(request, timeout=_GENERATION_TIMEOUT_S) as answer:
                answer.read()
        except OSError as error:
            failures.append(f"{place.name}: {error}")

    asking = [threading.Thread(target=ask, args=(place,), daemon=True) for place in via]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    return failures


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
