"""The kind of lab `dynamo`: released versions, the real frontend, mock engines, no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.lab.kinds import BuildInfo, LabInfo, LabSpec, RunningLab
from chaos.lab.options import list_options, read_options
from chaos.lab.real.dynamo.commands import Settings
from chaos.lab.real.dynamo.install import TRIED, DynamoInstaller
from chaos.lab.real.dynamo.lab import START_TIMEOUT_S, WARM_TIMEOUT_S, RunningDynamo, describe
from chaos.model.errors import UsageError
from chaos.model.target import ServerSpec, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

DYNAMO = "dynamo"

_BUILDS = (
    BuildInfo("1.6.1", "with file discovery, a worker that was frozen past its lease is never used again", "1.6.1"),
)
_STANDINS = (
    "workers are Dynamo's own mock engine: scheduling, KV blocks and timing are simulated, answers are random tokens",
    "Dynamo itself is as released; of its declared dependencies only those that frontend and mock engine import",
)
_NOTES = (
    "runs in a network namespace of its own, for which it needs root and the program ip",
    "discovery=etcd needs Debian's etcd-server",
    "0.3 GB of disk, 0.1 GB of memory per process, up in seconds",
)


class Dynamo:
    """The kind."""

    name = DYNAMO

    def __init__(self) -> None:
        self.installer = DynamoInstaller()

    def info(self) -> LabInfo:
        """Tried versions, options, and everything that is not the untouched engine."""
        return LabInfo(
            name=DYNAMO,
            kind="real engine",
            about="NVIDIA Dynamo as released: real frontend, mock engines as workers; other versions untried",
            upstream="ai-dynamo, ai-dynamo-runtime",
            builds=_BUILDS,
            options=list_options(Settings),
            standins=_STANDINS,
            notes=_NOTES,
        )

    def parse(self, build: str, options: Mapping[str, str]) -> DynamoSpec:
        """`dynamo@VERSION`."""
        if not build:
            raise UsageError(f"lab {DYNAMO} needs a version", hint=f"for example lab:{DYNAMO}@{TRIED[0]}")
        return DynamoSpec(DYNAMO, build, read_options(DYNAMO, Settings, options), self.installer)


@dataclass(frozen=True)
class DynamoSpec(LabSpec):
    """A version with options."""

    kind: str
    build: str
    settings: Settings
    installer: DynamoInstaller

    patience_s = START_TIMEOUT_S + WARM_TIMEOUT_S

    def outline(self) -> Target:
        """Every address and process is a placeholder."""
        nowhere = ServerSpec(url="http://127.0.0.1:1", pid=1)
        return describe(self.settings, nowhere, [nowhere] * self.settings.prefill, [nowhere] * self.settings.decode)

    def start(self, folder: Path, progress: Callable[[str], None], *, run_id: str) -> RunningLab:
        """Start it; LabError when the version is not installed."""
        return RunningDynamo(self.installer, self.build, self.settings, folder, progress, run_id)
