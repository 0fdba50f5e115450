"""A campaign: several runs of one scenario, each on a fresh deployment; its record, and what they say together."""

from __future__ import annotations

from typing import Literal

import msgspec

from chaos.model.outcomes import Answer, Cleanup, ExitCode, Outcome, RunStatus
from chaos.model.verdict import Part

FORMAT = 1

Sides = Literal["both", "upper", "lower"]

Arm = Literal["fault", "control"]
"""`control` is the same load without the fault."""

# ---------------------------------------------------------------------------------------------- the record


class PlannedRun(Part, frozen=True, kw_only=True):
    """One run as planned."""

    number: int  # in the order in which they are made, from 1
    folder: str  # relative to the campaign's
    dose: str  # "load.agents.sessions=20"; empty where nothing is swept
    trial: int  # of this dose and arm, from 1
    arm: Arm = "fault"


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A line of a campaign's record, which the runs' own journals complete."""


class Begun(Entry, frozen=True, kw_only=True, tag="campaign.begun"):
    """The first line."""

    format: int
    campaign_id: str
    tool_version: str
    utc: str  # ISO 8601, for people
    scenario: str
    about: str
    target: str  # a kind, as in a run's journal
    allow: tuple[str, ...]
    until: str  # "wedged": the first that broke is the last
    runs: tuple[PlannedRun, ...]
    slower_by: float = 0.0  # what is slower than the control by less is not degraded


class Failed(Entry, frozen=True, kw_only=True, tag="run.failed"):
    """A run that could not even begin: it has no journal."""

    number: int
    exit_code: ExitCode
    error: str


class Ended(Entry, frozen=True, kw_only=True, tag="campaign.ended"):
    """The last line of a campaign that could say goodbye."""

    reason: str  # why not all of the planned runs were made; empty: they were, or the first that broke was the last
    interrupted: bool  # by a person or a signal


AnyEntry = Begun | Failed | Ended

# ---------------------------------------------------------------------------------------------- the verdict


class Rate(Part, frozen=True, kw_only=True):
    """How often something happened, with an exact interval.

    `sides` says which of its ends is a bound: where nothing (or everything) was hit, the interval is one-sided, and
    the whole error is spent on that one side.
    """

    hits: int
    of: int
    low: float
    high: float
    sides: Sides
    level: float


class Survival(Part, frozen=True, kw_only=True):
    """After how many hits trials no longer served. Those that still served at their end are right-censored."""

    unit: Literal["waves", "aborts"]
    broke_after: tuple[int, ...]  # hits of each trial that broke, the fatal one included
    survived: tuple[int, ...]  # hits of each trial that still served
    median: float | None  # hits after which half no longer serve (Kaplan-Meier); None: more than half survived


class Latency(Part, frozen=True, kw_only=True):
    """How fast one run served requests after it had recovered: a median per measure."""

    why: str = ""  # why nothing can be said; empty: something can
    sessions: float = 0.0  # of users at a time
    medians_ms: dict[str, float] = {}


class SpeedMeasure(Part, frozen=True, kw_only=True):
    """One latency of users' requests, run by run, against the control's runs.

    `ratio` and `above` are the effect: the ratio of the medians, and how often a run with the fault is slower than one
    of the control (0.5: no difference). `p` is that of the test, one-sided.
    """

    name: str
    fault_ms: tuple[float, ...]  # the median of each run
    control_ms: tuple[float, ...]
    ratio: float
    above: float
    p: float
    slower: Answer


class Speed(Part, frozen=True, kw_only=True):
    """Whether the deployment is slower after the fault than the control is at the same load."""

    dose: str
    answer: Answer
    told: str
    measures: tuple[SpeedMeasure, ...] = ()


class Trial(Part, frozen=True, kw_only=True):
    """One run of a campaign that was made. Only those that landed and have an outcome count."""

    number: int
    folder: str
    dose: str
    trial: int
    arm: Arm
    outcome: Outcome | None  # None: there is no record that could be judged
    status: RunStatus
    cleanup: Cleanup
    exit_code: ExitCode
    headline: str
    why_not: str  # why it does not count; empty: it counts
    broke: bool  # it no longer served: wedged or crashed
    waves: int  # that landed
    aborts: int | None  # that the servers told of after them; None: nothing could tell
    duration_s: float

    @property
    def counts(self) -> bool:
        """Whether it is one of the trials that the rates are about."""
        return not self.why_not


class Dose(Part, frozen=True, kw_only=True):
    """What the trials of one dose say together; there is one, without a name, where nothing is swept."""

    dose: str
    planned: int
    made: int
    counted: int
    outcomes: dict[str, int]  # of the counted, worst first
    broke: Rate | None  # None: no trial counts
    violations: Rate | None
    waves: Survival | None  # None: no trial was hit
    aborts: Survival | None  # None: as above, or in some trial nothing could tell
    told: str  # the rate of `broke` in words
    control: Rate | None = None  # how often the same load broke it without the fault; None: no such run counts
    p: float | None = None  # of Fisher's exact test, one-sided: that the fault breaks it no more often than that
    survived: str  # `waves` and `aborts` in words; empty when no trial was hit


class Campaign(Part, frozen=True, kw_only=True):
    """The whole answer over several runs."""

    format: int
    judge_version: str
    campaign_id: str
    scenario: str
    about: str
    target: str
    outcome: Outcome  # the worst of all runs, and `degraded` where a comparison says so
    exit_code: ExitCode
    headline: str
    reasons: tuple[str, ...]
    planned: int
    stopped: str  # why not all of the planned runs were made; empty: they were
    trials: tuple[Trial, ...]
    doses: tuple[Dose, ...]
    speed: tuple[Speed, ...]  # for each dose, where there is a control arm
    smallest: str  # the smallest dose that broke it; empty: none did, or nothing is swept
    allow: tuple[str, ...]
