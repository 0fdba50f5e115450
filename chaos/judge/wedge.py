"""How a wedge looks: which paths, silent or loud, which side, and whether it outlived the engine's timeouts."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from chaos.judge.causes import side_of
from chaos.judge.heartbeats import frozen_heartbeats
from chaos.judge.rule import State
from chaos.model.verdict import Wedge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.judge.case import Case
    from chaos.judge.paths import PathRun
    from chaos.judge.windows import Window
    from chaos.model.events import Liveness

GREEN = 200
LOUD_SHARE = 0.1
"""An endpoint warns when it is not green at two looks in a row, or at this share of them; one slip warns nobody."""


def wedged_runs(case: Case) -> tuple[PathRun, ...]:
    """The wedged paths of the latest cycle that has any."""
    wedged = [run for run in case.runs if case.wedged(run)]
    return tuple(run for run in wedged if run.window is wedged[-1].window)


def wedge(case: Case) -> Wedge | None:
    """What the wedge looks like; None when there is none."""
    runs = wedged_runs(case)
    if not runs:
        return _of_workers(case)
    window = runs[0].window
    all_runs = [run for run in case.runs if run.window is window]
    asked = liveness_during(case)
    nodes = frozenset(node for run in runs for node in case.facts.nodes_of(run.path))
    return Wedge(
        total=len(runs) == len(all_runs) and all(run.state is State.DARK for run in runs),
        silent=bool(asked) and not loud(asked),
        confirmed=any(run.confirmed for run in runs),
        side=side_of(case.facts, nodes)
        or case.facts.role(culprit(case))
        or _stuck_side(case, window)
        or _red_side(case, asked, nodes),
        paths=tuple(run.path.id for run in runs),
    )


def _of_workers(case: Case) -> Wedge | None:
    """Every path serves, and yet some workers are lost."""
    lost = case.lost_workers
    if not lost:
        return None
    asked = liveness_during(case)
    # A worker that answers whoever asks it by itself is passed by, not stuck.
    sides = {"router" if _answers(case, run.node) else run.role for run in lost}
    return Wedge(
        total=False,
        silent=bool(asked) and not loud(asked),
        confirmed=any(run.confirmed for run in lost),
        side=sides.pop() if len(sides) == 1 else "",
        paths=(),
        nodes=tuple(run.node for run in lost),
    )


def _answers(case: Case, node: str) -> bool:
    """Whether a worker is asked by itself, and every such path serves."""
    direct = [run for run in case.last_runs if run.path.kind != "routed" and node in case.facts.nodes_of(run.path)]
    return bool(direct) and all(run.state is State.SERVES for run in direct)


def wedged_window(case: Case) -> Window | None:
    """The window of the wedge; None when there is none."""
    windows = [*(run.window for run in wedged_runs(case)), *(run.window for run in case.lost_workers)]
    return windows[0] if windows else None


def crashed_window(case: Case) -> Window | None:
    """The latest window in which a path had crashed; None when there is none."""
    windows = [run.window for run in case.runs if case.crashed(run)]
    return windows[-1] if windows else None


def culprit(case: Case) -> str:
    """The one node that all failing pairs share and no serving pair has; the router, where every pair serves."""
    runs = wedged_runs(case)
    pairs = [run for run in case.runs if runs and run.window is runs[0].window and run.path.kind != "routed"]
    failing = [run for run in pairs if run in runs]
    serving = {node for run in pairs if run.state is State.SERVES for node in run.path.nodes}
    if not serving:
        return ""
    if not failing:
        whole = len(pairs) == sum(run.state is State.SERVES for run in pairs)
        return next((node.id for node in case.facts.nodes if whole and node.role == "router"), "")
    shared = set.intersection(*(set(run.path.nodes) for run in failing)) - serving
    return shared.pop() if len(shared) == 1 else ""


def liveness_during(case: Case) -> list[Liveness]:
    """What health endpoints said of a wedge past the budget; since the wave, where they were not asked later."""
    return _liveness_in(case, wedged_window(case))


def liveness_of_crash(case: Case) -> list[Liveness]:
    """The same of a crash."""
    return _liveness_in(case, crashed_window(case))


def _liveness_in(case: Case, window: Window | None) -> list[Liveness]:
    if window is None:
        return []
    ours = case.down_nodes()  # a process that we ended answers nobody, and that is no news of the target
    for start_ns in (window.budget_ns(case.facts.plan), window.anchor_ns):
        asked = [
            seen for seen in case.facts.liveness if start_ns <= seen.t_ns <= window.horizon_ns and seen.node not in ours
        ]
        if asked:
            return asked
    return []


def loud(asked: Sequence[Liveness]) -> list[Liveness]:
    """The readings that would have warned somebody: of endpoints that were not green more than once in a while."""
    by_endpoint: dict[tuple[str, str], list[Liveness]] = {}
    for seen in asked:
        by_endpoint.setdefault((seen.node, seen.endpoint), []).append(seen)
    warned: list[Liveness] = []
    for readings in by_endpoint.values():
        seen_there = [seen for at, seen in enumerate(readings) if not _passing(readings, at)]
        red = [seen for seen in seen_there if seen.status != GREEN]
        twice = any(GREEN not in (a.status, b.status) for a, b in pairwise(seen_there))
        if twice or (red and len(red) >= LOUD_SHARE * len(seen_there)):
            warned += red
    return warned


def _passing(readings: Sequence[Liveness], at: int) -> bool:
    """A check that got no answer in our time, between two green ones: no state of the target."""
    if readings[at].status is not None or not 0 < at < len(readings) - 1:
        return False
    return readings[at - 1].status == readings[at + 1].status == GREEN


def _stuck_side(case: Case, window: Window) -> str:
    """The one role whose heartbeat stands still, where exactly one does."""
    stuck = {case.facts.role(frozen.node) for frozen in frozen_heartbeats(case.facts, window)} - {""}
    return stuck.pop() if len(stuck) == 1 else ""


def _red_side(case: Case, asked: list[Liveness], nodes: frozenset[str]) -> str:
    """The one role among the servers whose health is red, where exactly one is."""
    red = {case.facts.role(seen.node) for seen in loud(asked) if seen.node in nodes} - {"router", ""}
    return red.pop() if len(red) == 1 else ""
