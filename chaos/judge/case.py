"""One run laid out for the questions: every path in every cycle's window, judged once by the rule of recovery."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chaos.judge.canaries import Doubt
from chaos.judge.cuts import standing, unreachable
from chaos.judge.metrics import backlog_shrinks, work_goes_on
from chaos.judge.paths import PathRun, path_run
from chaos.judge.processes import Dead, dead_processes, down_by_us
from chaos.judge.rule import State
from chaos.judge.unheard import Unheard, unheard
from chaos.judge.windows import windows
from chaos.judge.workers import Part, WorkerRun, worker_runs
from chaos.model.outcomes import Answer

if TYPE_CHECKING:
    from chaos.judge.facts import Facts
    from chaos.judge.metrics import Told
    from chaos.judge.windows import Window


@dataclass(frozen=True, slots=True)
class Explained:
    """What may explain that a path is late: users' work that progresses while the queues shrink."""

    work: Told
    backlog: Told

    @property
    def by_overload(self) -> bool:
        """Both hold, as read from the servers or received by live sessions."""
        return self.work.answer is Answer.YES and self.backlog.answer is Answer.YES


@dataclass(frozen=True, slots=True)
class Case:
    """A run as the questions see it."""

    facts: Facts
    windows: tuple[Window, ...]
    runs: tuple[PathRun, ...]  # cycle by cycle, paths in the deployment's order
    given_up: tuple[PathRun, ...]  # paths that we took down ourselves, where others remain to be asked
    dead: tuple[Dead, ...]  # processes that are dead at the end
    down: tuple[Dead, ...]  # of those and of the stopped ones, what is our own doing
    workers: tuple[WorkerRun, ...]  # cycle by cycle, those that no canary asks by itself

    @classmethod
    def of(cls, facts: Facts) -> Case:
        """Lay out what was gathered."""
        found = windows(facts)
        doubt = Doubt(facts)
        down = down_by_us(facts)
        runs, given_up = expected(
            facts, tuple(path_run(facts, path, window, doubt) for window in found for path in facts.paths()), down
        )
        workers = tuple(
            run for window in found for run in worker_runs(facts, window, out_of_reach(facts, window, down))
        )
        return cls(facts, found, runs, given_up, dead_processes(facts), down, workers)

    @property
    def last_window(self) -> Window | None:
        """The last cycle's window."""
        return self.windows[-1] if self.windows else None

    @property
    def last_runs(self) -> tuple[PathRun, ...]:
        """How the paths fared after the last fault."""
        return tuple(run for run in self.runs if run.window is self.last_window)

    def explained(self, run: PathRun) -> Explained:
        """Whether users' work explains that this path was late past its budget.

        Work that did not go on within the budget either waited for the same thing as our canary: a server that was
        still starting is not busy.
        """
        start_ns = run.window.budget_ns(self.facts.plan)
        end_ns = run.window.horizon_ns if run.recovered_ns is None else run.recovered_ns
        work = _stood(self.facts, run) or work_goes_on(self.facts, run.path, start_ns, end_ns)
        return Explained(work, backlog_shrinks(self.facts, run.path, start_ns, end_ns))

    def overloaded(self, run: PathRun) -> bool:
        """Late only because of users' work: every fresh request did finish, and work and backlog explain the wait."""
        if run.state not in (State.LATE, State.SLOW) or any(seen.fate.dead for seen in run.culprits):
            return False
        return self.explained(run).by_overload

    def dead_on(self, run: PathRun) -> tuple[Dead, ...]:
        """The dead processes on a path's nodes."""
        nodes = set(self.facts.nodes_of(run.path))
        return tuple(dead for dead in self.dead if dead.node in nodes)

    def crashed(self, run: PathRun) -> bool:
        """A path that serves nothing (or loses requests) and has a process on it that died by itself."""
        return run.state.wedged and (any(not dead.ours for dead in self.dead_on(run)) or bool(self.unheard_on(run)))

    def unheard_on(self, run: PathRun) -> tuple[Unheard, ...]:
        """Nodes of a path that serves nothing any more on which nothing listens; asked where no process was seen."""
        return unheard(self.facts, run) if run.state is State.DARK else ()

    def wedged(self, run: PathRun) -> bool:
        """A path whose fresh requests no longer complete, and neither a crash nor our own deed leaves it no node.

        What we killed explains only what cannot go without it: a survivor that no longer serves is wedged.
        """
        return run.state.wedged and not self.crashed(run) and not excuse(self.facts, run, self.down)

    @property
    def lost_workers(self) -> tuple[WorkerRun, ...]:
        """Workers that live and take no requests any more, in the latest cycle that has any."""
        lost = [run for run in self.workers if run.part is Part.LOST and not self.dead_at(run.node)]
        return tuple(run for run in lost if run.window is lost[-1].window)

    def dead_at(self, node: str) -> tuple[Dead, ...]:
        """The dead processes of a node."""
        return tuple(dead for dead in self.dead if dead.node == node)

    def down_nodes(self) -> frozenset[str]:
        """Nodes that cannot serve because of us."""
        return frozenset(dead.node for dead in self.down)


def _stood(facts: Facts, run: PathRun) -> Told | None:
    """That users' work stood still within the budget, where that is known."""
    told = work_goes_on(facts, run.path, run.window.anchor_ns, run.window.budget_ns(facts.plan))
    return replace(told, text=f"within the budget {told.text}") if told.answer is Answer.NO else None


def excuse(facts: Facts, run: PathRun, down: tuple[Dead, ...]) -> tuple[Dead, ...]:
    """Why a path cannot be expected to serve: every node of some role on it is down, and that is our own doing.

    Or no way through it is left, since we cut nodes off from each other.
    """
    ours = {dead.node: dead for dead in down if dead.at_ns < run.window.until_ns}
    nodes = facts.nodes_of(run.path)
    by_role: dict[str, list[str]] = {}
    for node in nodes:
        by_role.setdefault(facts.role(node) or node, []).append(node)
    lost = [nodes for nodes in by_role.values() if all(node in ours for node in nodes)]
    on_it = set(nodes)
    cuts = [cut for cut in standing(facts, run.window) if cut.off & on_it and cut.from_ & on_it]
    if not lost and cuts and unreachable(facts, nodes, ours, cuts) == on_it - ours.keys():
        return tuple(Dead(min(cut.off), cut.what, cut.at_ns, (cut.seq,), ours=True) for cut in cuts)
    return tuple(ours[node] for nodes in lost for node in nodes)


def out_of_reach(facts: Facts, window: Window, down: tuple[Dead, ...]) -> frozenset[str]:
    """Nodes that no request through the router can reach because of us."""
    ours = {dead.node for dead in down}
    cuts = standing(facts, window)
    routed = {node for path in facts.paths() if path.kind == "routed" for node in facts.nodes_of(path)}
    return frozenset(ours) | unreachable(facts, sorted(routed), ours, cuts)


def expected(
    facts: Facts, runs: tuple[PathRun, ...], down: tuple[Dead, ...]
) -> tuple[tuple[PathRun, ...], tuple[PathRun, ...]]:
    """The runs of paths that are expected to serve, and of those that are not; all are, where none would be left."""
    lost = [run for run in runs if run.state is not State.SERVES and excuse(facts, run, down)]
    left = [run for run in runs if run not in lost]
    told = {run.window.cycle for run in left}
    given_up = [run for run in lost if run.window.cycle in told]
    return tuple(run for run in runs if run not in given_up), tuple(given_up)
