"""From events to the verdict: order them, fold them, ask every question, take the worst sound answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chaos.judge.canaries import Fate
from chaos.judge.case import Case, excuse
from chaos.judge.causes import causes
from chaos.judge.content import unexamined_content
from chaos.judge.facts import Facts
from chaos.judge.headline import headline, reasons
from chaos.judge.interrupted import leaving
from chaos.judge.landing import waves
from chaos.judge.lattice import decide
from chaos.judge.metrics import unread_queues, unread_ranks
from chaos.judge.questions.content import CONTENT
from chaos.judge.questions.damage import DAMAGE
from chaos.judge.questions.reach import REACH
from chaos.judge.questions.serving import SERVING
from chaos.judge.questions.trust import TRUST
from chaos.judge.questions.users import USERS, unasked_users
from chaos.judge.rule import State
from chaos.judge.saved import saved, unseen_inside
from chaos.judge.threads import threads
from chaos.judge.wedge import wedge
from chaos.judge.workers import Part
from chaos.model.outcomes import Answer, Cleanup, Outcome, RunStatus, exit_code
from chaos.model.verdict import FORMAT, PathVerdict, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chaos.judge.paths import PathRun
    from chaos.judge.questions.answers import Question
    from chaos.model.events import AnyEvent
    from chaos.model.verdict import Finding

JUDGE_VERSION = "10"
"""Changes whenever the same journal may get another verdict."""

QUESTIONS: tuple[Question, ...] = (*SERVING, *USERS, *CONTENT, *DAMAGE, *REACH, *TRUST)
"""Every question, always asked; the order decides only between outcomes of equal rank and how findings are listed."""

OBSERVABLE = {"liveness": "its health endpoint", "metrics": "its metrics", "log": "its log", "process": "its process"}


def judge(events: Iterable[AnyEvent], *, questions: Sequence[Question] = QUESTIONS) -> Verdict:
    """Judge a journal. Pure: the same events give the same bytes, in whatever order they are handed over."""
    facts = Facts().feed_all(in_order(events))
    case = Case.of(facts)
    findings = tuple(question.finding(case) for question in questions)
    outcome = decide(findings)
    status = _status(facts, findings)
    cleanup = _cleanup(facts)
    look = wedge(case)
    # Where all is well there is nothing to explain.
    found = () if outcome is Outcome.HEALTHY else causes(facts, outcome, look.side if look else "")
    run = facts.run
    return Verdict(
        format=FORMAT,
        judge_version=JUDGE_VERSION,
        run_id=run.run_id if run else "",
        scenario=facts.plan.scenario,
        target=run.target if run else "",
        outcome=outcome,
        status=status,
        cleanup=cleanup,
        exit_code=exit_code(outcome, status, cleanup, allowed=_allowed(facts)),
        headline=headline(case, outcome, findings),
        reasons=reasons(case, outcome, findings, found),
        findings=findings,
        paths=(*(_path(run) for run in case.last_runs), *_given_up(case)),
        waves=waves(case),
        wedge=look,
        causes=found,
        leaving=leaving(facts),
        not_examined=_not_examined(case),
        saved=saved(facts),
        allow=facts.plan.allow,
        duration_s=((facts.last_ns or 0) - (facts.first_ns or 0)) / 1e9,
        imported=facts.imported,
    )


def in_order(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """By time, then by number, then by content: an order that does not depend on how they came."""
    return sorted(events, key=lambda event: (event.t_ns, event.seq, msgspec.json.encode(event, order="deterministic")))


def _status(facts: Facts, findings: Sequence[Finding]) -> RunStatus:
    if facts.ended:
        told = facts.ended.status
        return RunStatus(told) if told in list(RunStatus) else RunStatus.HARNESS_ERROR
    unfit = any(finding.id == "baseline-served" and finding.answer is Answer.NO for finding in findings)
    return RunStatus.UNFIT if unfit else RunStatus.HARNESS_ERROR


def _cleanup(facts: Facts) -> Cleanup:
    told = facts.ended.cleanup if facts.ended else ""
    return Cleanup(told) if told in list(Cleanup) else Cleanup.UNKNOWN


def _allowed(facts: Facts) -> frozenset[Outcome]:
    return frozenset(Outcome(name) for name in facts.plan.allow if name in list(Outcome))


def _path(run: PathRun) -> PathVerdict:
    tardy = run.state in (State.SLOW, State.LATE)
    serves = Answer.NO if run.state.wedged else Answer.UNKNOWN if run.state is State.UNDECIDED else Answer.YES
    note = run.why
    early = run.number(Fate.UNFINISHED)
    if run.state is State.SERVES and early:
        note += f"; {early} sent before that never ended"
    return PathVerdict(
        path=run.path.id,
        serves=serves,
        tardy=tardy,
        canaries=len(run.seen),
        passed=run.number(Fate.PASS),
        late=run.number(Fate.LATE),
        failed=run.number(Fate.FAILED),
        unfinished=run.number(Fate.UNFINISHED),
        recovered_s=run.recovered_s if run.window.disrupted else None,
        after=run.window.after,
        note=note,
    )


def _given_up(case: Case) -> list[PathVerdict]:
    """Paths that are not expected to serve: what was seen of them is shown, and nothing is concluded from it."""
    return [
        msgspec.structs.replace(_path(run), serves=Answer.NOT_APPLICABLE, note=_why_given_up(case, run))
        for run in case.given_up
        if run.window is case.last_window
    ]


def _why_given_up(case: Case, run: PathRun) -> str:
    causes = excuse(case.facts, run, case.down)
    return f"not expected to serve: {causes[0].what}, {causes[0].whose}"


def _not_examined(case: Case) -> tuple[str, ...]:
    facts = case.facts
    told = [
        f"path {run.path.id}: {_why_given_up(case, run)}" for run in case.given_up if run.window is case.last_window
    ]
    if facts.deployment is None:
        return ("the deployment was not recorded",)
    for path in facts.deployment.paths:
        if not path.examined:
            told.append(f"path {path.id}: {path.reason or 'no canary takes it'}")
        elif path.id not in facts.by_path:
            told.append(f"path {path.id}: no canary was sent")
    told += facts.deployment.not_examined
    for node in facts.nodes:
        blind = [what for probe, what in OBSERVABLE.items() if probe not in node.observes]
        if blind:
            told.append(f"{node.id}: {', '.join(blind)} could not be looked at")
    told += unread_ranks(facts)
    told += unread_queues(facts)
    inside = threads(facts)
    told += [f"{node}: its threads were not looked at before the load" for node in inside.unread]
    told += [f"{node}: its threads were not looked at after the load" for node in inside.lost]
    told += unseen_inside(facts)
    told += [f"{run.node}: {run.why}, so nothing is expected of it" for run in case.workers if run.part is Part.APART]
    told += unexamined_content(facts)
    told += unasked_users(case)
    told.append("speed: one run alone has no control arm to be slower than")
    return tuple(dict.fromkeys(told))
