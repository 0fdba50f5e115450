"""Which processes are dead at the end, held by us or replaced, and which of that was our own doing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from chaos.judge.deeds import HELD, ended_by_us, held_by_us, may_have_ended
from chaos.judge.units import SECOND, listed, span
from chaos.judge.windows import load_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from chaos.judge.facts import Facts
    from chaos.model import events as ev

GONE = frozenset({"zombie", "dead"})
SAME_START_S = 2.0
"""A process's start time is computed from the boot time and may move by a clock adjustment."""
MOST_NAMED = 3
"""Dead or replaced children that are named; a tensor-parallel engine has dozens."""
SETTLED_LOOKS = 3
SETTLED_S = 10.0
"""A child that began only after our first look is missed when it was seen this often, over this long."""
MAY_BE_OURS = "which may be our doing: events are missing from the record"
CONSTANT_LOOKS = 2
"""Looks before the load that must all have met the same child before another one in its place says anything."""


@dataclass(frozen=True, slots=True)
class Dead:
    """A process that is dead at the end and was not before the load. `ours`: we ended it, or may have (`unsure`)."""

    node: str
    what: str
    at_ns: int  # when it was first seen dead
    seqs: tuple[int, ...]
    ours: bool
    child: str = ""  # its name, where its parent lives
    parent: str = ""
    unsure: bool = False  # events are missing: nobody can say that we did not do it

    @property
    def whose(self) -> str:
        """For people: `which is our doing`."""
        return MAY_BE_OURS if self.unsure else "which is our doing"


@dataclass(frozen=True, slots=True)
class Replaced:
    """A process that is another one at the end than before the load."""

    node: str
    what: str
    at_ns: int  # when the one of the end was first seen
    seqs: tuple[int, ...]
    ours: bool
    unsure: bool = False  # as of the dead


_One = TypeVar("_One", Dead, Replaced)


def last_death_ns(facts: Facts) -> int | None:
    """When the last process that died without our doing was first seen dead or replaced; None where none did."""
    found: list[Dead | Replaced] = [*dead_processes(facts), *replaced_processes(facts)]
    return max((one.at_ns for one in found if not one.ours), default=None)


def dead_processes(facts: Facts) -> tuple[Dead, ...]:
    """Dead at the last look, on each node in the deployment's order."""
    loaded_ns = load_start(facts)
    found = []
    for node, looks in _by_node(facts):
        last = looks[-1]
        before = [look for look in looks if loaded_ns is not None and look.t_ns <= loaded_ns]
        ours = ended_by_us(facts, node, _life(looks, last.pid))
        if not _runs(last):
            if any(not _runs(look) for look in before[-1:]):
                continue  # it was dead before we began
            first = _first_of_final(looks, _gone)
            what = f"{_process(last, node)} is {last.state or 'dead'}"
            found.append(Dead(node, what, first.t_ns, (first.seq, last.seq), ours))
            continue
        for child in _dead_children(before or looks, last):
            if not _settled(child, before or looks):
                continue
            first = _first_of_final(looks, partial(_lacks, child.pid))
            parent = f"parent {last.pid}" if last.pid > 0 else "parent"
            name = _named(child)
            what = f"child {name} of {node} is dead while its {parent} lives"
            found.append(Dead(node, what, first.t_ns, (first.seq, last.seq), ours, name, parent))
    return tuple(map(_doubted, found)) if may_have_ended(facts) else tuple(found)


def _doubted(one: _One) -> _One:
    """Not to be held against anybody, since what says that it was our doing may be missing."""
    return one if one.ours else replace(one, ours=True, unsure=True)


def folded(dead: Iterable[Dead]) -> tuple[Dead, ...]:
    """Dead children of one parent as one, for people: the ranks of an engine go down together."""
    alike: dict[tuple[str, ...], list[Dead]] = {}
    for one in dead:
        alike.setdefault((one.node, one.parent) if one.child else (one.node, "", one.what), []).append(one)
    return tuple(_together(all_) if len(all_) > 1 and all_[0].child else all_[0] for all_ in alike.values())


def _together(dead: Sequence[Dead]) -> Dead:
    first, most = dead[0], dead[:MOST_NAMED]
    names = [one.child for one in most] + [f"{len(dead) - len(most)} more"] * (len(dead) > len(most))
    what = f"{len(dead)} children of {first.node} are dead while their {first.parent} lives: {listed(names)}"
    return replace(
        first,
        what=what,
        at_ns=min(one.at_ns for one in dead),
        seqs=tuple(sorted({seq for one in dead for seq in one.seqs})),
    )


def passing_children(facts: Facts) -> tuple[str, ...]:
    """Children that are gone and were not there for long before the load: helpers come and go, and accuse nobody."""
    loaded_ns = load_start(facts)
    told = []
    for node, looks in _by_node(facts):
        before = [look for look in looks if loaded_ns is not None and look.t_ns <= loaded_ns] or looks
        if _runs(looks[-1]):
            told += [
                f"child {_named(child)} of {node} came and went"
                for child in _dead_children(before, looks[-1])
                if not _settled(child, before)
            ]
    return tuple(told)


def down_by_us(facts: Facts) -> tuple[Dead, ...]:
    """What cannot serve at the end because of us: a process that we ended and nobody brought back, or one we hold."""
    ended = [dead for dead in dead_processes(facts) if dead.ours]
    held = [
        Dead(
            node,
            f"{_process(last, node)} is {last.state}",
            _first_of_final(looks, _rests).t_ns,
            (last.seq,),
            True,
        )
        for node, looks in _by_node(facts)
        if held_by_us(facts, node)
        for last in looks[-1:]
    ]
    return (*ended, *held)


def replaced_processes(facts: Facts) -> tuple[Replaced, ...]:
    """Alive at the last look, but not the process that the node began with, or not the children that it had."""
    begun = {node.id: node for node in (facts.first_deployment.nodes if facts.first_deployment else ())}
    found = []
    for node, all_looks in _by_node(facts):
        looks = [look for look in all_looks if look.pid > 0]  # without a number nobody can tell one from another
        if not looks or not _runs(all_looks[-1]):
            continue
        last, first = looks[-1], looks[0]
        pid, started = first.pid, first.start_time
        if node in begun and begun[node].pid is not None:
            pid, started = begun[node].pid or pid, begun[node].start_time
        moved = started is not None and last.start_time is not None and abs(started - last.start_time) > SAME_START_S
        if pid != last.pid or moved:
            how = f"pid {pid} before, {last.pid} at the end"
            if pid == last.pid and started is not None and last.start_time is not None:
                how = f"pid {pid} again, started {span(last.start_time - started)} later"
            what = f"{node} is another process now ({how})"
            lives = [pid, *(look.pid for look in looks)]
            changes = [before for before, after in pairwise(lives) if before != after] or [pid]
            ours = all(ended_by_us(facts, node, _life(looks, before)) for before in changes)
            newest = _first_of_final(looks, partial(_same, last))
            found.append(Replaced(node, what, newest.t_ns, (first.seq, last.seq), ours))
        else:
            found += _replaced_children(facts, node, looks)
    return tuple(map(_doubted, found)) if may_have_ended(facts) else tuple(found)


def _replaced_children(facts: Facts, node: str, looks: list[ev.ProcessSeen]) -> list[Replaced]:
    """Children of a main process that stayed which others took the place of, all as one: ranks start again together."""
    loaded_ns, last = load_start(facts), looks[-1]
    before = [look for look in looks if loaded_ns is not None and look.t_ns <= loaded_ns]
    if len(before) < CONSTANT_LOOKS:
        return []
    missed = _dead_children(before, last)
    gone = [child for child in _constant_children(before) if _lacks(child.pid, last) and child not in missed]
    if not gone:
        return []
    what = f"child {_named(gone[0])} of {node} is another process now"
    if len(gone) > 1:
        named = [*map(_named, gone[:MOST_NAMED])] + [f"{len(gone) - MOST_NAMED} more"] * (len(gone) > MOST_NAMED)
        what = f"{len(gone)} children of {node} are other processes now: {listed(named)}"
    newest = max((_first_of_final(looks, partial(_lacks, child.pid)) for child in gone), key=lambda look: look.t_ns)
    ours = ended_by_us(facts, node, _life(looks, last.pid))
    return [Replaced(node, what, newest.t_ns, (before[-1].seq, newest.seq, last.seq), ours)]


def _constant_children(before: list[ev.ProcessSeen]) -> list[ev.Child]:
    """Children whose name was borne by the same living ones at every look: helpers come and go, and accuse nobody."""
    borne = [Counter((child.name, child.pid) for child in look.children if child.alive) for look in before]
    changed = {name for seen in borne for name, _ in (seen - borne[-1]) + (borne[-1] - seen)}
    # Who saw no pid numbers the children that there are: the same number is not the same child.
    return [child for child in before[-1].children if child.alive and child.pid > 0 and child.name not in changed]


def _life(looks: list[ev.ProcessSeen], pid: int) -> set[int]:
    """A main process and every child it was seen with."""
    return {pid} | {child.pid for look in looks if look.pid == pid for child in look.children}


def _by_node(facts: Facts) -> list[tuple[str, list[ev.ProcessSeen]]]:
    order = [node.id for node in facts.nodes]
    order += [node for node in facts.processes if node not in order]
    return [(node, facts.processes[node]) for node in order if facts.processes.get(node)]


def _process(look: ev.ProcessSeen, node: str) -> str:
    return f"process {look.pid} of {node}" if look.pid > 0 else f"the process of {node}"


def _named(child: ev.Child) -> str:
    """A child's name, with its pid where that is known."""
    return f"{child.name} (pid {child.pid})" if child.pid > 0 else child.name


def _runs(look: ev.ProcessSeen) -> bool:
    return look.alive and look.state not in GONE


def _gone(look: ev.ProcessSeen) -> bool:
    return not _runs(look)


def _rests(look: ev.ProcessSeen) -> bool:
    return look.state in HELD


def _lacks(pid: int, look: ev.ProcessSeen) -> bool:
    return all(child.pid != pid or not child.alive for child in look.children)


def _dead_children(before: list[ev.ProcessSeen], last: ev.ProcessSeen) -> list[ev.Child]:
    """Children that were there before the load and are not at the end, with none of their name in their place.

    Helpers come and go; only a child that was there at the last look before the load, or that is shown as dead itself,
    is missed.
    """
    known = {child.pid: child for child in before[-1].children}
    shown = {child.pid: child for child in last.children}
    living = Counter(child.name for child in last.children if child.alive)
    wanted = Counter(child.name for child in known.values() if child.alive)
    return [
        child
        for pid, child in known.items()
        if (pid not in shown or not shown[pid].alive)
        and (child.alive or before[-1] is last)
        and living[child.name] < max(wanted[child.name], 1)
    ]


def _settled(child: ev.Child, before: list[ev.ProcessSeen]) -> bool:
    """Whether a child belongs to its node: there from the first look, or seen often enough over a long enough time."""
    seen = [look.t_ns for look in before if any(one.pid == child.pid for one in look.children)]
    from_the_first = bool(seen) and seen[0] == before[0].t_ns
    return from_the_first or (len(seen) >= SETTLED_LOOKS and seen[-1] - seen[0] >= SETTLED_S * SECOND)


def _same(one: ev.ProcessSeen, other: ev.ProcessSeen) -> bool:
    """Whether two looks met one process; in a container each has the pid of the one before."""
    known = one.start_time is not None and other.start_time is not None
    moved = known and abs((one.start_time or 0) - (other.start_time or 0)) > SAME_START_S
    return one.pid == other.pid and not moved


def _first_of_final(looks: list[ev.ProcessSeen], holds: Callable[[ev.ProcessSeen], bool]) -> ev.ProcessSeen:
    """The first look of the final stretch in which something holds."""
    first = looks[-1]
    for look in reversed(looks):
        if not holds(look):
            break
        first = look
    return first
