"""The kind of lab `dynamo`: released versions, the real frontend, mock engines, no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.lab.kinds import BuildInfo, LabInfo
from chaos.lab.options import list_options
from chaos.lab.real.commands import MODEL_NAME
from chaos.lab.real.dynamo.commands import ETCD_LEASE_S, FILE_LEASE_S, RENDEZVOUS_S, Settings
from chaos.lab.real.dynamo.install import DynamoInstaller
from chaos.lab.real.dynamo.lab import START_TIMEOUT_S, RunningDynamo
from chaos.lab.real.dynamo.warmth import WARM_TIMEOUT_S
from chaos.lab.real.kind import RealKind, RealSpec
from chaos.model.target import ServerSpec, Target

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.lab.real.cache import Part

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


class DynamoSpec(RealSpec[Settings, DynamoInstaller]):
    """A version with options."""

    patience_s = START_TIMEOUT_S + WARM_TIMEOUT_S
    bootstraps = False

    @property
    def parts(self) -> tuple[Part, ...]:
        """One environment for frontend and workers."""
        return (self.installer.deps, self.installer.model, self.installer.version(self.build))

    def describe(self, router: ServerSpec, prefill: list[ServerSpec], decode: list[ServerSpec]) -> Target:
        """The lab as a target file would describe it."""
        lease_s = FILE_LEASE_S if self.settings.discovery == "file" else ETCD_LEASE_S
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
            timeouts={"lease": lease_s, "rendezvous": RENDEZVOUS_S},
        )

    def prepare(self, folder: Path, run_id: str) -> RunningDynamo:
        """Frontend and workers."""
        return RunningDynamo(self, folder, run_id)


DYNAMO = RealKind(
    LabInfo(
        name="dynamo",
        kind="real engine",
        about="NVIDIA Dynamo as released: real frontend, mock engines as workers; other versions untried",
        upstream="ai-dynamo, ai-dynamo-runtime",
        builds=_BUILDS,
        options=list_options(Settings),
        standins=_STANDINS,
        notes=_NOTES,
    ),
    Settings,
    DynamoInstaller(),
    DynamoSpec,
)
