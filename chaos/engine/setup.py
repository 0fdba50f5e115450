"""What a run is given before it begins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chaos.engine.owners import Owners
from chaos.engine.ports import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from chaos.engine.bus import Listener
    from chaos.engine.hosts import Hosts
    from chaos.engine.hosts.lock import TargetLock
    from chaos.engine.ports import Clock, Restarter
    from chaos.engine.safety import Interrupt
    from chaos.journal import RunFolder
    from chaos.model import events as ev
    from chaos.model.pack import Pack
    from chaos.model.scenario import Scenario
    from chaos.model.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetup:
    """Everything a run is given."""

    scenario: Scenario
    target: Target
    hosts: Hosts
    target_kind: str  # "lab:sim" or "file": never a build or a host
    packs: Mapping[str, Pack]
    packs_used: tuple[ev.PackUsed, ...]
    plan: ev.Plan
    run_id: str
    utc: str
    folder: RunFolder
    pyz: Path
    interrupt: Interrupt
    close_target: Callable[[], str]  # stops a lab that was started for this run; says what would not go
    restarter: Restarter | None = None
    lock: TargetLock | None = None  # kept alive while the run lasts
    gave_way: tuple[str, ...] = ()  # locks of other runs that gave way to it
    listeners: list[Listener] = field(default_factory=list)
    clock: Clock = field(default_factory=SystemClock)

    @property
    def owners(self) -> Owners:
        """Who may own a codeword."""
        return Owners(tuple(group.name for group in self.scenario.load))
