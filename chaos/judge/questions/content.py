"""Did any answer carry wrong content: which, whose text, on which paths, before or after which fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge.content import content
from chaos.judge.questions.answers import Answered, Question, fact, no, not_applicable, unknown, yes
from chaos.judge.units import between, count, listed
from chaos.model.outcomes import Outcome

if TYPE_CHECKING:
    from chaos.judge.case import Case
    from chaos.judge.content import Wrong
    from chaos.model.verdict import Evidence

PROMISED = ("echo", "known-answer")
"""What the target's owner may have said of its answers."""
MOST_TOLD = 5
"""Wrong answers that are told one by one; the rest are counted."""


def _content(case: Case) -> Answered:
    """Someone else's text is always wrong; what else counts is what the run showed to be right without a fault."""
    seen = content(case.facts)
    if seen.wrong:
        told = [_told(case, wrong) for wrong in seen.wrong[:MOST_TOLD]]
        return yes(_summary(case, seen.wrong), *told, outcome=Outcome.CORRUPTED)
    if not seen.checked and case.facts.plan.content in PROMISED:
        return unknown(fact("the target is said to answer what can be checked, and no answer was checked"))
    if not seen.checked:
        return not_applicable(fact("the content of answers was not checked"))
    if seen.broken_promise:
        text = "lacked the codeword before anything was broken, though the target is said to repeat it"
        seqs = [answer.seq for answer in seen.broken_promise]
        return unknown(fact(f"{count(len(seqs), 'answer')} {text}", seqs))
    told = [fact(text) for text in seen.uncounted]
    if not seen.comparable:
        text = "held nobody else's text; more cannot be told of what this target answers"
        return not_applicable(fact(f"{count(len(seen.checked), 'answer')} {text}"), *told)
    return no(fact(f"{count(len(seen.checked), 'answer')} checked, none wrong"), *told)


def _summary(case: Case, wrong: tuple[Wrong, ...]) -> Evidence:
    """How many, on which paths, and the node that all of them share while others answer rightly."""
    paths = list(dict.fromkeys(w.answer.path for w in wrong))
    text = f"{count(len(wrong), 'answer')} carried wrong content ({listed(paths)})"
    return fact(text + _side(case, paths), [w.answer.seq for w in wrong])


def _side(case: Case, paths: list[str]) -> str:
    """The one node that every wrong path leads over and no right one does; empty where nothing tells."""
    over = {path.id: set(path.nodes) for path in case.facts.paths() if path.nodes}
    if not paths or not all(path in over for path in paths):
        return ""
    right = [nodes for path, nodes in over.items() if path not in paths]
    suspects = set.intersection(*(over[path] for path in paths)).difference(*right)
    return f": all of them over {suspects.pop()}" if right and len(suspects) == 1 else ""


def _told(case: Case, wrong: Wrong) -> Evidence:
    answer = wrong.answer
    return fact(f"{answer.req} {wrong.text}{_when(case, answer.begun_ns, answer.ended_ns)}", [answer.seq])


def _when(case: Case, begun_ns: int, ended_ns: int) -> str:
    """Before or after which fault: the last one that hit before the answer was complete."""
    hits = sorted(
        [(fired.ordered_ns, f"{wave} of cycle {cycle}") for (cycle, wave), fired in case.facts.fired.items()]
        + [(s.t_ns, f"{s.fault} of cycle {s.cycle}") for s in case.facts.steps if s.stage == "applied" and s.ok]
    )
    earlier = [hit for hit in hits if hit[0] <= ended_ns]
    if not earlier:
        return ", before any fault" if hits else ""
    at_ns, name = earlier[-1]
    return f", {between(at_ns, ended_ns)} after {name}" + (", which it was sent before" if begun_ns < at_ns else "")


CONTENT = (Question("content-wrong", "Did any answer carry wrong content?", _content),)
