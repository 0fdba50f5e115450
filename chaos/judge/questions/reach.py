"""Whether what answered us before anything was broken still answers at the end: who cannot be asked is not well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge.questions.answers import Answered, Question, fact, not_applicable, unknown, yes
from chaos.judge.units import listed
from chaos.judge.windows import load_start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.judge.case import Case

GREEN = 200
ENOUGH_SILENT = 3
"""Readings in a row up to the end; one that was missed is no news."""

Look = tuple[int, bool, int]
"""When somebody asked, whether the answer was good, and the event that says so."""


def _still_answer(case: Case) -> Answered:
    """A worker that is gone fails nobody whose requests go elsewhere; only that it no longer answers shows it."""
    loaded_ns = load_start(case.facts)
    asked = {what: looks for what, looks in _asked(case).items() if what[0] not in case.down_nodes()}
    unasked = [] if loaded_ns is None else _unasked(case, loaded_ns)
    if loaded_ns is None or not (asked or unasked):
        return not_applicable(fact("no endpoint of a node was asked before and after load"))
    told = [fact(f"nobody asked a health endpoint of {listed(unasked)} since load began")] if unasked else []
    for (node, what), looks in asked.items():
        after = [look for look in looks if look[0] > loaded_ns]
        silent = _silent_to_the_end(after)
        if any(good for at_ns, good, _ in looks if at_ns <= loaded_ns) and silent:
            times = f"{len(silent)} times in a row up to the end" if len(silent) > 1 else "when it was last asked"
            text = f"{what} of {node} answered before anything was broken, and not {times}"
            told.append(fact(text, [seq for _, _, seq in silent]))
    if told:
        return unknown(*told)
    return yes(fact(f"what answered before on {listed(list(dict.fromkeys(node for node, _ in asked)))} answers still"))


def _unasked(case: Case, loaded_ns: int) -> list[str]:
    """Nodes whose health could have been asked by us, and was not: that they still answer is not known."""
    if case.facts.imported:
        return []
    asked = {seen.node for seen in case.facts.liveness if seen.t_ns > loaded_ns}
    blind = [node.id for node in case.facts.nodes if "liveness" in node.observes and node.id not in asked]
    return [node for node in blind if node not in case.down_nodes()]


def _asked(case: Case) -> dict[tuple[str, str], list[Look]]:
    facts = case.facts
    asked: dict[tuple[str, str], list[Look]] = {}
    for seen in facts.liveness:
        asked.setdefault((seen.node, seen.endpoint), []).append((seen.t_ns, seen.status == GREEN, seen.seq))
    for node, scrapes in facts.scrapes.items():
        asked[node, "the metrics endpoint"] = [(scrape.t_ns, scrape.ok, scrape.seq) for scrape in scrapes]
    return asked


def _silent_to_the_end(after: Sequence[Look]) -> list[Look]:
    """The final stretch without a good answer, where it is long enough or nothing else was heard."""
    last_good = max((at for at, (_, good, _) in enumerate(after) if good), default=-1)
    silent = list(after[last_good + 1 :])
    return silent if len(silent) >= ENOUGH_SILENT or len(silent) == len(after) else []


REACH = (
    Question("still-answer", "Does every node still answer that answered before anything was broken?", _still_answer),
)
