"""Whether each wave met what it aimed at. A wave that hit something else proves nothing, and never that all is well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge.metrics import abort_rise
from chaos.judge.units import SECOND, between
from chaos.model import events as ev
from chaos.model.outcomes import Answer
from chaos.model.verdict import WaveVerdict

if TYPE_CHECKING:
    from chaos.judge.case import Case
    from chaos.judge.facts import Facts

SESSION_PHASES = frozenset({"connecting", "waiting", "streaming", "thinking"})
SERVER_ABORTS = "server_aborts"
DELIVERED_SHARE = 0.9
"""A wave hits the load that was meant only if at least this share of the sends that were due had been made."""
DELIVERED_SLACK = 2
"""Sends due between two beats of an agent are no shortfall."""
CENSUS_FRESH_NS = round(1.5 * SECOND)
"""An agent beats twice a second; one that was not heard of for longer may have stood still, and its census with it."""
CENSUS_LAG_MS = 1000.0
"""An agent that lagged behind by this much does not know in which phase its sessions are."""
AGENT_STARTS_NS = SECOND
"""An agent that has sent its first request only now has had no time to beat."""
SERVING_ROLES = ("prefill", "decode")
ROLES = ("router", *SERVING_ROLES)


def waves(case: Case) -> tuple[WaveVerdict, ...]:
    """Every wave that was planned for a cycle that began, or that was fired, in order."""
    facts = case.facts
    keys = [
        (window.cycle, fault.id)
        for window in case.windows
        for fault in facts.plan.faults
        if not fault.cycles or window.cycle in fault.cycles
    ]
    keys += sorted((key for key in facts.fired if key not in keys), key=lambda key: facts.fired[key].ordered_ns)
    planned = {fault.id: fault for fault in facts.plan.faults}
    return tuple(_wave(case, cycle, planned.get(wave) or ev.PlannedFault(id=wave, kind="")) for cycle, wave in keys)


def missing_cycles(case: Case) -> int:
    """How many planned cycles never began."""
    plan = case.facts.plan
    return max(plan.cycles - len(case.windows), 0) if plan.faults else 0


def _wave(case: Case, cycle: int, fault: ev.PlannedFault) -> WaveVerdict:
    facts = case.facts
    fired = facts.fired.get((cycle, fault.id))
    applied = next((s for s in facts.steps if _stage(s, cycle, fault, "applied") and s.ok), None)
    hit_ns = fired.ordered_ns if fired else applied.t_ns if applied else None
    census = facts.census.get((cycle, fault.id))
    aborts = None if hit_ns is None else server_aborts(case, cycle, hit_ns)
    answers: list[tuple[Answer, str]] = [_happened(facts, cycle, fault, fired)]
    if hit_ns is not None:
        stale = _stale(facts, cycle, fault, hit_ns)
        answers += [_met(bound, census, aborts, stale) for bound in fault.aim]
        answers.append(_delivered(facts, fault, hit_ns))
    told = {answer for answer, _ in answers}
    landed = Answer.NO if Answer.NO in told else Answer.UNKNOWN if Answer.UNKNOWN in told else Answer.YES
    hit = fired or ev.WaveFired(t_ns=0, wave=fault.id, how=fault.how, ordered_ns=0)
    return WaveVerdict(
        wave=fault.id,
        cycle=cycle,
        kind=fault.kind,
        how=hit.how,
        nodes=applied.nodes if applied else (),
        phases=dict(sorted(census.phases.items())) if census else {},
        sessions=hit.sessions,
        sockets=hit.sockets,
        spread_ms=_apart_ms(hit.first_ns, hit.last_ns),
        server_aborts=aborts,
        landed=landed,
        unmet=tuple(text for answer, text in answers if answer is not Answer.YES),
        fin=hit.fin,
        rst=hit.rst,
        router_watched=hit.router_watched,
        router_closed=hit.router_closed,
        router_unknown=hit.router_unknown,
        router_spread_ms=_apart_ms(hit.router_first_ns, hit.router_last_ns),
        ends=_ends(facts, cycle, fault),
    )


def _ends(facts: Facts, cycle: int, fault: ev.PlannedFault) -> dict[str, int]:
    """How the requests ended that a fault itself sent, in its own words; those that hang are the news."""
    if fault.kind != "poison":
        return {}
    seen = [step.measured for step in facts.steps if _stage(step, cycle, fault, "verified")]
    return {how: int(number) for measured in seen[-1:] for how, number in measured.items() if number.isdecimal()}


def _apart_ms(first_ns: int | None, last_ns: int | None) -> float | None:
    return None if first_ns is None or last_ns is None else (last_ns - first_ns) / 1e6


def _happened(facts: Facts, cycle: int, fault: ev.PlannedFault, fired: ev.WaveFired | None) -> tuple[Answer, str]:
    """Fired (or applied) and verified by a measurement."""
    steps = [step for step in facts.steps if step.cycle == cycle and step.fault == fault.id]
    failed = [step for step in steps if not step.ok]
    applied = fired is not None or any(step.stage == "applied" and step.ok for step in steps)
    if failed:
        return Answer.NO, f"not {failed[0].stage}: {failed[0].detail or _measured(failed[0]) or 'no reason given'}"
    if not applied:
        return Answer.NO, "never fired"
    measured = {step.stage for step in steps if step.measured}
    if "verified" not in measured:
        return Answer.UNKNOWN, "nothing was measured that shows it took effect"
    if fault.lasts_s is not None and "revert-verified" not in measured:
        return Answer.UNKNOWN, "nothing was measured that shows it was undone"
    return Answer.YES, ""


def _stage(step: ev.FaultStep, cycle: int, fault: ev.PlannedFault, stage: ev.Stage) -> bool:
    return (step.cycle, step.fault, step.stage) == (cycle, fault.id, stage)


def _measured(step: ev.FaultStep) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(step.measured.items()))


def _stale(facts: Facts, cycle: int, fault: ev.PlannedFault, hit_ns: int) -> str:
    """Why the census may be of another moment than the wave; empty when the agent that took it was alive then."""
    if facts.imported:
        return ""  # whoever took it says when
    beats = [beat for who in _agents(facts, fault) for beat in facts.health[who] if beat.t_ns <= hit_ns]
    last = max(beats, key=lambda beat: (beat.t_ns, beat.lag_max_ms), default=None)
    if last is not None and hit_ns - last.t_ns <= CENSUS_FRESH_NS:
        if last.lag_max_ms < CENSUS_LAG_MS:
            return ""
        return f"the load's agent lagged behind by {last.lag_max_ms:.0f} ms when it was taken"
    began = [
        at for (of, group), at in facts.group_began.items() if of == cycle and (not fault.group or group == fault.group)
    ]
    if began and 0 <= hit_ns - min(began) < AGENT_STARTS_NS:
        return ""
    heard = "never" if last is None else f"not for {between(last.t_ns, hit_ns)}"
    return f"the load's agent was {heard} heard of before the wave"


def _met(bound: ev.Bound, census: ev.WaveCensus | None, aborts: int | None, stale: str) -> tuple[Answer, str]:
    got: float | None
    if bound.name == SERVER_ABORTS:
        got = None if aborts is None else float(aborts)
    elif census is None:
        got = None
    elif bound.name in SESSION_PHASES:
        got = float(census.phases.get(bound.name, 0)) if census.phases else None
    else:
        values = [reading.value for reading in census.queues if reading.name == bound.name]
        got = sum(values) if values else None
    wanted = f"{bound.name} {bound.op} {bound.value:g}"
    if got is None:
        return Answer.UNKNOWN, f"{wanted}: nothing could tell"
    if bound.name in SESSION_PHASES and stale:
        return Answer.UNKNOWN, f"{wanted}: was {got:g}, but {stale}"
    return (Answer.YES if bound.met_by(got) else Answer.NO), f"{wanted}: was {got:g}"


def _delivered(facts: Facts, fault: ev.PlannedFault, hit_ns: int) -> tuple[Answer, str]:
    """Whether the load that the wave hit was the load that was meant."""
    for who in _agents(facts, fault):
        before = [beat for beat in facts.health[who] if beat.t_ns <= hit_ns]
        if before and before[-1].delivered + DELIVERED_SLACK < DELIVERED_SHARE * before[-1].intended:
            text = f"only {before[-1].delivered} of {before[-1].intended} requests that were due had been sent"
            return Answer.UNKNOWN, text
    return Answer.YES, ""


def _agents(facts: Facts, fault: ev.PlannedFault) -> list[str]:
    """Who reported on the sessions that a fault is meant for."""
    return [
        who
        for who in facts.health
        if who != "harness" and (not fault.group or who == fault.group or who.endswith(f":{fault.group}"))
    ]


def server_aborts(case: Case, cycle: int, hit_ns: int) -> int | None:
    """Distinct requests whose abort the servers themselves told of after the wave; None when nothing could tell.

    Each side logs an abort once per rank and all sides log the same request, so occurrences are told apart by their
    key and the side with the most is taken. Counters stand in only where no log was read: they also count disconnects
    of streams that had all their tokens. A router whose log says nothing may be of a kind that does not log aborts, and
    that nobody aborted anything is known only where every worker that would have logged it was read.
    """
    facts = case.facts
    until = next((w.until_ns for w in case.windows if w.cycle == cycle), (facts.last_ns or 0) + 1)
    # In the teardown we may hang up ourselves: what the servers abort then is no work of the wave's.
    until = min([until, *(e.t_ns for e in facts.phases if e.phase == "teardown" and e.t_ns > hit_ns)])
    keyed: dict[str, set[str]] = {role: set() for role in ROLES}
    unkeyed = dict.fromkeys(ROLES, 0)
    for hit in facts.hits:
        role = facts.role(hit.node) or hit.side
        if hit.klass != "abort" or role not in keyed or not hit_ns <= hit.by_ns < until:
            continue
        if hit.key:
            keyed[role].add(hit.key)
        else:
            unkeyed[role] += hit.count
    logged = max(len(keyed[role]) + unkeyed[role] for role in ROLES)
    if logged:
        return logged
    read = {covered.node for covered in facts.covered if covered.t_ns > hit_ns}
    workers = [node for node in facts.nodes if node.role in SERVING_ROLES]
    heard = [node for node in workers if node.id in read and node.logs_aborts]
    rises = []
    for role in set(ROLES) - {node.role for node in heard}:
        rise, _ = abort_rise(facts, [n.id for n in facts.nodes if n.role == role], hit_ns, until)
        rises += [] if rise is None else [rise]
    return int(max(rises)) if rises else 0 if workers and len(heard) == len(workers) else None
