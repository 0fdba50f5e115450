"""Nodes on which nothing listens any more, told from outside where no process can be looked at.

A port that refuses every connection to the end has nobody behind it; one that accepts and never answers may have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.judge.deeds import ended_on
from chaos.judge.windows import load_start

if TYPE_CHECKING:
    from chaos.judge.facts import Facts
    from chaos.judge.paths import PathRun

GREEN = 200
REFUSED = "refused"
ENOUGH_REFUSED = 2


@dataclass(frozen=True, slots=True)
class Unheard:
    """A node whose every port that we know refuses us to the end."""

    node: str
    seqs: tuple[int, ...]

    @property
    def text(self) -> str:
        """For people."""
        return f"nothing listens on {self.node} any more"


def processes_unseen(facts: Facts, run: PathRun) -> bool:
    """Whether nobody ever looked at a process of any node on a path."""
    return not any(facts.processes.get(node) for node in facts.nodes_of(run.path))


def unheard(facts: Facts, run: PathRun) -> tuple[Unheard, ...]:
    """Nodes of a path on which its canaries and all health endpoints that answered before are refused to the end."""
    refused = [seen for seen in run.culprits if seen.canary.error.startswith(REFUSED)]
    if not refused or len(refused) < len(run.culprits) or not processes_unseen(facts, run):
        return ()
    found = (_unheard(facts, node, refused[0].begun_ns) for node in facts.nodes_of(run.path))
    return tuple(one for one in found if one is not None)


def _unheard(facts: Facts, node: str, since_ns: int) -> Unheard | None:
    loaded_ns = load_start(facts)
    looks = [seen for seen in facts.liveness if seen.node == node]
    answered = any(seen.status == GREEN for seen in looks if loaded_ns is not None and seen.t_ns <= loaded_ns)
    late = [seen for seen in looks if seen.t_ns >= since_ns]
    if not answered or len(late) < ENOUGH_REFUSED or ended_on(facts, node):
        return None
    if not all(seen.status is None and seen.error.startswith(REFUSED) for seen in late):
        return None
    return Unheard(node, tuple(seen.seq for seen in late))
