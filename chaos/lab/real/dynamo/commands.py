"""What a Dynamo lab is asked for, and the command lines and environments that follow from it.

Flags and environment are those under which the releases in `install.TRIED` serve without NATS and without a GPU: file
or etcd discovery, requests over TCP, events over ZeroMQ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.lab.options import number, word
from chaos.lab.real import commands
from chaos.lab.real.commands import MODEL_NAME, plain_environment

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.lab.real.dynamo.install import DynamoInstaller

DISCOVERIES = ("file", "etcd")
ROUTERS = ("round-robin", "random", "power-of-two", "least-loaded", "kv")
BLOCK_TOKENS = 16
FILE_LEASE_S = 10.0
"""1.6.1: a worker that has not refreshed its files for this long is taken for dead and its files are removed."""
ETCD_LEASE_S = 30.0
"""1.6.1: the lease that etcd grants."""
RENDEZVOUS_S = 30.0
"""1.6.1: how long a prefilled request waits for a decode worker that never comes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a Dynamo lab."""

    prefill: int = number(1, "number of prefill workers; each takes about 100 MB of memory", least=1, most=8)
    decode: int = number(1, "number of decode workers", least=1, most=8)
    discovery: str = word("file", "how workers are found", DISCOVERIES)
    router: str = word("round-robin", "how the frontend chooses a worker", ROUTERS)
    migration: int = number(0, "how often the frontend may move a request to another worker", most=100)
    speedup: float = number(1.0, "how fast the mock engine runs, 1 is a GPU's pace", least=0.001, most=1e3)
    blocks: int = number(4096, f"KV blocks of {BLOCK_TOKENS} tokens of each worker", least=16)
    max_seqs: int = number(64, "requests that a worker runs at once", least=1, most=4096)
    port: int = number(0, "the frontend's port; 0 takes a free one", most=65535)


@dataclass(frozen=True, slots=True)
class Place(commands.Place):
    """Where a node listens; `system_port` has a worker's health and metrics."""

    system_port: int
    bootstrap_port: int | None = None  # prefill

    @property
    def url(self) -> str:
        """Where it is asked: a worker takes no HTTP requests, but says how it is."""
        return f"http://{self.address}:{self.port if self.role == 'router' else self.system_port}"


class Commands:
    """Command lines and environments of one lab."""

    def __init__(
        self, installer: DynamoInstaller, version: str, settings: Settings, *, scratch: Path, run_id: str, etcd: str
    ) -> None:
        """`scratch` is a folder that dies with the lab; `etcd` is the URL of an etcd, or empty."""
        self._installer = installer
        self._settings = settings
        self._wheels = installer.version(version).folder
        self._scratch = scratch
        self._run_id = run_id
        self._etcd = etcd

    def node(self, place: Place) -> list[str]:
        """The frontend or a worker."""
        return self._frontend(place) if place.role == "router" else self._worker(place)

    def _frontend(self, place: Place) -> list[str]:
        settings = self._settings
        return [
            *(str(self._installer.python), "-m", "dynamo.frontend"),
            *("--http-host", place.address, "--http-port", str(place.port)),
            *("--router-mode", settings.router),
            *(("--migration-limit", str(settings.migration)) if settings.migration else ()),
        ]

    def _worker(self, place: Place) -> list[str]:
        settings = self._settings
        return [
            *(str(self._installer.python), "-m", "dynamo.mocker"),
            *("--model-path", str(self._installer.model.folder), "--model-name", MODEL_NAME),
            *("--disaggregation-mode", place.role),
            *("--block-size", str(BLOCK_TOKENS), "--num-gpu-blocks-override", str(settings.blocks)),
            *("--max-num-seqs", str(settings.max_seqs), "--speedup-ratio", f"{settings.speedup:g}"),
            *(("--bootstrap-ports", str(place.bootstrap_port)) if place.bootstrap_port else ()),
        ]

    def environment(self, place: Place) -> dict[str, str]:
        """The same for every start of a node."""
        hosts = ("HTTP", "SYSTEM", "TCP_RPC", "TCP_RESPONSE_STREAM", "EVENT_PLANE", "HTTP_RPC")
        return {
            **plain_environment(self._scratch, self._run_id),
            "PYTHONPATH": str(self._wheels),
            "HF_HUB_OFFLINE": "1",
            "DYN_NAMESPACE": "pdchaos",
            "DYN_DISCOVERY_BACKEND": self._settings.discovery,
            "DYN_FILE_KV": str(self._scratch / "discovery"),
            **({"ETCD_ENDPOINTS": self._etcd} if self._etcd else {}),
            "DYN_REQUEST_PLANE": "tcp",
            "DYN_EVENT_PLANE": "zmq",
            **{f"DYN_{host}_HOST": place.address for host in hosts},
            "DYN_SYSTEM_PORT": str(place.system_port),
            # 1.6.1 calls it deprecated, but without it a mock worker's /health stays 503 for ever
            "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]',
            "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
            "DYN_LOG": "info",
        }
