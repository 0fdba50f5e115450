"""The verdict in words: one sentence for a tired person, and the reasons, most important first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge.causes import told_by
from chaos.judge.heartbeats import frozen_heartbeats
from chaos.judge.interrupted import leaves_unknown, stopped
from chaos.judge.landing import waves
from chaos.judge.rule import State
from chaos.judge.threads import threads
from chaos.judge.unheard import processes_unseen
from chaos.judge.units import count, listed, span
from chaos.judge.wedge import (
    GREEN,
    culprit,
    liveness_during,
    liveness_of_crash,
    loud,
    wedge,
    wedged_runs,
    wedged_window,
)
from chaos.judge.workers import Part
from chaos.model.outcomes import Answer, Outcome, RunStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.judge.case import Case
    from chaos.judge.paths import PathRun
    from chaos.model.events import Liveness
    from chaos.model.verdict import Cause, Finding, WaveVerdict

MOST_REASONS = 12
MOST_PATHS = 3  # named in a sentence


def headline(case: Case, outcome: Outcome, findings: Sequence[Finding]) -> str:
    """One sentence that begins with the outcome."""
    told = {
        Outcome.WEDGED: _wedged,
        Outcome.CRASHED: _crashed,
        Outcome.SLOW_RECOVERY: _slow,
        Outcome.OVERLOADED: _overloaded,
        Outcome.DAMAGED: _damaged,
        Outcome.HEALTHY: _healthy,
        Outcome.INCONCLUSIVE: _inconclusive,
    }.get(outcome, _by_evidence)(case, outcome, findings)
    why = stopped(case)
    if why:
        told = f"{told} (the run was {why})" if outcome.violation else f"{why}: {leaves_unknown(case)}"
    return f"{outcome.value.upper()}: {told}"


def reasons(case: Case, outcome: Outcome, findings: Sequence[Finding], found: Sequence[Cause]) -> tuple[str, ...]:
    """Why this outcome, why it may matter how the run went, and what else was seen."""
    told: list[str] = []
    if outcome is Outcome.WEDGED:
        told += _wedge_reasons(case)
    told += [e.text for f in findings if f.outcome is outcome for e in f.evidence]
    likely = [cause for cause in found if not cause.symptom]
    if likely and outcome not in (Outcome.HEALTHY, Outcome.INCONCLUSIVE):
        told.append(_cause(likely[0]))
    if outcome is Outcome.INCONCLUSIVE:
        told += [e.text for f in findings if f.required and f.answer is Answer.UNKNOWN for e in f.evidence]
    told += [_wave(wave) for wave in waves(case) if wave.phases]
    for finding in findings:
        news = [e.text for e in finding.evidence if e.text not in told]
        if finding.outcome not in (None, outcome, Outcome.INCONCLUSIVE) and news:
            told.append(f"also {finding.outcome}: {news[0]}")
    if outcome.violation:
        doubts = [f for f in findings if f.required and _in_doubt(f) and f.id not in _FOLLOWS_FROM_FAILURE]
        told += [f"not established: {f.question[:-1].lower()}: {e.text}" for f in doubts for e in f.evidence[:1]]
    return tuple(dict.fromkeys(told))[:MOST_REASONS]


_FOLLOWS_FROM_FAILURE = frozenset(
    {"wedged", "workers-serve", "recovered-in-time", "paths-serve", "last-canaries", "leaking", "still-answer"}
)
"""Questions that a failing target answers badly or not at all: no doubt about the run."""


def _in_doubt(finding: Finding) -> bool:
    return finding.answer is Answer.UNKNOWN or finding.outcome is Outcome.INCONCLUSIVE


def _wedged(case: Case, _outcome: Outcome, _findings: Sequence[Finding]) -> str:
    runs = wedged_runs(case)
    if not runs:
        return _lost_workers(case)
    dark = [run for run in runs if run.state is State.DARK]
    look = wedge(case)
    if not dark:
        text = f"in part: on {_paths(runs)} {runs[0].window.after}, {runs[0].why}"
    else:
        since_ns = min(run.since_ns for run in dark)
        lasted = span((dark[0].window.horizon_ns - since_ns) / 1e9)
        total = look is not None and look.total
        where = f"any of {len(dark)} paths" if total and len(dark) > MOST_PATHS else _paths(dark)
        text = f"{dark[0].window.after} no fresh request has completed on {where} for {lasted}"
        if not total:
            serves = any(run.state is State.SERVES for run in case.runs if run.window is dark[0].window)
            text = f"in part: {text}" + ", other paths still serve" * serves
    if all(processes_unseen(case.facts, run) for run in runs):
        return f"{text}{_health(case, liveness_during(case))}; a dead process is not ruled out, for none was looked at"
    return text + _health(case, liveness_during(case))


def _crashed(case: Case, outcome: Outcome, findings: Sequence[Finding]) -> str:
    """What died, and whether anybody could have seen it."""
    asked = liveness_of_crash(case)
    health = _health(case, asked)
    text = _by_evidence(case, outcome, findings)
    return text + (health if loud(asked) or not health else f",{health}")


def _lost_workers(case: Case) -> str:
    lost = case.lost_workers
    names = listed([run.node for run in lost])
    without = "them" if len(lost) > 1 else "it"
    text = f"in part: {lost[0].window.after} {names} {lost[0].why}, and every path serves without {without}"
    return text + _health(case, liveness_during(case))


def _health(case: Case, asked: list[Liveness]) -> str:
    if not asked:
        return ""
    red = loud(asked)
    if not red:
        endpoints = sorted({seen.endpoint for seen in asked})[:2]
        green = f" while {listed(endpoints)} {'stays' if len(endpoints) == 1 else 'stay'} {GREEN}"
        return green + _slips([seen for seen in asked if seen.status != GREEN])
    order = {node.id: -at for at, node in enumerate(case.facts.nodes)}
    last = max(red, key=lambda seen: (seen.t_ns, order.get(seen.node, 0), seen.endpoint))
    said = "does not answer" if last.status is None else f"answers {last.status}"
    return f"; {last.endpoint} of {last.node} {said}"


def _slips(odd: list[Liveness]) -> str:
    if not odd:
        return ""
    first = odd[0]
    said = "did not answer" if first.status is None else f"answered {first.status}"
    more = "" if len(odd) == 1 else f", and {count(len(odd) - 1, 'more reading')} were not {GREEN}"
    return f" ({first.endpoint} of {first.node} {said} once{more})"


def _wedge_reasons(case: Case) -> list[str]:
    look, window = wedge(case), wedged_window(case)
    if look is None or window is None:
        return []
    watched = span((window.horizon_ns - window.anchor_ns) / 1e9)
    limit = span(case.facts.plan.watch_s)
    told = [
        f"confirmed: watched for {watched}, longer than the engine's own timeouts allow stuck requests ({limit})"
        if look.confirmed
        else f"not confirmed: watched for {watched}; the engine's own timeouts may free it within {limit}"
    ]
    node = culprit(case)
    if node:
        by_itself = "every pair serves when it is asked by itself"
        shared = f"every pair with {node} fails and no other does"
        told.append(f"it is {node}: {by_itself if case.facts.role(node) == 'router' else shared}")
    elif look.side:
        told.append(f"the wedged side is {look.side}{_by_its_log(case)}")
    told += [gone.text for gone in threads(case.facts).gone]
    told += [frozen.text for frozen in frozen_heartbeats(case.facts, window)]
    if not liveness_during(case):
        told.append("no health endpoint was asked, so nobody knows whether it was silent")
    return told


def _by_its_log(case: Case) -> str:
    """Which of several workers a fatal line in its own log blames, where canaries did not tell them apart."""
    nodes = frozenset(node for run in wedged_runs(case) for node in case.facts.nodes_of(run.path))
    node = told_by(case.facts, nodes)
    alike = [one for one in case.facts.nodes if one.role == case.facts.role(node)]
    return f", and of {len(alike)} such workers the log of {node} tells of it" if node and len(alike) > 1 else ""


def _slow(case: Case, _outcome: Outcome, _findings: Sequence[Finding]) -> str:
    slow = [run for run in case.runs if run.state in (State.SLOW, State.LATE) and not case.overloaded(run)]
    told = [f"{run.path.id} {run.window.after}: {run.why}" for run in slow]
    told += [f"{run.node} {run.why}" for run in case.workers if run.part is Part.BACK]
    return listed(told[:2]) if told else "see the reasons"


def _overloaded(case: Case, _outcome: Outcome, _findings: Sequence[Finding]) -> str:
    busy = [run for run in case.runs if case.overloaded(run)]
    worst = max(seen.age_s for run in busy for seen in run.culprits)
    limit = span(case.facts.plan.canary_deadline_s)
    are = "is" if len({run.path.id for run in busy}) == 1 else "are"
    return (
        f"{_paths(busy)} {are} busy, not stuck: fresh requests wait up to {span(worst)} (limit {limit}) "
        "behind users' work that progresses"
    )


def _healthy(case: Case, _outcome: Outcome, _findings: Sequence[Finding]) -> str:
    if not any(window.disrupted for window in case.windows):
        return "nothing was broken, and every path served from beginning to end"
    worst = [
        f"{span(max(run.recovered_s or 0.0 for run in case.runs if run.window is window))} {window.after}"
        for window in case.windows
        if window.disrupted
    ]
    return f"every path served again within {listed(worst)} and to the end"


def _unfit(case: Case) -> str:
    """Why a run never began to break anything; empty for all others."""
    ended = case.facts.ended
    if ended is None or ended.status != RunStatus.UNFIT:
        return ""
    first, *others = ended.reason.split("; ")
    more = f" (and {count(len(others), 'further objection')})" if others else ""
    return f"the target was unfit before anything was broken: {first}{more}" if first else ""


def _inconclusive(case: Case, _outcome: Outcome, findings: Sequence[Finding]) -> str:
    if unfit := _unfit(case):
        return unfit
    doubts = [f for f in findings if (f.required or f.outcome is Outcome.INCONCLUSIVE) and _in_doubt(f)]
    doubts.sort(key=lambda f: f.id in _FOLLOWS_FROM_FAILURE)
    if not doubts:
        return "nothing was asked"
    failing = [run for run in case.runs if run.state is State.UNDECIDED and run.last_bad is not None]
    if failing and failing[0].doubted:
        return f"{failing[0].path.id} {failing[0].window.after}: {failing[0].why}"
    first = doubts[0]
    text = first.evidence[0].text if first.evidence else first.question
    more = f" (and {count(len(doubts) - 1, 'further doubt')})" if len(doubts) > 1 else ""
    return f"{text}{more}"


def _by_evidence(_case: Case, outcome: Outcome, findings: Sequence[Finding]) -> str:
    told = [e.text for f in findings if f.outcome is outcome for e in f.evidence]
    return told[0] if told else "see the findings"


def _damaged(case: Case, outcome: Outcome, findings: Sequence[Finding]) -> str:
    text = _by_evidence(case, outcome, findings)
    if case.runs and all(run.state is State.SERVES for run in case.runs):
        return f"{text}, though every path serves"
    unknown = [run for run in case.runs if run.state is State.UNDECIDED]
    where = f" on {_paths(unknown)}" if unknown else ""
    return f"{text}, and whether fresh requests pass{where} is not known"


def _paths(runs: Sequence[PathRun]) -> str:
    names = list(dict.fromkeys(run.path.id for run in runs))
    if len(names) > MOST_PATHS + 1:
        names = [*names[:MOST_PATHS], f"{len(names) - MOST_PATHS} more paths"]
    return listed(names)


def _cause(cause: Cause) -> str:
    where = f" on the {cause.side} side" if cause.side else ""
    upstream = (
        f" ({cause.upstream}{f', fixed in {cause.fixed_in}' if cause.fixed_in else ''})" if cause.upstream else ""
    )
    return f"likely cause{where}: {cause.title}{upstream}"


def _wave(wave: WaveVerdict) -> str:
    census = ", ".join(f"{number} {phase}" for phase, number in wave.phases.items() if number)
    told = "unknown" if wave.server_aborts is None else str(wave.server_aborts)
    met = f"while sessions were {census}" if census else "while no session was open"
    if wave.kind == "poison":
        ends = (
            listed([f"{number} {how}" for how, number in wave.ends.items() if number]) or "how they ended is not known"
        )
        return f"{wave.wave} of cycle {wave.cycle} was sent {met}: {ends}"
    hit = f"hit {listed(wave.nodes)} {met}" if wave.nodes else f"hit {census or 'no session'}"
    return f"{wave.wave} of cycle {wave.cycle} {hit}; server aborts seen: {told}"
