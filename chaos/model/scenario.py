"""What a scenario file says. Durations are seconds once loaded.

What one field may hold is said here; how fields must fit together (a step's group exists, one trigger each) is said
in `chaos.model.checks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
)

from chaos.model.actions import ACTIONS, Action
from chaos.model.events import Role
from chaos.model.faults import MOST_NODES, AbortFrame, ForeignFrame, Kill, Poison, Restart, Sham, Signal
from chaos.model.headers import Headers
from chaos.model.network import Delay, Loss, Partition, PortBlock, RateLimit
from chaos.model.outcomes import Outcome
from chaos.model.repetition import ControlArm, Sweep, Trials
from chaos.model.section import Api, Name, SecretRef, Section, Version1
from chaos.model.tree import one_of
from chaos.model.units import (
    DURATION_PATTERN,
    Comparison,
    Duration,
    Matching,
    Rate,
    format_duration,
    read_duration,
    shown,
    wrong,
)

CENSUS_PHASES = ("connecting", "waiting", "streaming", "thinking")
"""Where a session can be when a wave hits it."""

SERVER_ABORTS = "server_aborts"
"""Distinct requests whose abort the servers themselves told of after a wave: known only then, so an aim, no trigger."""


class Arrival(Section):
    """How sessions arrive: spread over `ramp` (closed loop), or at a fixed `rate` (open loop, absolute deadlines).

    `for` ends an open loop: no session begins later than that after load began.
    """

    ramp: Duration = 0.0
    rate: Rate | None = None
    lasts: Duration | None = Field(default=None, alias="for")


class Saturate(Section):
    """Add sessions until `waiting` of them wait for a first token, up to `max_sessions` in the group."""

    waiting: int = Field(ge=1, le=20000)
    max_sessions: int = Field(ge=1, le=20000)


class Group(Section):
    """Sessions that share a workload. Each session runs `rounds` requests with growing context."""

    name: Name
    sessions: int = Field(default=1, ge=1, le=20000)
    rounds: int = Field(default=1, ge=1, le=10000)
    prompt_tokens: int = Field(default=64, ge=1, le=1_000_000)
    max_tokens: int = Field(default=64, ge=1, le=1_000_000)
    timeout: Duration = 120.0
    api: Api = "chat"
    stream: bool = True
    arrival: Arrival = Arrival()
    think_time: Duration = 0.0
    saturate: Saturate | None = None
    model: str | None = Field(default=None, min_length=1, max_length=500)  # default: the target's
    headers: Headers = {}  # beside the target's
    api_key: SecretRef | None = None  # default: the target's
    temperature: float = Field(default=0.0, ge=0, le=10)
    ignore_eos: bool = True  # a stream of a known length: every session costs what `max_tokens` says


ConditionName = Annotated[str, Matching(r"^[a-z][a-z0-9_]{0,62}$", "a census phase or a canonical gauge name")]


class Step(Section):
    """One step of the timeline. Exactly one trigger (`at`, `when`, `after`) and one action (`kill`, `signal`, ...).

    All conditions of `when` must hold at once; after `give_up` the step is not fired and the run is inconclusive.
    `aim` says what the fault must have met to count as landed. `for` undoes a STOP or a fault of the network after that
    long, on the engine's clocks; without it either stands until the run ends.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                {"oneOf": [{"required": [trigger]} for trigger in ("at", "when", "after")]},
                {"oneOf": [{"required": [action]} for action in ACTIONS]},
            ]
        }
    )

    id: Name
    kill: Kill | None = None
    signal: Signal | None = None
    restart: Restart | None = None
    partition: Partition | None = None
    loss: Loss | None = None
    rate: RateLimit | None = None
    delay: Delay | None = None
    port_block: PortBlock | None = None
    foreign_frame: ForeignFrame | None = None
    abort_frame: AbortFrame | None = None
    poison: Poison | None = None
    sham: Sham | None = None
    at: Duration | None = None
    when: dict[ConditionName, Comparison] | None = Field(default=None, min_length=1)
    after: Name | None = None
    lasts: Duration | None = Field(default=None, alias="for")
    give_up: Duration = 60.0
    aim: dict[ConditionName, Comparison] = {}

    @property
    def action(self) -> Action:
        """What the step does; a loaded step has exactly one."""
        given: Iterator[Action | None] = (getattr(self, name) for name in ACTIONS)
        return next(action for action in given if action is not None)


class Cycles(Section):
    """Repetitions within one deployment's life. A cycle that has not recovered fires no further wave."""

    count: int = Field(default=1, ge=1, le=1000)
    rest: Duration = 40.0
    until: Literal["wedged"] | None = None


def _at_most(value: object, info: ValidationInfo) -> str | float:
    return "engine-timeouts" if value == "engine-timeouts" else read_duration(value, info)


def _shown_limit(limit: str | float) -> str:
    return limit if isinstance(limit, str) else format_duration(limit)


WatchLimit = Annotated[
    Literal["engine-timeouts"] | float,
    BeforeValidator(_at_most),
    PlainSerializer(_shown_limit, when_used="json"),
    WithJsonSchema({"anyOf": [{"const": "engine-timeouts"}, {"type": "string", "pattern": DURATION_PATTERN}]}),
]
"""Until the engine's own timeouts have gone by, or for a duration."""


class Observe(Section):
    """How long to look. `settle` before the first canary counts, `idle` without probes at the end.

    `measure`: so much longer the load goes on after everything has recovered, to see how fast it is served.
    """

    settle: Duration = 10.0
    at_most: WatchLimit = "engine-timeouts"
    idle: Duration = 60.0
    quiet: Duration = 10.0
    baseline: Duration = 10.0
    measure: Duration = 0.0


class Canary(Section):
    """Our own fresh requests."""

    every: Duration = 1.0
    deadline: Duration = 20.0
    in_a_row: int = Field(default=5, ge=1, le=1000)
    max_tokens: int = Field(default=8, ge=1, le=512)
    api: Api = "chat"


_ALLOWED = [outcome.value for outcome in Outcome if outcome is not Outcome.INCONCLUSIVE]


def _allowed(value: object) -> Outcome:
    if value == Outcome.INCONCLUSIVE:
        raise wrong("cannot be inconclusive", "a run that showed nothing is not a pass")
    if not isinstance(value, str) or value not in _ALLOWED:
        raise wrong(*one_of(value, _ALLOWED, shown(value)))
    return Outcome(value)


AllowedOutcome = Annotated[Outcome, BeforeValidator(_allowed), WithJsonSchema({"enum": _ALLOWED})]


class Expect(Section):
    """What must still hold."""

    recover_within: Duration = 60.0
    allow: list[AllowedOutcome] = Field(default=[Outcome.HEALTHY], min_length=1)


Privilege = Literal["signal", "network", "netem", "threads"]


class Requires(Section):
    """What a target must have before anything is touched: packs it uses, metrics those packs know, nodes of a role.

    `privileges` on the hosts of its servers: to `signal` them, to change their `network` (`netem`: to delay packets,
    too), to see names and stacks of `threads`.
    """

    packs: list[Name] = []
    metrics: list[ConditionName] = []
    nodes: dict[Role, Annotated[int, Field(ge=1, le=MOST_NODES)]] = {}  # at least so many of a role
    privileges: list[Privilege] = []


class Scenario(Section):
    """A whole scenario file."""

    version: Version1
    name: Name
    about: str = ""
    requires: Requires = Requires()
    load: list[Group] = []
    timeline: list[Step] = []
    cycles: Cycles = Cycles()
    trials: Trials = Trials()
    sweep: Sweep | None = None
    control: ControlArm | None = None
    observe: Observe = Observe()
    canary: Canary = Canary()
    expect: Expect = Expect()
    seed: int = Field(default=1, ge=0, le=2**63 - 1)
