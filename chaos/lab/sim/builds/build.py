"""What a build is."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.lab.sim.control import ControlLoop, PrefillManager
from chaos.lab.sim.decode_scheduler import DecodeScheduler
from chaos.lab.sim.dispatch import Dispatcher
from chaos.lab.sim.frontend import Frontend
from chaos.lab.sim.peers import Peers
from chaos.lab.sim.pool import KvPool
from chaos.lab.sim.prefill_scheduler import PrefillScheduler
from chaos.lab.sim.stats import NodeMetrics
from chaos.lab.sim.transfer import TransferWorkers
from chaos.lab.sim.workers import Workers


@dataclass(frozen=True, slots=True)
class Build:
    """One variant; the defaults are the healthy engine. docs/lab.md tells what each part is for."""

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
    metrics: type[NodeMetrics] = NodeMetrics
    dispatcher: type[Dispatcher] = Dispatcher
    workers: type[Workers] = Workers
    watches_ranks: bool = True  # SubprocessWatchdog: a rank process that ends takes the server along
    prefill_reports_running: bool = True  # sglang PR #31495, 0.5.16
