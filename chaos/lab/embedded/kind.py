"""The kind of lab `sim`: no installation, historical bugs as builds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.lab.embedded.lab import RunningSim, describe
from chaos.lab.kinds import BuildInfo, LabInfo, LabSpec, suggest
from chaos.lab.options import list_options, read_options
from chaos.lab.sim.builds import BUILDS, HEALTHY
from chaos.lab.sim.config import Settings
from chaos.model.errors import UsageError
from chaos.model.target import ServerSpec, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SIM = "sim"


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

    def outline(self) -> Target:
        """Every address and process is a placeholder."""
        nowhere = ServerSpec(url="http://127.0.0.1:1", pid=1)
        prefill = nowhere.model_copy(update={"bootstrap_port": 1})
        return describe(self.settings, nowhere, [prefill] * self.settings.prefill, [nowhere] * self.settings.decode)

    def start(self, folder: Path, progress: Callable[[str], None], *, run_id: str) -> RunningSim:
        """Start router, prefills and decodes."""
        lab = RunningSim(self, folder, run_id)
        try:
            lab.launch(progress)
        except BaseException:
            lab.stop()
            raise
        return lab
