"""What was saved of the deployment's inside, and what it shows at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge.deeds import kept_down
from chaos.judge.threads import threads
from chaos.judge.units import SECOND, count, listed
from chaos.model.verdict import Saved

if TYPE_CHECKING:
    from chaos.judge.facts import Facts
    from chaos.model import events as ev


def saved(facts: Facts) -> tuple[Saved, ...]:
    """Every snapshot in the order in which it was begun; those of threads only, too."""
    begun_ns = facts.first_ns or 0
    ordered = sorted(facts.forensics, key=lambda taken: (_when(taken), taken.seq))
    return tuple(
        Saved(
            folder=taken.folder,
            reason=taken.reason,
            detail=taken.detail,
            at_s=round((_when(taken) - begun_ns) / SECOND, 3),
            files=len(taken.files),
            size=taken.size,
            shows=_shows(facts, taken),
            missing=_missing(facts, taken),
        )
        for taken in ordered
    )


def unseen_inside(facts: Facts) -> list[str]:
    """What no snapshot could save."""
    return list(dict.fromkeys(missing for taken in facts.forensics for missing in _missing(facts, taken)))


def _missing(facts: Facts, taken: ev.ForensicsTaken) -> tuple[str, ...]:
    """What a snapshot could not save and why; where that is our own doing, it is said to be ours."""
    ended: dict[tuple[str, str], list[str]] = {}
    others = []
    for missing in taken.missing:
        node, _, rest = missing.partition(": ")
        step = kept_down(facts, node, _when(taken), taken.t_ns)
        if step is not None and step.ends:
            ended.setdefault((node, step.fault), []).append(rest.partition(": ")[0])
        else:
            others.append(missing if step is None else f"{missing} (we had stopped its process: {step.fault})")
    told = (
        f"{node}: {listed(list(dict.fromkeys(what)))} could not be saved, since we had ended its process ({fault})"
        for (node, fault), what in ended.items()
    )
    return (*told, *others)


def _shows(facts: Facts, taken: ev.ForensicsTaken) -> tuple[str, ...]:
    gone: dict[str, list[str]] = {}
    for one in threads(facts).gone:
        if one.at_ns <= taken.t_ns:
            gone.setdefault(one.node, []).append(f"thread {one.thread} gone")
    return tuple(
        f"{node}: " + ", ".join([*gone.get(node, []), f"{count(number, 'stack')} saved"])
        for node, number in taken.stacks.items()
    )


def _when(taken: ev.ForensicsTaken) -> int:
    return taken.t_ns if taken.src_t_ns is None else taken.src_t_ns
