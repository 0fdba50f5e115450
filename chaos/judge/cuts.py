"""Ways between nodes that we shut ourselves, and what cannot be reached because of that.

Only a cut that stands while a window is watched excuses anything. One that we take back after a time is over before
its window begins, and afterwards everything must serve again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from chaos.judge.deeds import gone_ns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from chaos.judge.facts import Facts
    from chaos.judge.windows import Window
    from chaos.model import events as ev


@dataclass(frozen=True, slots=True)
class Cut:
    """Nodes on both sides of a way that we shut."""

    off: frozenset[str]
    from_: frozenset[str]
    at_ns: int
    until_ns: int | None  # when it was measured to be taken back; None: not that we know
    seq: int

    @property
    def what(self) -> str:
        """For people."""
        return f"{' and '.join(sorted(self.off))} cut off from {' and '.join(sorted(self.from_))}"

    def parts(self, one: str, other: str) -> bool:
        """Whether these two cannot reach each other."""
        return (one in self.off and other in self.from_) or (other in self.off and one in self.from_)


def standing(facts: Facts, window: Window) -> tuple[Cut, ...]:
    """The cuts that stand in a window after what it is about has happened."""
    made = [cut for step in facts.steps for cut in _cut(facts, step)]
    return tuple(
        cut for cut in made if cut.at_ns < window.until_ns and (cut.until_ns is None or cut.until_ns > window.anchor_ns)
    )


def unreachable(facts: Facts, nodes: Sequence[str], down: Collection[str], cuts: Sequence[Cut]) -> frozenset[str]:
    """Of the nodes of a path, those that no request can pass: without a way to some node of every other role.

    All of them, where no way through the path is left.
    """
    by_role: dict[str, list[str]] = {}
    for node in nodes:
        if node not in down:
            by_role.setdefault(facts.role(node) or node, []).append(node)
    left = set(_connected(list(by_role.values()), cuts))
    return frozenset(node for alike in by_role.values() for node in alike if node not in left)


def _connected(roles: list[list[str]], cuts: Sequence[Cut]) -> Iterable[str]:
    """The nodes that are part of some choice of one node for each role with a way between any two of them."""
    if not cuts:
        return [node for alike in roles for node in alike]
    found: set[str] = set()
    for node in (node for alike in roles for node in alike):
        if node not in found:
            found.update(_choice(roles, [node], cuts))
    return found


def _choice(roles: list[list[str]], chosen: list[str], cuts: Sequence[Cut]) -> list[str]:
    """A choice that holds what is chosen already; empty when there is none."""
    left = [alike for alike in roles if not set(alike) & set(chosen)]
    if not left:
        return chosen if all(not _parted(one, other, cuts) for one, other in combinations(chosen, 2)) else []
    for node in left[0]:
        if all(not _parted(node, other, cuts) for other in chosen) and (whole := _choice(roles, [*chosen, node], cuts)):
            return whole
    return []


def _parted(one: str, other: str, cuts: Sequence[Cut]) -> bool:
    return any(cut.parts(one, other) for cut in cuts)


def _cut(facts: Facts, step: ev.FaultStep) -> list[Cut]:
    """What a step cut off, if that is what it did."""
    if step.stage != "applied" or not step.ok or not step.cut_off:
        return []
    until_ns = gone_ns(facts, step.cycle, step.fault)
    return [Cut(frozenset(step.cut_off), frozenset(step.cut_from), step.t_ns, until_ns, step.seq)]
