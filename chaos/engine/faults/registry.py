"""Which fault plays which action. A new kind of fault is one line here and a module beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.engine.faults.aborts import AbortApi
from chaos.engine.faults.frames import AbortFrameFault, ForeignFrameFault
from chaos.engine.faults.holds import HoldFault
from chaos.engine.faults.network import NetworkFault
from chaos.engine.faults.poison import PoisonFault
from chaos.engine.faults.restarts import RestartFault
from chaos.engine.faults.sham import ShamFault
from chaos.engine.faults.signals import SignalFault
from chaos.engine.faults.waves import Wave
from chaos.model.faults import HOLDS, AbortFrame, ForeignFrame, Kill, Poison, Restart, Sham, Signal
from chaos.model.network import Delay, Loss, Partition, PortBlock, RateLimit

if TYPE_CHECKING:
    from chaos.engine.faults.kit import FaultKit
    from chaos.engine.faults.life import Fault
    from chaos.model.scenario import Step
    from chaos.model.section import Section

FAULTS: dict[type[Section], type[Fault]] = {
    Kill: Wave,
    Signal: SignalFault,
    Restart: RestartFault,
    Partition: NetworkFault,
    Loss: NetworkFault,
    RateLimit: NetworkFault,
    Delay: NetworkFault,
    PortBlock: NetworkFault,
    ForeignFrame: ForeignFrameFault,
    AbortFrame: AbortFrameFault,
    Poison: PoisonFault,
    Sham: ShamFault,
}


KILLS: dict[str, type[Fault]] = {"abort-api": AbortApi, **dict.fromkeys(HOLDS, HoldFault)}
"""Ways of `kill` that do not end connections themselves."""


def prepare(step: Step, kit: FaultKit, *, cycle: int = 1) -> Fault:
    """The fault that a step of the timeline asks for; nothing is touched yet."""
    of_kind = FAULTS[type(step.action)]
    return (KILLS.get(step.kill.how, of_kind) if step.kill else of_kind)(step, kit, cycle=cycle)
