"""A run that was stopped, in words: by what, amid what, what it did on its way out, and what that leaves unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge.leaving import cut_short, looks_since, since_then
from chaos.judge.units import count, listed
from chaos.model.outcomes import RunStatus
from chaos.model.verdict import Leaving

if TYPE_CHECKING:
    from chaos.judge.case import Case
    from chaos.judge.facts import Facts
    from chaos.judge.leaving import Cut

SIGNALS = {
    "SIGINT": "SIGINT (Ctrl-C)",
    "SIGTERM": "SIGTERM",
    "SIGHUP": "SIGHUP (its terminal was closed)",
}
DOING = {
    "baseline": "in the baseline",
    "load": "under load",
    "watching": "under load, while the paths were watched",
    "recovery": "while the recovery was watched",
    "rest": "in the rest between two cycles",
    "measuring": "while the load was measured",
    "teardown": "while the load drained",
    "idle": "in the idle time at the end",
    "last-canaries": "at the last canaries",
}
KIND = "that is a disturbance of the same kind as a wave: it may have broken the target"
MOST_PATHS = 3  # named in a sentence
MOST_LINES = 2  # of the servers' logs


def stopped(case: Case) -> str:
    """`interrupted by SIGINT (Ctrl-C) under load, before any fault struck`; empty where nobody stopped the run."""
    ended = case.facts.ended
    if ended is None or ended.status != RunStatus.ABORTED:
        return ""
    by = SIGNALS.get(ended.reason, "")
    early = bool(case.facts.plan.faults and case.facts.phases) and not _struck(case)
    when = f"{_doing(case.facts)}{', before any fault struck' * early}"
    other = "" if by else ended.reason
    return f"interrupted{f' by {by}' * bool(by)} {when}{f', since {other}' * bool(other)}"


def leaves_unknown(case: Case) -> str:
    """What nobody knows because the run was stopped, and what it did to the target itself."""
    cut = cut_short(case.facts)
    told = [_unknown(case)]
    if cut is not None:
        told.append(f"we hung up on {hung_up_on(cut)} ourselves, and what that did to the target is unknown")
    return "; ".join(told)


def _struck(case: Case) -> bool:
    return any(window.disrupted for window in case.windows)


def _doing(facts: Facts) -> str:
    """The phase that was broken off: the one before the first that was entered for a reason."""
    entered = sorted(facts.phases, key=lambda phase: (phase.t_ns, phase.seq))
    at = next((i for i, phase in enumerate(entered) if phase.reason), len(entered))
    if not at:
        return "before anything was asked"
    return DOING.get(entered[at - 1].phase, f"in its phase {entered[at - 1].phase}")


def _unknown(case: Case) -> str:
    facts = case.facts
    if not _struck(case):
        what = "what the faults would have done" if facts.plan.faults else "how it would have gone on"
        return f"{what} is unknown"
    runs = case.last_runs
    open_ = [run.path.id for run in runs if not run.state.wedged and run.steady < run.needed]
    if open_:
        names = open_ if len(open_) <= MOST_PATHS else [*open_[:MOST_PATHS], f"{len(open_) - MOST_PATHS} more paths"]
        verb = "recovers" if len(names) == 1 else "recover"
        return f"whether {listed(names)} {verb} {runs[0].window.after} is unknown"
    missing = max(facts.plan.cycles - len(case.windows), 0)
    if missing:
        return f"what {count(missing, 'more cycle')} would have done is unknown"
    return "whether it stays so at rest is unknown"


def leaving(facts: Facts) -> Leaving | None:
    """What a stopped run did on leaving, in numbers and in sentences for people."""
    cut = cut_short(facts)
    if cut is None:
        return None
    return Leaving(
        at_once=cut.at_once,
        waiting=cut.waiting,
        streaming=cut.streaming,
        unknown=len(cut.users) - cut.waiting - cut.streaming,
        canaries=cut.canaries,
        told=(_what(cut), KIND, _since(facts, cut), *_lines(facts, cut)),
        seqs=tuple(sorted(one.seq for one in cut.requests if one.seq > 0)),
    )


def hung_up_on(cut: Cut) -> str:
    """`38 open requests (18 waiting for their first token, 20 streaming) and 2 canaries`."""
    unknown = len(cut.users) - cut.waiting - cut.streaming
    states = ((cut.waiting, "waiting for the first token"), (cut.streaming, "streaming"), (unknown, "in unknown state"))
    users = f"{count(len(cut.users), 'open request')} ({', '.join(f'{n} {state}' for n, state in states if n)})"
    canaries = f"{count(cut.canaries, 'open canary')}"
    return " and ".join([users] * bool(cut.users) + [canaries] * bool(cut.canaries))


def _what(cut: Cut) -> str:
    why = "asked to leave at once" if cut.at_once else "stopped, and the load did not end in time"
    return f"{why}, we ourselves hung up on {hung_up_on(cut)}"


def _since(facts: Facts, cut: Cut) -> str:
    paths = [path.id for path in facts.paths()]
    looked = [path for path in paths if looks_since(facts, path, cut)]
    if not looked:
        return "nothing was looked at since: what state it left the paths in is unknown"
    told = [f"{path}: {since_then(facts, path, cut)}" for path in looked[:MOST_PATHS]]
    more = f"; {count(len(paths) - len(told), 'more path')}" if len(paths) > len(told) else ""
    return f"what state it left the paths in is unknown; {'; '.join(told)}{more}"


def _lines(facts: Facts, cut: Cut) -> list[str]:
    """What the servers logged since that shows lasting damage."""
    first: dict[tuple[str, str], str] = {}
    for hit in facts.hits:
        if hit.klass in ("fatal", "crash") and hit.by_ns >= cut.at_ns:
            first.setdefault((hit.node, hit.signature), f"since then {hit.node} logged: {hit.title or hit.line[:200]}")
    return list(first.values())[:MOST_LINES]
