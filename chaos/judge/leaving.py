"""What a run that was stopped did to the target on its way out: requests of ours that we hung up on ourselves.

That is a disturbance of the same kind as a wave. A run that goes to its end watches once more after it; one that was
stopped does not, so what became of the paths since is unknown, whatever they showed until then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.judge.units import between, ns
from chaos.model.failures import failure_words
from chaos.model.outcomes import RunStatus

if TYPE_CHECKING:
    from chaos.judge.facts import Canary, Facts
    from chaos.model import events as ev

LOST_WAY = "way"
"""The error of a request that ended because our own way there broke: nobody hung up on it."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The requests that a stopped run hung up on at its end: since when, and whether a person could not wait."""

    at_ns: int
    requests: tuple[ev.RequestEnded, ...]
    at_once: bool

    @property
    def users(self) -> tuple[ev.RequestEnded, ...]:
        """Those of the load."""
        return tuple(one for one in self.requests if one.kind == "load")

    @property
    def waiting(self) -> int:
        """Requests of users that had no token yet, as far as their client could still tell."""
        return sum(not one.tokens and one.src_t_ns is not None for one in self.users)

    @property
    def streaming(self) -> int:
        """Requests of users that had tokens."""
        return sum(one.tokens > 0 for one in self.users)

    @property
    def canaries(self) -> int:
        """Fresh requests of ours."""
        return len(self.requests) - len(self.users)


def cut_short(facts: Facts) -> Cut | None:
    """What a stopped run hung up on; None where it hung up on nothing, or went to its end.

    A canary that is overdue is hung up on at the end of every run; so it counts only where it was not waited for.
    """
    left_ns, teardown_ns = facts.phase_start("leaving"), facts.phase_start("teardown")
    stopped = facts.ended is not None and facts.ended.status == RunStatus.ABORTED
    since_ns = teardown_ns if stopped and teardown_ns is not None else left_ns
    if since_ns is None:
        return None
    hung_up = [
        one
        for one in facts.hung_up
        if one.error != LOST_WAY
        and one.t_ns >= since_ns
        and (one.kind == "load" or (left_ns is not None and one.t_ns >= left_ns))
    ]
    if not hung_up:
        return None
    return Cut(min(one.t_ns for one in hung_up), tuple(hung_up), at_once=left_ns is not None)


def looks_since(facts: Facts, path: str, cut: Cut) -> tuple[Canary, ...]:
    """The fresh requests that were sent on a path after we hung up."""
    return tuple(canary for canary in facts.by_path.get(path, ()) if canary.begun_ns > cut.at_ns)


def shown_since(facts: Facts, path: str, cut: Cut, needed: int) -> bool:
    """Whether enough of them passed, past the aborts that we made, to show that the path serves."""
    settled_ns, deadline_ns = cut.at_ns + ns(facts.plan.quiet_s), ns(facts.plan.canary_deadline_s)
    looks = [canary for canary in looks_since(facts, path, cut) if canary.begun_ns >= settled_ns]
    good = [c for c in looks if c.ok and c.ended_ns is not None and c.ended_ns - c.begun_ns <= deadline_ns]
    return len(good) == len(looks) >= needed


def since_then(facts: Facts, path: str, cut: Cut) -> str:
    """What is known of a path since, in a clause."""
    looks = looks_since(facts, path, cut)
    if not looks:
        return "nobody looked since"
    last = max(looks, key=lambda canary: (canary.begun_ns, canary.req))
    when = f"one fresh request {between(cut.at_ns, last.begun_ns)} later"
    if last.ok:
        return f"{when} was answered, which is too little to tell"
    if last.ended_ns is None or last.ours:
        waited = between(last.begun_ns, last.ended_ns or facts.last_ns or last.begun_ns)
        return f"{when} had no answer in the {waited} until we left"
    return f"{when} failed: {failure_words(last.error)}"
