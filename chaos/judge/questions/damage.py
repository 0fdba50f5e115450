"""What else was done to the target: dead or replaced processes, floors, fatal log lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge.deeds import dying_words, hung_up_ns
from chaos.judge.floors import floors, rising_floors
from chaos.judge.left import left_behind
from chaos.judge.metrics import SAME, name_of, open_requests
from chaos.judge.nobody import for_nobody
from chaos.judge.processes import MAY_BE_OURS, folded, passing_children, replaced_processes
from chaos.judge.questions.answers import Answered, Question, fact, no, not_applicable, unknown, yes
from chaos.judge.strangers import strangers
from chaos.judge.stuck import alive_at_the_end, hung_up_early_ns
from chaos.judge.threads import threads
from chaos.judge.units import count, listed, span
from chaos.model.outcomes import Outcome

if TYPE_CHECKING:
    from chaos.judge.case import Case
    from chaos.judge.floors import Floor, Rising
    from chaos.judge.nobody import ForNobody
    from chaos.model import events as ev
    from chaos.model.verdict import Evidence

AFTER_HANGING_UP = "seen only after we hung up on open requests in the teardown"


def is_fatal(hit: ev.LogHit) -> bool:
    """Whether a log line shows lasting damage by itself: something ended that does not come back."""
    return hit.klass in ("fatal", "crash") or (hit.klass == "traceback" and hit.ends in ("thread", "process"))


def _replaced(case: Case) -> Answered:
    if not case.facts.processes:
        return not_applicable(fact("no process could be looked at"))
    found = replaced_processes(case.facts)
    replaced = [one for one in found if not one.ours]
    if replaced:
        told = [fact(f"{one.what}; we did not do it", one.seqs) for one in replaced]
        return yes(*told, outcome=Outcome.RESTARTED)
    unsure = [one for one in found if one.unsure]
    if unsure:
        return unknown(*(fact(f"{one.what}, {MAY_BE_OURS}", one.seqs) for one in unsure))
    ours = [fact(f"{one.what}, which is our doing", one.seqs) for one in found]
    return no(*ours, fact(f"every {'other ' if ours else ''}process is the one it was before the load"))


def _processes_known(case: Case) -> Answered:
    """A process that nobody looked at any more may have been replaced, unnoticed."""
    facts = case.facts
    wanted = [node.id for node in facts.nodes if "process" in node.observes]
    if not wanted:
        return not_applicable(fact("no process was given to look at"))
    anchor = case.last_window.anchor_ns if case.last_window else 0
    unseen = [n for n in wanted if not any(look.t_ns >= anchor for look in facts.processes.get(n, ()))]
    if unseen:
        after = case.last_window.after if case.last_window else "at all"
        return unknown(fact(f"nobody looked at the process of {listed(unseen)} {after}"))
    return yes(fact(f"the processes of {listed(wanted)} were looked at to the end"))


def _leaking(case: Case) -> Answered:
    stuck = [run for run in case.last_runs if run.state.wedged]
    if stuck:
        return unknown(fact(f"gauges freeze while a path is stuck: no floor can be read on {stuck[0].path.id}"))
    held = _held_or_wasted(case)
    left = [one for one in left_behind(case.facts) if one.until_ns >= (case.facts.phase_start("idle", last=True) or 0)]
    if held.outcome is not Outcome.LEAKING or not left:
        return held
    nodes = listed(list(dict.fromkeys(one.node for one in left)))
    ours = fact(f"that may be what our own way to {nodes} left behind when it was cut", [one.seq for one in left])
    return unknown(*held.evidence, ours)


def _held_or_wasted(case: Case) -> Answered:
    got, more = _floors(case), [_rose(case, rising) for rising in rising_floors(case.facts)]
    more += [_generated(case, wasted) for wasted in for_nobody(case.facts)]
    held = got.evidence if got.outcome is Outcome.LEAKING else ()
    others = strangers(case.facts)
    if others and (held or more):
        number, lasted = count(round(others.requests), "request"), span(others.lasted_s)
        told = f"somebody else uses it: {number} in {lasted} of rest that are not ours"
        return unknown(fact(told, others.seqs), *held, *more)
    return yes(*held, *more, outcome=Outcome.LEAKING) if more else got


def _floors(case: Case) -> Answered:
    """Only what exceeds our own open requests is lost: a hung canary of ours rightly sits in a queue."""
    known, missing = floors(case.facts)
    missing = [node for node in missing if node not in case.down_nodes()]  # the dead hold nothing
    lost = _lost_requests(case, case.facts.phase_start("idle", last=True) or 0)
    above = [floor for floor in known if floor.excess > lost]
    hung_up = hung_up_early_ns(case.facts) is not None
    leaked = [_held(case, floor) for floor in above if floor.excess > floor.ours and not floor.unsettled]
    if hung_up:
        leaked = _kept(case, known)
    if leaked:
        return yes(*leaked, outcome=Outcome.LEAKING)
    if missing:
        text = f"the idle floor of {listed(missing)} could not be read after the gauge lag"
        unsaid = case.facts.imported and not any(rest.node in missing for rest in case.facts.rests)
        noted = "; no reading is said to be of a deployment at rest (`quiet_for`)" * unsaid
        return unknown(fact(text + noted))
    if above:
        return unknown(
            *(fact(f"{_held(case, f).text}, {f.unsettled or _maybe_ours(f, hung_up=hung_up)}", f.seqs) for f in above)
        )
    if known:
        seqs = [seq for floor in known for seq in floor.seqs]
        but = f", but for {count(lost, 'request')} of ours that a fault left hanging" if lost else ""
        return no(fact(f"{count(len(known), 'queue gauge')} back to their own level{but}", seqs))
    if not case.facts.nodes:
        return unknown(fact("no deployment was recorded"))
    return not_applicable(fact("no node shows a queue gauge"))


def _kept(case: Case, known: list[Floor]) -> list[Evidence]:
    """Where we hung up on requests in the teardown: what was held before then, and is held still."""
    alive = len(alive_at_the_end(case.facts, _hit_ns(case), {run.path.id for run in case.given_up}))
    least = [(floor, floor.kept - alive - floor.ours) for floor in known if not floor.unsettled]
    told = "and kept at least {:g} from before we hung up on anybody"
    return [fact(f"{_held(case, floor).text}, {told.format(kept)}", floor.seqs) for floor, kept in least if kept > SAME]


def _maybe_ours(floor: Floor, *, hung_up: bool) -> str:
    if hung_up and floor.excess > floor.ours:
        return AFTER_HANGING_UP
    return f"which may be {count(floor.ours, 'open request')} of our own"


def _lost_requests(case: Case, at_ns: int) -> int:
    """Requests of ours that were under way when the fault hit, or went to what we took down, and are open still.

    Whoever is left waiting like that is lost with the process that held it; the other side holds its place for as long
    as we stay connected.
    """
    hit_ns = _hit_ns(case)
    if not hit_ns:
        return 0
    return open_requests(case.facts, at_ns, begun_before_ns=hit_ns, also_on={run.path.id for run in case.given_up})


def _hit_ns(case: Case) -> int:
    """When the last fault hit; 0 where none did."""
    return max((window.anchor_ns for window in case.windows if window.disrupted), default=0)


def _rose(case: Case, rising: Rising) -> Evidence:
    levels = ", ".join(f"{level:g}" for level in rising.floors)
    return fact(f"{name_of(case.facts, rising.series)} holds more at rest after every wave: {levels}", rising.seqs)


def _generated(case: Case, wasted: ForNobody) -> Evidence:
    text = f"rose by {wasted.tokens:.0f} in {span(wasted.lasted_s)} of idleness: work for sessions that are gone"
    return fact(f"{name_of(case.facts, wasted.series)} {text}", wasted.seqs)


def _held(case: Case, floor: Floor) -> Evidence:
    what = name_of(case.facts, floor.series)
    return fact(f"{what} is {floor.after:g} at rest, was {floor.before:g} before the load", floor.seqs)


def _damaged(case: Case) -> Answered:
    facts = case.facts
    fatal = [hit for hit in facts.hits if is_fatal(hit) and not dying_words(facts, hit)]
    dead = [one for one in case.dead if not one.ours]
    cut_ns = hung_up_ns(facts)
    told = [(one.at_ns, fact(f"{one.what}; we did not do it", one.seqs)) for one in folded(dead)]
    told += [
        (hit.by_ns, fact(f"{hit.node} logged: {hit.line.strip()[:200]}", [hit.seq]))
        for hit in _first_of_each_signature(fatal)
    ]
    held = [evidence for at_ns, evidence in told if cut_ns is None or at_ns <= cut_ns]
    if held:
        return yes(*held, outcome=Outcome.DAMAGED)
    if told:
        return unknown(*(fact(f"{evidence.text}, {AFTER_HANGING_UP}", evidence.seqs) for _, evidence in told))
    unsure = folded(one for one in case.dead if one.unsure)
    if unsure:
        return unknown(*(fact(f"{one.what}, {one.whose}", one.seqs) for one in unsure))
    looked = [probe for probe in ("log", "process") if any(probe in node.observes for node in facts.nodes)]
    if not looked:
        return not_applicable(fact("no log and no process was given to look at"))
    nothing = {"log": "no fatal line was logged", "process": "no process died"}
    return no(fact(" and ".join(nothing[probe] for probe in looked)), *map(fact, passing_children(facts)))


def _first_of_each_signature(hits: list[ev.LogHit]) -> list[ev.LogHit]:
    first: dict[tuple[str, str], ev.LogHit] = {}
    for hit in hits:
        first.setdefault((hit.node, hit.signature), hit)
    return list(first.values())


def _threads_alive(case: Case) -> Answered:
    """Known only where somebody could look into the processes, before the load and after it."""
    seen = threads(case.facts)
    cut_ns = hung_up_ns(case.facts)
    if seen.gone and cut_ns is not None and all(one.at_ns > cut_ns for one in seen.gone):
        told = [fact(f"{one.text}, {AFTER_HANGING_UP}", one.seqs) for one in seen.gone]
        return no(*told, outcome=Outcome.INCONCLUSIVE)
    if seen.gone:
        return no(*(fact(one.text, one.seqs) for one in seen.gone), outcome=Outcome.DAMAGED)
    if seen.lost:
        return unknown(fact(f"the threads of {listed(seen.lost)} were read before the load, and never after it"))
    unread = [fact(f"nobody could read the threads of {listed(seen.unread)}")] if seen.unread else []
    if seen.alive:
        return yes(fact(f"still there: {listed(seen.alive)}", seen.seqs), *unread)
    return not_applicable(*(unread or [fact("no thread is known that a node cannot serve without")]))


def _degraded(_case: Case) -> Answered:
    return not_applicable(fact("one run alone has no control arm; a campaign with `control` compares"))


DAMAGE = (
    Question("replaced", "Was a process replaced without our doing?", _replaced, required=False),
    Question("processes-known", "Were the processes looked at to the end?", _processes_known),
    Question("leaking", "Does a queue keep at rest what it did not hold before the load?", _leaking),
    Question("damaged", "Is there fatal evidence, whether or not fresh requests pass?", _damaged),
    Question("threads-alive", "Does every thread still run that a node cannot serve without?", _threads_alive),
    Question("degraded", "Is the target slower than a control arm at the same load?", _degraded, required=False),
)
