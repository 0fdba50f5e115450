"""Has every path recovered? The verdict's own rule, asked by a run that still watches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.judge.canaries import Doubt
from chaos.judge.case import expected, out_of_reach
from chaos.judge.paths import PathRun, path_run
from chaos.judge.processes import down_by_us
from chaos.judge.windows import baseline_window, windows
from chaos.judge.workers import Part, worker_runs

if TYPE_CHECKING:
    from chaos.judge.facts import Facts


@dataclass(frozen=True, slots=True)
class PathRecovery:
    """One path as seen now."""

    path: str
    recovered: bool
    in_a_row: int  # settled passes in a row up to now
    recovered_s: float | None  # after the last fault: the pass from which on all passed
    failing_since_ns: int | None  # when the oldest canary was sent that has failed since the last pass
    why: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """All examined paths as seen now."""

    recovered: bool  # every path passes again, often and long enough in a row; False when there is no path to ask
    paths: tuple[PathRecovery, ...]
    disrupted: bool  # something was broken; else there is nothing to recover from, and the same is asked of all paths
    missing: tuple[str, ...] = ()  # once all paths pass: workers that do not take fresh requests, as far as is known

    @property
    def failing(self) -> tuple[str, ...]:
        """The paths whose last canary that told anything did not pass."""
        return tuple(path.path for path in self.paths if path.failing_since_ns is not None)

    @property
    def lacking(self) -> tuple[str, ...]:
        """What has not recovered, for people: failing paths, then missing workers."""
        return (*self.failing, *self.missing)


def recovery(facts: Facts, now_ns: int) -> Recovery:
    """Whether every examined path, and every worker, that we left able to serve has recovered, as of `now_ns`.

    Before any load this asks the same of the baseline: enough passes in a row.
    """
    found = windows(facts, now_ns)
    window = found[-1] if found else baseline_window(facts, now_ns)
    doubt = Doubt(facts)
    runs = tuple(path_run(facts, path, window, doubt) for path in facts.paths())
    down = down_by_us(facts)
    paths = tuple(_of(run) for run in expected(facts, runs, down)[0])
    if not paths or not all(path.recovered for path in paths):
        return Recovery(recovered=False, paths=paths, disrupted=window.disrupted)
    workers = worker_runs(facts, window, out_of_reach(facts, window, down)) if found else ()
    missing = tuple(run.node for run in workers if run.part in (Part.LOST, Part.UNDECIDED))
    return Recovery(recovered=not missing, paths=paths, disrupted=window.disrupted, missing=missing)


def _of(run: PathRun) -> PathRecovery:
    recovered = run.recovered_ns is not None and run.steady >= run.needed
    why = run.why if run.recovered_ns is None or recovered else f"{run.steady} of {run.needed} passes in a row so far"
    return PathRecovery(
        path=run.path.id,
        recovered=recovered,
        in_a_row=run.steady,
        recovered_s=run.recovered_s,
        failing_since_ns=_failing_since(run),
        why=why,
    )


def _failing_since(run: PathRun) -> int | None:
    since = None
    for one in reversed(run.seen):
        if one.fate.bad:
            since = one.begun_ns
        elif one.fate.answered:
            break
    return since
