"""What the logs say about why. A signature explains an outcome; it never makes one (but `damaged`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge.deeds import DYING_S, dying_words, sent_by_us
from chaos.judge.leaving import cut_short
from chaos.judge.processes import last_death_ns
from chaos.judge.questions.damage import is_fatal
from chaos.judge.threads import threads
from chaos.judge.units import ns
from chaos.judge.windows import first_fault_ns, load_start
from chaos.model.outcomes import Outcome
from chaos.model.verdict import Cause

if TYPE_CHECKING:
    from chaos.judge.facts import Facts
    from chaos.model.events import LogHit

EXPLAINS = ("fatal", "crash", "traceback", "timeout", "symptom")
"""Best first. Abort lines say that the abort path works, those of a start that something came up, and benign ones
nothing: none of them explains anything."""
SYMPTOMS = ("timeout", "symptom")
"""Lines that follow from trouble as often as they make it: causes only where an upstream report says so."""
OF_A_DEATH = (Outcome.CRASHED, Outcome.RESTARTED)
"""What these outcomes need explained is why a process died."""
MOST_SEQS = 12


def causes(facts: Facts, outcome: Outcome, side: str = "") -> tuple[Cause, ...]:
    """One cause per signature: fatal ones first, those of the wedged side, with an upstream reference, then by time."""
    died_ns = last_death_ns(facts) if outcome in OF_A_DEATH else None
    begun_ns = _trouble_may_begin_ns(facts)
    by_signature: dict[str, list[LogHit]] = {}
    cut = cut_short(facts)
    for hit in facts.hits:
        if cut is not None and hit.by_ns >= cut.at_ns:
            continue  # that is what our own leaving did (`leaving.py`)
        if died_ns is not None and _after_death(hit, died_ns):
            continue
        if hit.by_ns < begun_ns and not is_fatal(hit):
            continue
        if hit.klass in EXPLAINS and not dying_words(facts, hit):
            by_signature.setdefault(hit.signature, []).append(hit)
    groups = sorted(by_signature.values(), key=lambda hits: _rank(facts, hits[0], side))
    return (*_unlogged(facts), *(_cause(facts, hits) for hits in groups))


def _after_death(hit: LogHit, died_ns: int) -> bool:
    """Whether a line was surely written after the last death that is to be explained.

    That is what a fresh process prints at every start, and what others make of the loss. A line without a stamp may
    have been read late.
    """
    return (hit.t_ns - ns(DYING_S) if hit.written_ns is None else hit.written_ns) > died_ns


def _trouble_may_begin_ns(facts: Facts) -> int:
    """The first moment that load or a fault may have troubled anything.

    What a server complains of before, and serves on, is how it talks; only what ended something then still counts.
    """
    loaded_ns, fault_ns = load_start(facts), first_fault_ns(facts)
    return min((at for at in (loaded_ns, fault_ns) if at is not None), default=facts.first_ns or 0)


def _unlogged(facts: Facts) -> list[Cause]:
    """Threads that ended without a line that says so (or with one that nobody could read)."""
    told = {hit.node for hit in facts.hits if is_fatal(hit) and hit.ends == "thread"}
    return [
        Cause(
            signature="thread-gone",
            title=f"a thread has ended: {gone.title}",
            side=gone.side or facts.role(gone.node),
            upstream="",
            fixed_in="",
            line=gone.text,
            seqs=gone.seqs,
        )
        for gone in threads(facts).gone
        if gone.node not in told
    ]


def _rank(facts: Facts, hit: LogHit, side: str = "") -> tuple[bool, bool, bool, int, int, int]:
    elsewhere = bool(side) and _side(facts, hit) != side
    return not is_fatal(hit), elsewhere, not hit.upstream, EXPLAINS.index(hit.klass), hit.by_ns, hit.seq


def _side(facts: Facts, hit: LogHit) -> str:
    return hit.side or facts.role(hit.node)


def _cause(facts: Facts, hits: list[LogHit]) -> Cause:
    first = hits[0]
    ours = sent_by_us(facts, first)
    return Cause(
        signature=first.signature,
        title=first.title or first.signature,
        side=_side(facts, first),
        upstream="" if ours else first.upstream,
        fixed_in="" if ours else first.fixed_in,
        line=first.line,
        seqs=tuple(sorted({hit.seq for hit in hits if hit.seq > 0})[:MOST_SEQS]),
        symptom=first.klass in SYMPTOMS and (ours or not first.upstream),
    )


def side_of(facts: Facts, nodes: frozenset[str]) -> str:
    """Which side the first fatal line on one of these nodes blames, else a thread that is gone; empty for neither."""
    return next((_side(facts, hit) for hit in _fatal_on(facts, nodes) if _side(facts, hit)), "") or next(
        (gone.side or facts.role(gone.node) for gone in threads(facts).gone if gone.node in nodes), ""
    )


def told_by(facts: Facts, nodes: frozenset[str]) -> str:
    """The one node in whose own log a fatal line blames its own side; empty where none or several do."""
    found = {hit.node for hit in _fatal_on(facts, nodes) if _side(facts, hit) == facts.role(hit.node)}
    return found.pop() if len(found) == 1 else ""


def _fatal_on(facts: Facts, nodes: frozenset[str]) -> list[LogHit]:
    fatal = (hit for hit in facts.hits if is_fatal(hit) and hit.node in nodes and not dying_words(facts, hit))
    return sorted(fatal, key=lambda hit: _rank(facts, hit))
