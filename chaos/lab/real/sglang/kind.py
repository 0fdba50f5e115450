"""The kind of lab `sglang`: any released version, real processes, no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.lab.kinds import BuildInfo, LabInfo
from chaos.lab.options import list_options
from chaos.lab.real.commands import MODEL_NAME
from chaos.lab.real.kind import RealKind, RealSpec
from chaos.lab.real.sglang.commands import OTHER_TRANSFER, Settings
from chaos.lab.real.sglang.install import SGLangInstaller
from chaos.lab.real.sglang.lab import START_TIMEOUT_S, RunningSGLang
from chaos.lab.real.sglang.warmth import WARM_TIMEOUT_S
from chaos.model.target import ServerSpec, Target

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.lab.real.cache import Part

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


class SGLangSpec(RealSpec[Settings, SGLangInstaller]):
    """A version with options."""

    patience_s = START_TIMEOUT_S + WARM_TIMEOUT_S
    variants = (OTHER_TRANSFER,)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The engine's environment and the router's, which is a different one for each router."""
        router = self.installer.smg if self.settings.router == "smg" else self.installer.router
        return (self.installer.deps, router, self.installer.model, self.installer.version(self.build))

    def describe(self, router: ServerSpec, prefill: list[ServerSpec], decode: list[ServerSpec]) -> Target:
        """The lab as a target file would describe it."""
        timeout_s = float(self.settings.waiting_timeout)
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

    def prepare(self, folder: Path, run_id: str) -> RunningSGLang:
        """Router and servers."""
        return RunningSGLang(self, folder, run_id)


SGLANG = RealKind(
    LabInfo(
        name="sglang",
        kind="real engine",
        about="SGLang as released: prefill, decode and router on CPU, tiny random weights; other versions untried",
        upstream="sglang-router 0.3.2, nixl 1.5.1, mooncake 0.3.13",
        builds=_BUILDS,
        options=list_options(Settings),
        standins=_STANDINS,
        notes=_NOTES,
    ),
    Settings,
    SGLangInstaller(),
    SGLangSpec,
)
