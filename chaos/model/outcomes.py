"""The outcome lattice, the run and cleanup axes, three-valued answers and the exit codes."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Answer(StrEnum):
    """The answer to one question. `UNKNOWN` is an answer: it is never read as yes or no."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not-applicable"


class Outcome(StrEnum):
    """What became of the target, worst first. `CRASHED` and `WEDGED` are equal in rank."""

    CORRUPTED = "corrupted"
    CRASHED = "crashed"
    WEDGED = "wedged"
    RESTARTED = "restarted"
    LEAKING = "leaking"
    DAMAGED = "damaged"
    DEGRADED = "degraded"
    SLOW_RECOVERY = "slow-recovery"
    OVERLOADED = "overloaded"
    INCONCLUSIVE = "inconclusive"
    HEALTHY = "healthy"

    @property
    def rank(self) -> int:
        """0 is worst."""
        return _RANK[self]

    @property
    def violation(self) -> bool:
        """True for every outcome that says something about the target that is not health."""
        return self not in (Outcome.HEALTHY, Outcome.INCONCLUSIVE)


_RANK: dict[Outcome, int] = {
    outcome: rank for rank, outcome in enumerate(o for o in Outcome if o is not Outcome.WEDGED)
}
_RANK[Outcome.WEDGED] = _RANK[Outcome.CRASHED]


class RunStatus(StrEnum):
    """How our own run went, whatever became of the target."""

    COMPLETED = "completed"
    ABORTED = "aborted"  # a person or a signal stopped it
    REFUSED = "refused"  # the target does not allow what the scenario asks
    UNFIT = "unfit"  # the target did not serve before anything was broken
    HARNESS_ERROR = "harness-error"


class Cleanup(StrEnum):
    """Whether anything of ours was left behind on the target."""

    CLEAN = "clean"
    DIRTY = "dirty"
    UNKNOWN = "unknown"


class ExitCode(IntEnum):
    """Process exit codes; several runs combine by `SEVERITY`."""

    AS_EXPECTED = 0
    VIOLATION = 1
    USAGE = 2
    INCONCLUSIVE = 3
    HARNESS_ERROR = 4
    REFUSED = 5
    UNFIT = 6
    CLEANUP_INCOMPLETE = 8
    VIOLATION_AND_CLEANUP = 9
    INTERRUPTED = 130


SEVERITY: tuple[ExitCode, ...] = (
    ExitCode.VIOLATION_AND_CLEANUP,
    ExitCode.VIOLATION,
    ExitCode.CLEANUP_INCOMPLETE,
    ExitCode.HARNESS_ERROR,
    ExitCode.INTERRUPTED,
    ExitCode.USAGE,
    ExitCode.INCONCLUSIVE,
    ExitCode.UNFIT,
    ExitCode.REFUSED,
    ExitCode.AS_EXPECTED,
)
"""Worst first: the exit code of several runs is the first of these that any of them had."""


def worst_exit(codes: list[ExitCode]) -> ExitCode:
    """The exit code of several runs together; `AS_EXPECTED` for none."""
    return min(codes, key=SEVERITY.index, default=ExitCode.AS_EXPECTED)


def exit_code(outcome: Outcome, status: RunStatus, cleanup: Cleanup, *, allowed: frozenset[Outcome]) -> ExitCode:
    """Combine the three axes into one exit code; `allowed` never accepts `inconclusive`."""
    violation = outcome.violation and outcome not in allowed
    dirty = cleanup is not Cleanup.CLEAN
    if violation and dirty:
        return ExitCode.VIOLATION_AND_CLEANUP
    if violation:
        return ExitCode.VIOLATION
    if dirty:
        return ExitCode.CLEANUP_INCOMPLETE
    by_status = {
        RunStatus.HARNESS_ERROR: ExitCode.HARNESS_ERROR,
        RunStatus.ABORTED: ExitCode.INTERRUPTED,
        RunStatus.REFUSED: ExitCode.REFUSED,
        RunStatus.UNFIT: ExitCode.UNFIT,
    }
    if status in by_status:
        return by_status[status]
    if outcome is Outcome.INCONCLUSIVE:
        return ExitCode.INCONCLUSIVE
    # A scenario that expects a wedge (`allow: [wedged]`) and meets health was not met either.
    return ExitCode.AS_EXPECTED if outcome in allowed else ExitCode.VIOLATION
