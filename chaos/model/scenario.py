"""What a scenario file says: load, timeline, cycles, observation, expectation. Durations are seconds once loaded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from chaos.model.outcomes import Outcome
from chaos.model.units import Duration, Rate

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
Comparison = Annotated[str, Field(pattern=r"^\s*(>=|<=|==|>|<)\s*\d+(\.\d+)?\s*$")]
Api = Literal["chat", "completions", "generate"]


class Section(BaseModel):
    """Base of every mapping in our YAML: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Arrival(Section):
    """How sessions arrive: spread over `ramp` (closed loop), or at a fixed `rate` (open loop, absolute deadlines)."""

    ramp: Duration = 0.0
    rate: Rate | None = None


class Saturate(Section):
    """Add sessions until `waiting` of them wait for a first token, up to `max_sessions` in the group."""

    waiting: int = Field(ge=1)
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


class Kill(Section):
    """End many sessions of a group at once: `sigkill` kills whole client processes, the others hit chosen sessions."""

    group: Name
    sessions: Literal["all"] | int = "all"
    how: Literal["sigkill", "rst", "fin", "cancel"] = "sigkill"


class Step(Section):
    """One step of the timeline. Exactly one trigger (`at`, `when`, `after`) and one action (`kill`)."""

    id: Name
    kill: Kill
    at: Duration | None = None
    when: dict[str, Comparison] | None = None
    after: Name | None = None
    give_up: Duration = 60.0
    aim: dict[str, Comparison] = {}


class Cycles(Section):
    """Repetitions within one deployment's life. A cycle that has not recovered fires no further wave."""

    count: int = Field(default=1, ge=1, le=1000)
    rest: Duration = 40.0
    until: Literal["wedged"] | None = None


class Trials(Section):
    """Runs on freshly started deployments."""

    count: int = Field(default=1, ge=1, le=1000)


class Observe(Section):
    """How long to look. `settle` before the first canary counts, `idle` without probes at the end."""

    settle: Duration = 10.0
    at_most: Literal["engine-timeouts"] | Duration = "engine-timeouts"
    idle: Duration = 60.0
    quiet: Duration = 10.0
    baseline: Duration = 10.0


class Canary(Section):
    """Our own fresh requests."""

    every: Duration = 1.0
    deadline: Duration = 20.0
    in_a_row: int = Field(default=5, ge=1, le=1000)
    max_tokens: int = Field(default=8, ge=1, le=512)
    api: Api = "chat"


class Expect(Section):
    """What must still hold."""

    recover_within: Duration = 60.0
    allow: list[Outcome] = [Outcome.HEALTHY]


class Scenario(Section):
    """A whole scenario file."""

    version: Literal[1]
    name: Name
    about: str = ""
    load: list[Group] = []
    timeline: list[Step] = []
    cycles: Cycles = Cycles()
    trials: Trials = Trials()
    observe: Observe = Observe()
    canary: Canary = Canary()
    expect: Expect = Expect()
    seed: int = 1
