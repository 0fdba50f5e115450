"""What we did to the nodes ourselves: which processes we ended on purpose, and which we hold stopped.

A process's life is told by its pid and by the children it was seen with: who ends a child ends the life it belongs to,
because engines go down with their children. What dies or is replaced after that is our doing; the process that takes
its place is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.judge.facts import Facts
    from chaos.model import events as ev

DYING_S = 5.0
"""Lines of a process that we ended are read up to this long after its end was verified."""
_MEASURED = {"applied": "verified", "reverted": "revert-verified"}
HELD = frozenset({"stopped", "tracing-stop"})
WAVES = ("kill", "sham")
"""Faults of our own clients, that end no process of a node; an imported `kill` without a group does."""


def ended_by_us(facts: Facts, node: str, pids: Iterable[int]) -> bool:
    """Whether we ended a life on this node that one of these processes (a main one or its children) belongs to."""
    life = set(pids)
    return any(not step.pids or life & set(step.pids) for step in _ending(facts, node))


def ended_on(facts: Facts, node: str) -> bool:
    """Whether we ever ended a process of this node."""
    return bool(_ending(facts, node))


def may_have_ended(facts: Facts) -> bool:
    """Whether events are missing from the record, and what we did to a node may be among them.

    A record that merely ends early lacks nothing of what came before.
    """
    known = facts.run is not None and all(fault.kind in WAVES and fault.group for fault in facts.plan.faults)
    return facts.lost_after(0) and not known


def held_by_us(facts: Facts, node: str) -> bool:
    """Whether a process of this node is stopped as we left it."""
    looks = facts.processes.get(node)
    if not looks or not looks[-1].alive or looks[-1].state not in HELD:
        return False
    return any(step.reversal != "none" for step in facts.steps if step.ok and _applied_to(step, node))


def gone_ns(facts: Facts, cycle: int, fault: str) -> int | None:
    """When a fault of ours was last measured to be gone; None: it stands, as far as anybody knows."""
    undone = [
        step
        for step in facts.steps
        if (step.cycle, step.fault) == (cycle, fault) and step.stage in ("reverted", "revert-verified")
    ]
    return undone[-1].t_ns if undone and undone[-1].ok and undone[-1].stage == "revert-verified" else None


def kept_down(facts: Facts, node: str, from_ns: int, to_ns: int) -> ev.FaultStep | None:
    """The step of ours for which a node could not answer, or not fully, at some moment between two others.

    That is from when we ended or stopped its process until that was measured to be undone, or another process was seen.
    """
    for step in facts.steps:
        stages = _MEASURED if step.ends else ("applied",)
        ours = step.ends or (step.kind == "signal" and step.reversal != "none")
        if not (ours and step.ok and step.stage in stages and node in step.nodes and step.t_ns <= to_ns):
            continue
        if from_ns <= _back_ns(facts, step, node, to_ns):
            return step
    return None


def _back_ns(facts: Facts, step: ev.FaultStep, node: str, to_ns: int) -> int:
    """When a node was whole again after a step that took it down; `to_ns` where that was not known by then."""
    if step.kind == "restart":
        same = (step.cycle, step.fault, _MEASURED[step.stage])
        back = [one.t_ns for one in facts.steps if one.ok and (one.cycle, one.fault, one.stage) == same]
    elif step.ends:
        looks = facts.processes.get(node, ())
        back = [look.t_ns for look in looks if look.t_ns > step.t_ns and look.alive and look.pid not in step.pids]
    else:
        gone = gone_ns(facts, step.cycle, step.fault)
        back = [] if gone is None else [gone]
    return min([*back, to_ns])


def dying_words(facts: Facts, hit: ev.LogHit) -> bool:
    """Whether a line was logged while we ended the node's process: a shutdown has a traceback of its own."""
    for step in _ending(facts, hit.node):
        ends = [
            other.t_ns
            for other in facts.steps
            if (other.cycle, other.fault, other.stage) == (step.cycle, step.fault, _MEASURED[step.stage])
        ]
        if ends and step.t_ns <= hit.by_ns <= max(ends) + DYING_S * SECOND:
            return True
    return False


def sent_by_us(facts: Facts, hit: ev.LogHit) -> bool:
    """Whether a node complains of what we had sent to it: no bug of its peers made it, whatever the line says.

    That is a frame of our own, or any message of a peer that we restarted as a variant which speaks otherwise.
    """
    kinds = {fault.id: fault.kind for fault in facts.plan.faults}
    for step in facts.steps:
        if not step.ok or step.stage != "applied" or step.t_ns > hit.by_ns:
            continue
        kind = kinds.get(step.fault, step.kind)
        if (kind == "foreign-frame" and hit.node in step.nodes) or (kind == "restart" and step.reversal == "restart"):
            return True
    return False


def hung_up_ns(facts: Facts) -> int | None:
    """When we first hung up on an open request while tearing down; None when we never had to.

    That is one more disconnect, and not one of the faults that the run is about: what the target does of it afterwards
    cannot be held against those.
    """
    teardown_ns = facts.phase_start("teardown")
    return min((e.t_ns for e in facts.hung_up if teardown_ns is not None and e.t_ns >= teardown_ns), default=None)


def _ending(facts: Facts, node: str) -> list[ev.FaultStep]:
    """Steps that ended processes of the node: the fault itself, and its undoing by one more restart."""
    stages = ("applied", "reverted")
    return [step for step in facts.steps if step.ends and step.ok and step.stage in stages and node in step.nodes]


def _applied_to(step: ev.FaultStep, node: str) -> bool:
    return step.stage == "applied" and node in step.nodes
