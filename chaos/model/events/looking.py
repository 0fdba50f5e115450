"""Our own looking: clocks, what was saved, what nobody saw, how fit we were."""

from __future__ import annotations

from chaos.model.events.envelope import Event, Span


class ClockMeasured(Event, frozen=True, kw_only=True, omit_defaults=True, tag="clock.measured"):
    """The offset of another clock against the harness's monotonic clock (ns; other minus ours)."""

    of: str
    offset_ns: int
    uncertainty_ns: int


class ForensicsTaken(Event, frozen=True, kw_only=True, omit_defaults=True, tag="forensics.taken"):
    """What was saved of the deployment's inside at one moment, in a folder of the run's own.

    `t_ns` is when saving began; `stacks` counts the threads saved per node; `missing` says what could not be saved and
    why. `threads-only` looks save no more than the stacks.
    """

    folder: str  # relative to the run folder: forensics/1-fatal-line
    # baseline | fatal-line | canary-overdue | process-gone | before-restart | not-recovered | not-serving (where
    # nothing was broken) | end
    reason: str
    detail: str = ""
    threads_only: bool = False
    files: tuple[str, ...] = ()
    size: int = 0  # bytes
    took_s: Span = 0.0
    stacks: dict[str, int] = {}
    missing: tuple[str, ...] = ()


class EvidenceLost(Event, frozen=True, kw_only=True, omit_defaults=True, tag="evidence.lost"):
    """A probe could not look between two moments: what happened then is unknown, not fine."""

    probe: str
    node: str = ""
    from_ns: int
    to_ns: int
    cause: str = ""


class HarnessHealth(Event, frozen=True, kw_only=True, omit_defaults=True, tag="harness.health"):
    """Our own fitness over the last interval; `who` is `harness` or an agent."""

    who: str
    lag_max_ms: Span
    lag_p99_ms: Span = 0.0
    open_files: int = 0
    reference_ok: bool | None = None
    reference_ms: Span | None = None
    intended: int = 0  # sends due so far
    delivered: int = 0  # sends made so far
    tokens: int = 0  # received so far
    completed: int = 0
    failed: int = 0
    phases: dict[str, int] = {}
    cpu_wait: dict[str, float] = {}  # by node: the share of the time that it waited for a CPU
