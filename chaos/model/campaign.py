"""What several runs of one scenario say together."""

from __future__ import annotations

from typing import Literal

from chaos.model.outcomes import Answer
from chaos.model.verdict import Part

Sides = Literal["both", "upper", "lower"]


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
