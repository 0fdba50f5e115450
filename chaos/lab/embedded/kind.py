"""The kind of lab `sim`: no installation, historical bugs as builds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.lab.embedded.lab import RunningSim
from chaos.lab.kinds import BuildInfo, LabInfo, LabSpec, suggest
from chaos.lab.options import list_options, read_options
from chaos.lab.sim.builds import BUILDS, HEALTHY
from chaos.lab.sim.config import Clocks, Settings
from chaos.model.errors import UsageError
from chaos.model.target import ServerSpec, Target

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SIM = "sim"
GAUGE_LAG_S = 35.0  # 30 s between two idle writes, and some slack


class Embedded:
    """The kind."""

    name = SIM
    installer = None

    def info(self) -> LabInfo:
        """Every build and option."""
        return LabInfo(
            name=SIM,
            kind="embedded",
            about="router, prefill and decode as processes on this machine that behave as SGLang PD does; no GPU",
            upstream="sglang 0.5.14 and 0.5.16, sglang-router 0.3.2",
            builds=tuple(
                BuildInfo(build.name, build.about, build.version, build.upstream, build.fixed_in)
                for build in BUILDS.values()
            ),
            options=list_options(Settings),
        )

    def parse(self, build: str, options: Mapping[str, str]) -> SimSpec:
        """`sim` or `sim@BUILD`."""
        build = build or HEALTHY
        if build not in BUILDS:
            raise UsageError(f"lab {SIM} has no build {build!r}", hint=suggest(build, list(BUILDS)))
        return SimSpec(kind=SIM, build=build, settings=read_options(SIM, Settings, options))


@dataclass(frozen=True)
class SimSpec(LabSpec):
    """A sim as asked for."""

    kind: str
    build: str
    settings: Settings

    def describe(self, router: ServerSpec, prefill: list[ServerSpec], decode: list[ServerSpec]) -> Target:
        """The lab as a target file would describe it."""
        scale = self.settings.time_scale
        timeout_s = Clocks.scaled(scale).waiting_timeout_s
        return Target(
            version=1,
            name="lab-sim",
            about="an embedded lab",
            router=router,
            prefill=prefill,
            decode=decode,
            model=self.settings.model,
            allow=["kill", "signal", "restart", "protocol", "request"],
            timeouts={"waiting": timeout_s, "bootstrap": timeout_s},
            gauge_lag=GAUGE_LAG_S * scale,
            time_scale=scale,
            content="echo",
        )

    def prepare(self, folder: Path, run_id: str) -> RunningSim:
        """Router, prefills and decodes."""
        return RunningSim(self, folder, run_id)
