"""Can the evidence be trusted? Each of these can only withhold `healthy`; none can hide what the target did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge.before import lost_before
from chaos.judge.canaries import Fate, look
from chaos.judge.facts import FIRST_SEQ
from chaos.judge.interrupted import stopped
from chaos.judge.landing import SERVING_ROLES, missing_cycles, waves
from chaos.judge.questions.answers import Answered, Question, fact, no, not_applicable, unknown, yes
from chaos.judge.rule import State, passes_for
from chaos.judge.units import between, count, listed, ns
from chaos.judge.windows import load_start
from chaos.model.outcomes import Answer, Outcome, RunStatus

if TYPE_CHECKING:
    from chaos.judge.case import Case
    from chaos.judge.facts import Facts
    from chaos.model import events as ev

STANDS_ALONE = ("metrics", "scrape", "liveness", "process", "reference", "ssh", "way-late")
"""Probes whose blind moments are judged by the questions that need them: one missed reading of these hides nothing.

Of a connection that was lost (`ssh`) each probe tells itself what it did not see: a log is read on from where it was.
"""


def _record_whole(case: Case) -> Answered:
    facts = case.facts
    seqs = facts.seqs
    if not facts.run:
        return unknown(fact("the record does not begin with run.started"))
    if facts.ended is None:
        return unknown(fact("the record ends without run.ended: the run was cut off"))
    newest = max(seqs)
    missing = newest - FIRST_SEQ + 1 - len(seqs)
    if min(seqs) != FIRST_SEQ or missing or len(seqs) != facts.count:
        return unknown(fact(f"events are numbered 1 to {newest}, but {facts.count} are there: what is lost is unknown"))
    if facts.run.seq != FIRST_SEQ or facts.ended.seq != newest:
        return unknown(fact("run.started is not the first event or run.ended not the last"))
    return yes(fact(f"{facts.count} events, none missing", [facts.run.seq, facts.ended.seq]))


def _run_completed(case: Case) -> Answered:
    ended = case.facts.ended
    if ended is None:
        return unknown(fact("the run did not say goodbye"))
    if ended.status == RunStatus.COMPLETED:
        return yes(fact("the run went to its end", [ended.seq]))
    if why := stopped(case):
        return no(fact(f"the run was {why}", [ended.seq]), outcome=Outcome.INCONCLUSIVE)
    if ended.status == RunStatus.UNFIT:
        objections = [one for one in ended.reason.split("; ") if one] or ["the target was unfit"]
        return no(*(fact(one, [ended.seq]) for one in objections), outcome=Outcome.INCONCLUSIVE)
    why = f": {ended.reason}" if ended.reason else ""
    return no(fact(f"the run ended as {ended.status}{why}", [ended.seq]), outcome=Outcome.INCONCLUSIVE)


def _baseline_served(case: Case) -> Answered:
    """Every path must have served before anything was broken: what never worked cannot be broken by us."""
    facts = case.facts
    loaded_ns = load_start(facts)
    until_ns = facts.last_ns if loaded_ns is None else loaded_ns
    told, answers = [], set()
    for path in facts.paths():
        begun = [c for c in facts.by_path.get(path.id, ()) if c.begun_ns < (until_ns or 0)]
        if facts.imported and (loaded_ns is None or not begun):
            continue  # whether it was ever able to serve is asked of every path that fails (`paths.py`)
        # One that somebody happened to send shows that a path served; a row of them takes a run of ours.
        wanted = 1 if facts.imported else passes_for(path, facts.plan)
        seen = [
            look(c, until_ns or 0, ns(facts.plan.canary_deadline_s)) for c in sorted(begun, key=lambda c: c.begun_ns)
        ]
        seen = [s for s in seen if s.fate not in (Fate.YOUNG, Fate.VOID)]
        row = next((i for i, s in enumerate(reversed(seen)) if s.fate.bad), len(seen))
        bad = bool(seen) and row == 0
        lost = lost_before(facts, path)
        answers.add(Answer.NO if bad else Answer.YES if row >= wanted and not lost.lost else Answer.UNKNOWN)
        seqs = [seq for s in seen[-wanted:] for seq in s.seqs]
        text = "the last canary before the load failed" if bad else f"{row} of {wanted} canaries in a row passed"
        told.append(fact(f"{path.id}: {text}", seqs))
        if lost.lost:
            told.insert(0, fact(f"{path.id}: {lost.text}", [q for s in lost.lost for q in s.seqs]))
    if facts.imported and not answers:
        return not_applicable(fact("imported: nobody sent a fresh request before the load"))
    if Answer.NO in answers:
        return no(*told, outcome=Outcome.INCONCLUSIVE)
    if Answer.UNKNOWN in answers or not answers:
        return unknown(*(told or [fact("no path was examined")]))
    return yes(*told)


def _faults_landed(case: Case) -> Answered:
    if not case.facts.plan.faults:
        return not_applicable(fact("no fault was planned"))
    told, answers = [], set()
    for wave in sorted(waves(case), key=lambda wave: wave.landed is Answer.YES):  # what is wrong first
        fired = case.facts.fired.get((wave.cycle, wave.wave))
        census = case.facts.census.get((wave.cycle, wave.wave))
        seqs = [event.seq for event in (census, fired) if event]
        text = "; ".join(wave.unmet) if wave.unmet else "fired, verified, every aim met"
        told.append(fact(f"{wave.wave} of cycle {wave.cycle}: {text}", seqs))
        answers.add(wave.landed)
    missing = missing_cycles(case)
    halted = stopped(case)
    if missing and (halted or all(run.state is State.SERVES for run in case.last_runs)):
        told.append(fact(f"{count(missing, 'planned cycle')} never began{', for the run was stopped' * bool(halted)}"))
        answers.add(Answer.NO)
    elif missing:
        told.append(fact(f"{count(missing, 'planned cycle')} not begun, because the target had not recovered"))
    if Answer.NO in answers:
        return no(*told, outcome=Outcome.INCONCLUSIVE)
    return unknown(*told) if Answer.UNKNOWN in answers or not answers else yes(*told)


def _we_were_fit(case: Case) -> Answered:
    """Our own trouble matters only where a canary failed: one that passed passed whatever we suffered."""
    beats = case.facts.health.get("harness", [])
    if not beats:
        return unknown(fact("the harness did not report on itself"))
    worst = max(beats, key=lambda beat: (beat.lag_max_ms, -beat.t_ns))
    doubtful = [s for run in case.runs for s in run.seen if s.fate.bad and s.doubtful]
    references = [beat for beat in beats if beat.reference_ok is False]
    lag = fact(f"our own largest lag was {worst.lag_max_ms:.0f} ms", [worst.seq])
    if doubtful:
        ways = "lag, a failing reference canary, our own way there, or a machine without CPU time to spare"
        text = f"{count(len(doubtful), 'failed canary')} may be our own doing ({ways})"
        return unknown(lag, fact(text, [q for s in doubtful for q in s.seqs] + [b.seq for b in references]))
    return yes(lag, fact(f"{count(len(references), 'reading')} of the reference canary failed"))


def _logs_read(case: Case) -> Answered:
    facts = case.facts
    wanted = [node.id for node in facts.nodes if "log" in node.observes]
    if not wanted:
        if not facts.nodes:
            return unknown(fact("no deployment was recorded"))
        return not_applicable(fact("no log was given to read"))
    anchor = case.last_window.anchor_ns if case.last_window else 0
    lost = [c for c in facts.covered if c.lost]
    unread = [n for n in wanted if not any(c.node == n and c.t_ns >= anchor for c in facts.covered)]
    told = [
        fact(f"{c.lost} bytes of {c.node} {c.stream} were never read: {c.note}".rstrip(": "), [c.seq]) for c in lost
    ]
    if unread:
        told.append(fact(f"the log of {listed(unread)} was not read up to the end"))
    told += [
        fact(f"the log of {node.id} held not one line, though fresh requests were served there: is it the right one?")
        for node in facts.nodes
        if node.id in wanted and node.role in SERVING_ROLES and _mute(facts, node)
    ]
    if told:
        return unknown(*told)
    lines = sum(c.lines for c in facts.covered)
    return yes(fact(f"logs of {listed(wanted)} read without a gap, {lines} lines", [c.seq for c in facts.covered]))


def _mute(facts: Facts, node: ev.Node) -> bool:
    """Whether a log was read and nothing at all was in it, though the node served canaries all the while.

    Workers log what they serve; a router may well be silent.
    """
    lines = sum(covered.lines for covered in facts.covered if covered.node == node.id)
    return not lines and any(
        canary.ok
        for path in facts.paths()
        if node.id in facts.nodes_of(path)
        for canary in facts.by_path.get(path.id, ())
    )


def _probes_looked(case: Case) -> Answered:
    blind = [lost for lost in case.facts.lost if not lost.probe.startswith(STANDS_ALONE)]
    if blind:
        told = [
            fact(
                f"{lost.probe} {lost.node}".strip()
                + f" could not look for {between(lost.from_ns, lost.to_ns)}: {lost.cause or 'cause unknown'}",
                [lost.seq],
            )
            for lost in blind
        ]
        return unknown(*told)
    return yes(fact("no probe that a claim rests on was blind"))


TRUST = (
    Question("record-whole", "Is every event of the run there?", _record_whole),
    Question("run-completed", "Did our own run go to its end?", _run_completed, live_only=True),
    Question("we-were-fit", "Can our own machine be ruled out for every failure?", _we_were_fit, live_only=True),
    Question("baseline-served", "Did every path serve before anything was broken?", _baseline_served),
    Question("faults-landed", "Did every planned fault hit what it aimed at?", _faults_landed),
    Question("logs-read", "Was every log read without a gap?", _logs_read),
    Question("probes-looked", "Did the probes look all the time?", _probes_looked, live_only=True),
)
