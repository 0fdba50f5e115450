"""The named variants of the engine. To add one, add an entry to `BUILDS`; that is all.

A `Build` says what it is (about, upstream reference, version) and which parts differ from a healthy 0.5.16. Each part
is a class; a bug is a small subclass here, beside its entry, that overrides the one method where upstream went wrong:

- `control`   `ControlLoop`       frames on the prefill's control socket, and what ends its thread
- `manager`   `PrefillManager`    rooms on the prefill: registration, transfer infos, abort notices
- `transfer`  `TransferWorkers`   how KV leaves the prefill
- `pool`      `KvPool`            how KV tokens and slots are reserved, grown and given back
- `prefill`   `PrefillScheduler`  the prefill's queues
- `decode`    `DecodeScheduler`   the decode's queues, `notify_abort` among them
- `frontend`  `Frontend`          aborts of clients that left, and `/health`

plus switches for facts of a version (`prefill_reports_running`). Nothing outside this module asks for a build's name,
and no name of a build is ever logged or served. A build is worth having when a real release behaved so: name the
upstream change, and the release that mended it. A test that shows the bug from outside belongs to each.
"""

from __future__ import annotations

from dataclasses import dataclass

from chaos.lab.sim.control import ControlLoop, PrefillManager
from chaos.lab.sim.decode_scheduler import DecodeScheduler
from chaos.lab.sim.frontend import Frontend
from chaos.lab.sim.peers import Peers
from chaos.lab.sim.pool import KvPool
from chaos.lab.sim.prefill_scheduler import PrefillScheduler
from chaos.lab.sim.transfer import TransferWorkers


@dataclass(frozen=True, slots=True)
class Build:
    """One variant; the defaults are the healthy engine."""

    name: str
    about: str
    version: str
    upstream: str = ""
    fixed_in: str = ""
    control: type[ControlLoop] = ControlLoop
    manager: type[PrefillManager] = PrefillManager
    transfer: type[TransferWorkers] = TransferWorkers
    pool: type[KvPool] = KvPool
    prefill: type[PrefillScheduler] = PrefillScheduler
    decode: type[DecodeScheduler] = DecodeScheduler
    peers: type[Peers] = Peers
    frontend: type[Frontend] = Frontend
    watches_ranks: bool = True  # SubprocessWatchdog: a rank process that ends takes the server along
    prefill_reports_running: bool = True  # sglang PR #31495, 0.5.16


class AbortUnhandled(ControlLoop):
    """ABORT is a frame like any other, so it lacks the guard and ends the thread."""

    def on_abort(self, frames: list[bytes]) -> None:
        """Nobody thought of it."""
        self.on_guarded(frames)


HEALTHY = "healthy"

BUILDS: dict[str, Build] = {
    build.name: build
    for build in (
        Build(
            name=HEALTHY,
            about="no known bug in the abort path",
            version="0.5.16",
        ),
        Build(
            name="nixl-abort-unhandled",
            about="the first ABORT from decode ends the prefill's control thread; no later request ever bootstraps",
            version="0.5.14",
            upstream="sgl-project/sglang PR #30352 (ABORT introduced by #27372)",
            fixed_in="0.5.16",
            control=AbortUnhandled,
            prefill_reports_running=False,
        ),
    )
}
