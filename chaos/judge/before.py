"""What was already lost before anything was broken: a path that loses requests by itself cannot be broken by us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.judge.canaries import Away, Fate, Seen, look
from chaos.judge.units import ns
from chaos.judge.windows import first_fault_ns, load_start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.judge.facts import Facts
    from chaos.model import events as ev

STUCK_TIMES = 3
"""A canary was stuck before the load when it had by then waited this many times as long as the slowest that passed."""


@dataclass(frozen=True, slots=True)
class LostBefore:
    """Canaries of the baseline that were lost on a path that had served before."""

    lost: tuple[Seen, ...]
    asked: int  # canaries of the baseline from the first pass on

    @property
    def text(self) -> str:
        """For people."""
        return f"{len(self.lost)} of {self.asked} fresh requests did not complete before anything was broken either"


def lost_before(facts: Facts, path: ev.Path, *, under_load: bool = False) -> LostBefore:
    """Judged with the whole record: whether a canary ever ended may show only long after load began.

    `under_load`: those that failed up to the first fault, too; a router that turns requests away when busy does so
    after it, too. One that hangs under load may be the very wedge.
    What our own way there explains is no loss of the target's. One that was sent right before the load and that the
    load or the faults may have swallowed is not counted. Failures before the first pass are those of a target that was
    still starting.
    """
    loaded_ns = load_start(facts)
    fault_ns = first_fault_ns(facts) if under_load else None
    until_ns = loaded_ns if fault_ns is None else max(fault_ns, loaded_ns or 0)
    begun = [c for c in facts.by_path.get(path.id, ()) if until_ns is not None and c.begun_ns < until_ns]
    if loaded_ns is None or until_ns is None or not begun:
        return LostBefore((), 0)
    deadline_ns = ns(facts.plan.canary_deadline_s)
    seen = [look(c, facts.last_ns or loaded_ns, deadline_ns) for c in sorted(begun, key=lambda c: (c.begun_ns, c.req))]
    passes = [s for s in seen if s.fate is Fate.PASS and s.until_ns <= loaded_ns]
    if not passes:
        return LostBefore((), 0)
    away = Away(facts)
    since = [s for s in seen if s.begun_ns >= passes[0].begun_ns and not away.explains(s)]
    patience_ns = STUCK_TIMES * max(s.until_ns - s.begun_ns for s in passes)
    before = [s for s in since if s.begun_ns < loaded_ns]
    failed = [s for s in since if s.begun_ns >= loaded_ns and s.fate is Fate.FAILED and s.until_ns <= until_ns]
    return LostBefore((*_stuck(before, loaded_ns, patience_ns), *failed), len(since))


def _stuck(seen: Sequence[Seen], loaded_ns: int, patience_ns: int) -> tuple[Seen, ...]:
    return tuple(s for s in seen if s.fate.dead and (s.until_ns <= loaded_ns or loaded_ns - s.begun_ns > patience_ns))
