"""What an SGLang lab is asked for, and the command lines and environments that follow from it.

Flags and environment are those under which the releases named in `install.TRIED` serve on a machine without a GPU. A
flag that a release does not know (its source is asked) is left out, so that untried releases have a chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.lab.options import number, word
from chaos.lab.real import commands
from chaos.lab.real.commands import MODEL_NAME, plain_environment
from chaos.lab.real.sglang.install import STANDINS

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.lab.real.sglang.install import SGLangInstaller

TRANSFERS = ("nixl", "mooncake")
OTHER_TRANSFER = "other-transfer"
"""The variant of a node that comes up with the transfer backend its peers do not have: a slip in a restart script."""
ROUTERS = ("sglang-router", "mini-lb", "smg")


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of an SGLang lab; under the defaults 60 sessions overcommit one decode node."""

    prefill: int = number(1, "number of prefill nodes; each takes about 1.5 GB of memory", least=1, most=8)
    decode: int = number(1, "number of decode nodes", least=1, most=8)
    transfer: str = word("nixl", "how KV travels from prefill to decode", TRANSFERS)
    router: str = word("sglang-router", "what stands in front", ROUTERS)
    waiting_timeout: int = number(60, "the engine's bootstrap and waiting timeouts in seconds (its own: 300)", least=5)
    # Decode sets 512 tokens aside for every room. In a wedge some 20 canaries and bystanders hold one for a minute;
    # a pool that they fill leaves no room for the engine's own health check, and the wedge becomes loud by our doing.
    kv_tokens: int = number(16384, "KV tokens of each node", least=512)
    running: int = number(32, "requests that a node runs at once", least=1, most=1024)
    port: int = number(0, "the router's port; 0 takes a free one", most=65535)


@dataclass(frozen=True, slots=True)
class Place(commands.Place):
    """Where a node listens."""

    bootstrap_port: int | None = None  # prefill
    metrics_port: int | None = None  # router


class Commands:
    """Command lines and environments of one lab."""

    def __init__(
        self, installer: SGLangInstaller, version: str, settings: Settings, *, scratch: Path, device: str, run_id: str
    ) -> None:
        """Nodes reach each other over the network device `device`; `scratch` is a folder that dies with the lab."""
        self._installer = installer
        self._settings = settings
        self._wheel = installer.version(version).folder
        self._known = _options_of(self._wheel / "sglang" / "srt")
        self._scratch = scratch
        self._device = device
        self._run_id = run_id

    # ------------------------------------------------------------------ servers

    def server(self, place: Place, variant: str | None = None) -> list[str]:
        """A prefill or decode server, as configured or as a variant."""
        return [
            *(str(self._installer.python), "-m", "sglang.launch_server"),
            *("--host", place.address, "--port", str(place.port)),
            *("--model-path", str(self._installer.model.folder), "--served-model-name", MODEL_NAME),
            *("--disaggregation-mode", place.role),
            *("--disaggregation-transfer-backend", self.transfer(variant)),
            *(("--disaggregation-bootstrap-port", str(place.bootstrap_port)) if place.bootstrap_port else ()),
            *("--max-total-tokens", str(self._settings.kv_tokens)),
            *("--max-running-requests", str(self._settings.running)),
            *("--enable-metrics", "--log-level", "info"),
            *self._on_cpu(),
            *(self._on_cpu_decode() if place.role == "decode" else ()),
        ]

    def _on_cpu(self) -> list[str]:
        """Random weights, and plain PyTorch wherever a GPU kernel would be taken."""
        flags = ["--device", "cpu", "--load-format", "dummy", "--mem-fraction-static", "0.3"]
        flags += ["--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--grammar-backend", "none"]
        flags += ["--disable-overlap-schedule"]  # overlaps CPU and GPU work
        flags += ["--disable-radix-cache"]  # a cached prompt is not transferred
        # Not --sleep-on-idle: it looks after waiting rooms once a second, and slows everything by as much.
        flags += ["--skip-server-warmup"]  # wants a peer; the lab warms every path itself
        if self._knows("cuda_graph_backend_decode"):
            return [*flags, "--cuda-graph-backend-decode=disabled", "--cuda-graph-backend-prefill=disabled"]
        return [*flags, "--disable-cuda-graph"]

    def _on_cpu_decode(self) -> list[str]:
        """Where decode keeps the KV of requests it puts back: by default in pinned memory, which is CUDA's."""
        name = "disaggregation_decode_retraction_backup"
        return ["--disaggregation-decode-retraction-backup", "cpu_tensor"] if self._knows(name) else []

    def _knows(self, option: str) -> bool:
        return option in self._known

    def server_environment(self, place: Place, variant: str | None = None) -> dict[str, str]:
        """The same for every start of a node as the same variant."""
        timeout = str(self._settings.waiting_timeout)
        found = plain_environment(self._scratch, self._run_id) | {
            "PYTHONPATH": f"{STANDINS}:{self._wheel}",
            "SGLANG_USE_CPU_ENGINE": "1",
            "SGLANG_HOST_IP": place.address,  # else its peers are told the address of the default route
            "HOST_IP": place.address,
            "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": timeout,
            "SGLANG_DISAGGREGATION_WAITING_TIMEOUT": timeout,
            "HF_HUB_OFFLINE": "1",
            "UCX_NET_DEVICES": self._device,
            "GLOO_SOCKET_IFNAME": self._device,
            "OMP_NUM_THREADS": "1",  # more only get into each other's way on few cores: 1.2 s a decode step
            "MKL_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        if self.transfer(variant) == "mooncake":
            found |= {"MOONCAKE_PROTOCOL": "tcp", "MC_FORCE_TCP": "true"}
        return found

    def transfer(self, variant: str | None) -> str:
        """The backend by which a server moves KV."""
        configured = self._settings.transfer
        return next(other for other in TRANSFERS if other != configured) if variant == OTHER_TRANSFER else configured

    # ------------------------------------------------------------------ router

    def router(self, place: Place, prefill: list[Place], decode: list[Place]) -> list[str]:
        """The router in front of all servers."""
        smg = self._settings.router == "smg"
        part, module = (self._installer.smg, "smg") if smg else (self._installer.router, "sglang_router")
        command = [
            str(part.folder / "bin" / "python"),
            *("-m", f"{module}.launch_router", "--pd-disaggregation"),
            *("--host", place.address, "--port", str(place.port)),
            *("--policy", "round_robin"),
        ]
        for each in prefill:
            command += ["--prefill", each.url, str(each.bootstrap_port)]
        for each in decode:
            command += ["--decode", each.url]
        if self._settings.router == "mini-lb":
            return [*command, "--mini-lb"]
        # without a host the metrics listen everywhere; every 60 s, its default, it would miss a dead server for minutes
        command += ["--prometheus-host", place.address, "--prometheus-port", str(place.metrics_port)]
        return [*command, "--health-check-interval-secs", "10"]

    def router_environment(self) -> dict[str, str]:
        """Nothing of the engine's."""
        return plain_environment(self._scratch, self._run_id)


def _options_of(source: Path) -> str:
    """The sources in which a release defines its options; from about 0.5.20 on they are many files."""
    files = [source / "server_args.py", *(source / "arg_groups").rglob("*.py")]
    return "\n".join(file.read_text() for file in files if file.is_file())
