"""The event stream, format 1: everything a run observes or does, as small frozen structs.

The engine emits these and does not know who listens; the journal writes them; the judge reads nothing else.
Times ending in `_ns` are nanoseconds of the harness's CLOCK_MONOTONIC unless the event names another `clock`.
Identities are roles and ordinals (`prefill-0`), never host names, so a verdict does not depend on where a run
happened; no lab build name and no secret is ever put into an event.
"""

from __future__ import annotations

from chaos.model.events.deployment import (
    DeploymentSeen,
    EngineTimeout,
    MetricPurpose,
    MetricUse,
    Node,
    Path,
    Role,
    ThreadUse,
)
from chaos.model.events.envelope import Event, Record
from chaos.model.events.faults import AimCheck, FaultStep, QueueReading, Stage, WaveCensus, WaveFired
from chaos.model.events.levels import LevelsTold, Sample, Scrape
from chaos.model.events.life import Child, Liveness, ProcessSeen
from chaos.model.events.logs import HitClass, LogCovered, LogHit
from chaos.model.events.looking import ClockMeasured, EvidenceLost, ForensicsTaken, HarnessHealth
from chaos.model.events.plan import Bound, ContentMode, Plan, PlannedFault
from chaos.model.events.requests import (
    Content,
    EndedBy,
    Gaps,
    LoadTold,
    RequestEnded,
    RequestKind,
    RequestOverdue,
    RequestStarted,
)
from chaos.model.events.run import Origin, PackUsed, Phase, PhaseEntered, RunEnded, RunStarted

FORMAT = 1

AnyEvent = (
    RunStarted
    | DeploymentSeen
    | ClockMeasured
    | PhaseEntered
    | RequestStarted
    | RequestOverdue
    | RequestEnded
    | LoadTold
    | WaveCensus
    | WaveFired
    | FaultStep
    | Scrape
    | LevelsTold
    | Liveness
    | LogHit
    | LogCovered
    | ProcessSeen
    | ForensicsTaken
    | EvidenceLost
    | HarnessHealth
    | RunEnded
)

__all__ = [
    "FORMAT",
    "AimCheck",
    "AnyEvent",
    "Bound",
    "Child",
    "ClockMeasured",
    "Content",
    "ContentMode",
    "DeploymentSeen",
    "EndedBy",
    "EngineTimeout",
    "Event",
    "EvidenceLost",
    "FaultStep",
    "ForensicsTaken",
    "Gaps",
    "HarnessHealth",
    "HitClass",
    "LevelsTold",
    "Liveness",
    "LoadTold",
    "LogCovered",
    "LogHit",
    "MetricPurpose",
    "MetricUse",
    "Node",
    "Origin",
    "PackUsed",
    "Path",
    "Phase",
    "PhaseEntered",
    "Plan",
    "PlannedFault",
    "ProcessSeen",
    "QueueReading",
    "Record",
    "RequestEnded",
    "RequestKind",
    "RequestOverdue",
    "RequestStarted",
    "Role",
    "RunEnded",
    "RunStarted",
    "Sample",
    "Scrape",
    "Stage",
    "ThreadUse",
    "WaveCensus",
    "WaveFired",
]
