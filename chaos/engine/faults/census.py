"""The census at the moment of a fault: in which phase every session was, and what the queues held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.engine.load.census import PHASES
from chaos.model import events as ev
from chaos.model.scenario import SERVER_ABORTS
from chaos.model.units import bounds

if TYPE_CHECKING:
    from chaos.engine.faults.kit import FaultKit
    from chaos.model.scenario import Step


def tell_census(step: Step, kit: FaultKit, counted: dict[str, int] | None, at_ns: int) -> None:
    """Journal the census of a step and how it compares with the step's aim."""
    queues = tuple(kit.probes.readings())
    checks = []
    for bound in bounds(step.aim):
        if bound.name == SERVER_ABORTS:
            continue  # only the servers can tell, and only later
        if bound.name in PHASES:
            got = float(counted[bound.name]) if counted else None
        else:
            of_gauge = [reading.value for reading in queues if reading.name == bound.name]
            got = sum(of_gauge) if of_gauge else None
        checks.append(ev.AimCheck(name=bound.name, op=bound.op, want=bound.value, got=got))
    kit.emit(
        ev.WaveCensus(
            t_ns=kit.clock.now_ns(),
            src_t_ns=at_ns,
            wave=step.id,
            phases=counted or {},
            queues=queues,
            aim=tuple(checks),
        )
    )
