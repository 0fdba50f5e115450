"""Do fresh requests still complete? Most outcomes are named here; every answer rests on the rule of recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge.canaries import Fate, look
from chaos.judge.case import excuse
from chaos.judge.paths import settled_ns
from chaos.judge.processes import folded
from chaos.judge.questions.answers import Answered, Question, fact, no, not_applicable, unknown, yes
from chaos.judge.rule import State
from chaos.judge.units import count, listed, ns, span
from chaos.judge.workers import Part
from chaos.model.outcomes import Outcome

if TYPE_CHECKING:
    from chaos.judge.case import Case
    from chaos.judge.paths import PathRun
    from chaos.judge.workers import WorkerRun
    from chaos.model.verdict import Evidence


def _paths_serve(case: Case) -> Answered:
    """From within the budget to the end, often enough in a row, and not only before the last aborts were through."""
    if not case.runs:
        return unknown(fact("nothing was watched: no path was examined, or no load began"))
    bad = [run for run in case.runs if run.state not in (State.SERVES, State.UNDECIDED)]
    if bad:
        return no(*map(_fared, bad), outcome=Outcome.INCONCLUSIVE)
    undecided = [run for run in case.runs if run.state is State.UNDECIDED]
    if undecided:
        return unknown(*map(_fared, undecided))
    short = [run for run in case.runs if run.steady < run.needed]
    if short:
        return unknown(*(fact(f"{_where(run)}: {_too_few(case, run)}") for run in short))
    return yes(*map(_fared, case.runs))


def _too_few(case: Case, run: PathRun) -> str:
    """How many passes are missing, and from when on they would have counted."""
    text = f"only {run.steady} of {run.needed} passes in a row once things had settled"
    settled = settled_ns(case.facts, run.window)
    later = f", {span((settled - run.window.anchor_ns) / 1e9)} {run.window.later}" if run.window.disrupted else ""
    return f"{text}{later}; {count(run.needed - run.steady, 'more fresh request')} would tell"


def _last_canaries(case: Case) -> Answered:
    """After an idle minute without probes: what only idleness breaks, and what only our probes kept alive."""
    facts = case.facts
    entered_ns = facts.phase_start("last-canaries", last=True)
    idle_ns = facts.phase_start("idle", last=True)
    if entered_ns is None or idle_ns is None or idle_ns > entered_ns:
        return unknown(fact("the run did not reach its last canaries after an idle time"))
    horizon, deadline_ns = facts.last_ns or 0, ns(facts.plan.canary_deadline_s)
    given_up = {run.path.id for run in case.given_up if run.window is case.last_window}
    paths = [path for path in facts.paths() if path.id not in given_up]
    told, bad, open_ = [], False, not paths
    for path in paths:
        seen = [look(c, horizon, deadline_ns) for c in facts.by_path.get(path.id, ()) if c.begun_ns >= entered_ns]
        bad = bad or any(s.fate.bad for s in seen)
        passed = any(s.fate is Fate.PASS for s in seen)
        open_ = open_ or not passed
        what = "passed" if passed and not any(s.fate.bad for s in seen) else "did not pass" if seen else "was not sent"
        told.append(fact(f"{path.id}: the last canary {what}", [q for s in seen for q in s.seqs]))
    if bad:
        return no(*told, outcome=Outcome.INCONCLUSIVE)
    return unknown(*told) if open_ else yes(*told)


def _wedged(case: Case) -> Answered:
    if not case.runs:
        return unknown(fact("nothing was watched"))
    wedged = [run for run in case.runs if case.wedged(run)]
    if wedged:
        return yes(*map(_fared, wedged), outcome=Outcome.WEDGED)
    crashed = [run for run in case.runs if case.crashed(run)]
    if crashed:
        return no(fact("what fails has a dead process on it, or nothing that listens: crashed, not wedged"))
    down = [run for run in case.runs if run.state.wedged]
    if down:
        return unknown(
            *(
                fact(f"{_where(run)}: {dead.what}, {dead.whose}, and nobody brought it back", dead.seqs)
                for run in down
                for dead in excuse(case.facts, run, case.down)[:1]
            )
        )
    undecided = [run for run in case.runs if run.state is State.UNDECIDED]
    return unknown(*map(_fared, undecided)) if undecided else no(fact("fresh requests complete on every path"))


def _crashed(case: Case) -> Answered:
    crashed = [run for run in case.runs if case.crashed(run)]
    if not case.facts.processes and not crashed:
        return not_applicable(fact("no process could be looked at"))
    if crashed:
        dead = dict.fromkeys(dead for run in crashed for dead in case.dead_on(run) if not dead.ours)
        told = [fact(f"{one.what}; we did not do it", one.seqs) for one in folded(dead)]
        told += [fact(one.text, one.seqs) for run in crashed for one in case.unheard_on(run)]
        return yes(*dict.fromkeys(told), *map(_fared, crashed), outcome=Outcome.CRASHED)
    unsure = dict.fromkeys(one for run in case.runs if run.state.wedged for one in case.dead_on(run) if one.unsure)
    if unsure:
        return unknown(*(fact(f"{one.what}, {one.whose}", one.seqs) for one in folded(unsure)))
    return no(fact("no path that fails has a process on it that died by itself"))


def _workers_serve(case: Case) -> Answered:
    """A worker that gets no request any more fails none, so only its own counter can tell that it is lost."""
    if not case.workers:
        return not_applicable(
            fact("no worker has peers and a counter of its requests while no canary asks it by itself")
        )
    dead = [run for run in case.workers if run.part is Part.LOST and case.dead_at(run.node)]
    if dead:
        found = dict.fromkeys(one for run in dead for one in case.dead_at(run.node))
        told = [fact(f"{one.what}; we did not do it", one.seqs) for one in folded(found)]
        return no(*told, *map(_took_part, dead), outcome=Outcome.CRASHED)
    if case.lost_workers:
        return no(*map(_took_part, case.lost_workers), outcome=Outcome.WEDGED)
    back = [run for run in case.workers if run.part is Part.BACK]
    if back:
        return no(*map(_took_part, back), outcome=Outcome.SLOW_RECOVERY)
    open_ = [run for run in case.workers if run.part.open]
    return unknown(*map(_took_part, open_)) if open_ else yes(*map(_took_part, case.workers))


def _took_part(run: WorkerRun) -> Evidence:
    return fact(f"{run.node} {run.window.after}: {run.why}", run.seqs)


def _recovered_in_time(case: Case) -> Answered:
    if not case.runs:
        return unknown(fact("nothing was watched"))
    slow = [run for run in case.runs if run.state in (State.SLOW, State.LATE) and not case.overloaded(run)]
    if slow:
        return no(*map(_fared, slow), outcome=Outcome.SLOW_RECOVERY)
    if any(run.state is not State.SERVES for run in case.runs):
        return unknown(fact("not every path serves again, or not every path is known to"))
    if not any(run.window.disrupted for run in case.runs):
        return not_applicable(fact("nothing was broken, so nothing had to recover"))
    return yes(*map(_fared, case.runs))


def _overloaded(case: Case) -> Answered:
    late = [run for run in case.runs if run.state in (State.SLOW, State.LATE)]
    told: list[Evidence] = []
    for run in late:
        explained = case.explained(run)
        told += [
            fact(f"{_where(run)}: {explained.work.text}", explained.work.seqs),
            fact(f"{_where(run)}: {explained.backlog.text}", explained.backlog.seqs),
        ]
    busy = [run for run in late if case.overloaded(run)]
    if busy:
        return yes(*map(_fared, busy), *told, outcome=Outcome.OVERLOADED)
    return no(*told) if late else not_applicable(fact("no path answers late"))


def _where(run: PathRun) -> str:
    return f"{run.path.id} {run.window.after}"


def _fared(run: PathRun) -> Evidence:
    """How one path fared, with the canaries that say so."""
    told = [
        f"{run.number(fate)} {word}"
        for fate, word in (
            (Fate.PASS, "in time"),
            (Fate.LATE, "late"),
            (Fate.FAILED, "failed"),
            (Fate.UNFINISHED, "unfinished"),
        )
        if run.number(fate)
    ]
    if run.state is State.SERVES:
        again = f"passed again {span(run.recovered_s or 0.0)} {run.window.after} and to the end"
        text = again if run.window.disrupted else run.why
        return fact(
            f"{run.path.id}: {text} ({listed(told)})", [q for s in (*run.seen[:3], *run.seen[-3:]) for q in s.seqs]
        )
    culprits = run.culprits or run.seen[-3:]
    return fact(f"{_where(run)}: {run.why} ({listed(told) or 'no canary'})", [q for s in culprits for q in s.seqs])


SERVING = (
    Question("crashed", "Did a process on a failing path die by itself?", _crashed, required=False),
    Question("wedged", "Do fresh requests no longer complete past the budget, with no other explanation?", _wedged),
    Question("workers-serve", "Does every worker that took requests before take them again?", _workers_serve),
    Question("recovered-in-time", "Did every path recover within the budget?", _recovered_in_time),
    Question("overloaded", "Is a late path only busy with users' work?", _overloaded, required=False),
    Question("paths-serve", "Does every path serve from within the budget to the end?", _paths_serve),
    Question(
        "last-canaries", "Did the last canary pass on every path after the idle time?", _last_canaries, live_only=True
    ),
)
