"""The kind of lab `sglang`: any released version, real processes, no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.lab.kinds import BuildInfo, LabInfo, LabSpec, RunningLab
from chaos.lab.options import list_options, read_options
from chaos.lab.real.sglang.commands import OTHER_TRANSFER, Settings
from chaos.lab.real.sglang.install import TRIED, SGLangInstaller
from chaos.lab.real.sglang.lab import START_TIMEOUT_S, WARM_TIMEOUT_S, RunningSGLang, describe
from chaos.model.errors import UsageError
from chaos.model.target import ServerSpec, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SGLANG = "sglang"

_ABORT = "sgl-project/sglang#30352"
_BUILDS = (
    BuildInfo(
        "0.5.14", "with nixl, an abort ends prefill's control thread (0.5.13 to 0.5.15)", "0.5.14", _ABORT, "0.5.16"
    ),
    BuildInfo("0.5.16", "aborts are handled; a foreign frame still ends the thread", "0.5.16"),
    BuildInfo("0.5.23", "as 0.5.16; the log says when the thread ends", "0.5.23"),
)
_STANDINS = (
    "torchvision, sgl_kernel: empty modules where they are not installed; a call raises",
    "NIXL memory type VRAM means ordinary memory; the transfer itself is NIXL's, UCX over TCP",
    "weights are random (two layers), attention and sampling are plain PyTorch: content says nothing, nor does speed",
    "one thread for arithmetic in each server",
    "engine timeouts are 60 s, not 300 s, unless --set waiting_timeout says otherwise",
)
_NOTES = (
    "as root, where the program ip is there, it runs in a network namespace of its own",
    "else torch and mooncake listen on every interface while it is up",
    "transfer=mooncake needs Debian's libibverbs1 librdmacm1 libnuma1",
    "two cores and 4 GB of memory are enough for one pair",
)


class SGLang:
    """The kind."""

    name = SGLANG

    def __init__(self) -> None:
        self.installer = SGLangInstaller()

    def info(self) -> LabInfo:
        """Tried versions, options, and everything that is not the untouched engine."""
        return LabInfo(
            name=SGLANG,
            kind="real engine",
            about="SGLang as released: prefill, decode and router on CPU, tiny random weights; other versions untried",
            upstream="sglang-router 0.3.2, nixl 1.5.1, mooncake 0.3.13",
            builds=_BUILDS,
            options=list_options(Settings),
            standins=_STANDINS,
            notes=_NOTES,
        )

    def parse(self, build: str, options: Mapping[str, str]) -> SGLangSpec:
        """`sglang@VERSION`."""
        if not build:
            raise UsageError(f"lab {SGLANG} needs a version", hint=f"for example lab:{SGLANG}@{TRIED[0]}")
        return SGLangSpec(SGLANG, build, read_options(SGLANG, Settings, options), self.installer)


@dataclass(frozen=True)
class SGLangSpec(LabSpec):
    """A version with options."""

    kind: str
    build: str
    settings: Settings
    installer: SGLangInstaller

    patience_s = START_TIMEOUT_S + WARM_TIMEOUT_S
    variants = (OTHER_TRANSFER,)

    def outline(self) -> Target:
        """Every address and process is a placeholder."""
        nowhere = ServerSpec(url="http://127.0.0.1:1", pid=1)
        prefill = nowhere.model_copy(update={"bootstrap_port": 1})
        return describe(self.settings, nowhere, [prefill] * self.settings.prefill, [nowhere] * self.settings.decode)

    def start(self, folder: Path, progress: Callable[[str], None], *, run_id: str) -> RunningLab:
        """Start it; UsageError when the version is not installed."""
        return RunningSGLang(self.installer, self.build, self.settings, folder, progress, run_id)
