"""How a run begins, moves on and ends."""

from __future__ import annotations

from typing import Literal

from chaos.model.events.envelope import Event, Record
from chaos.model.events.plan import Plan

Phase = Literal[
    "baseline", "load", "watching", "recovery", "rest", "measuring", "teardown", "idle", "last-canaries", "leaving"
]
Origin = Literal["live", "imported"]


class PackUsed(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A pack that gave log lines and metrics their meaning in this run."""

    name: str
    engine: str
    sha256: str


class RunStarted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run.started"):
    """The first event. `target` is a kind (`lab:sim`, `file`), never a build or a host.

    `origin` says whether a run of ours observed all this, or whether it was imported from what people had collected.
    """

    format: int
    run_id: str
    tool_version: str
    utc: str  # ISO 8601, for people
    target: str
    plan: Plan
    seed: int = 0
    packs: tuple[PackUsed, ...] = ()
    origin: Origin = "live"
    gave_way: tuple[str, ...] = ()  # locks of other runs: what was dead and taken over, what was stolen and why


class PhaseEntered(Event, frozen=True, kw_only=True, omit_defaults=True, tag="phase.entered"):
    """The run moved on."""

    phase: Phase
    reason: str = ""


class RunEnded(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run.ended"):
    """The last event of a run that could say goodbye."""

    status: str  # RunStatus
    cleanup: str  # Cleanup
    reason: str = ""
    cleanup_detail: str = ""
