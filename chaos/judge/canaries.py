"""What one canary says: in time, late, failed, unfinished, or nothing, and whether the failure may be our own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from chaos.judge.left import covered_ns, left_behind
from chaos.judge.units import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chaos.judge.facts import Canary, Facts

LAG_SHARE = 0.1
"""A liveness claim needs our own lag below this share of its deadline (DESIGN §7)."""
STARVED_BEFORE_NS = 30 * SECOND
"""Routers give a server up after a few late health checks."""
MOSTLY = 0.5
WAYS = ("way", "way-late")
"""Probes that tell when our own way to a server was cut, or let nothing through."""
REFERENCE_NEAR_NS = 2 * SECOND
"""A quick failure may fall between two readings of the reference canary; those this near count."""


class Fate(Enum):
    """What became of a canary, as far as could be seen."""

    PASS = auto()  # completed correctly within its deadline
    LATE = auto()  # completed correctly after it
    FAILED = auto()  # ended by the server or by an error
    UNFINISHED = auto()  # past its deadline and not ended (or hung up by us after it)
    YOUNG = auto()  # neither ended nor past its deadline: no evidence yet
    VOID = auto()  # hung up by us before its deadline: no evidence

    @property
    def bad(self) -> bool:
        """A fresh request was not answered as it must be."""
        return self in (Fate.LATE, Fate.FAILED, Fate.UNFINISHED)

    @property
    def dead(self) -> bool:
        """A fresh request was not answered at all, or wrongly."""
        return self in (Fate.FAILED, Fate.UNFINISHED)

    @property
    def answered(self) -> bool:
        """A fresh request was completed correctly, whenever."""
        return self in (Fate.PASS, Fate.LATE)


@dataclass(frozen=True, slots=True)
class Seen:
    """A canary as seen at the horizon. `until_ns` is how far in time it speaks: its end, or the horizon."""

    canary: Canary
    fate: Fate
    until_ns: int
    doubtful: bool = False

    @property
    def begun_ns(self) -> int:
        """When it was sent."""
        return self.canary.begun_ns

    @property
    def age_s(self) -> float:
        """How long it took, or has been waiting."""
        return (self.until_ns - self.begun_ns) / SECOND

    @property
    def seqs(self) -> tuple[int, ...]:
        """The events that tell of it."""
        return tuple(sorted(self.canary.seqs))


def look(canary: Canary, horizon_ns: int, deadline_ns: int) -> Seen:
    """The fate of a canary as known at `horizon_ns`."""
    ended = canary.ended_ns if canary.ended_ns is not None and canary.ended_ns <= horizon_ns else None
    until = horizon_ns if ended is None else ended
    overdue = until - canary.begun_ns > deadline_ns
    if ended is None:
        fate = Fate.UNFINISHED if overdue else Fate.YOUNG
    elif canary.ok:
        fate = Fate.LATE if overdue else Fate.PASS
    elif canary.ours:
        fate = Fate.UNFINISHED if overdue else Fate.VOID
    else:
        fate = Fate.FAILED
    return Seen(canary, fate, until)


class Away:
    """When our own way to servers was cut, or let nothing through, and what came of that alone."""

    def __init__(self, facts: Facts) -> None:
        self._gaps = [lost for lost in facts.lost if lost.probe in WAYS]
        self._deadline_ns = int(facts.plan.canary_deadline_s * SECOND)
        self._left = left_behind(facts)
        self._asked = {
            path.id: [node for node in facts.nodes_of(path) if path.kind != "routed" or facts.role(node) == "router"]
            for path in facts.paths()
        }

    def explains(self, seen: Seen) -> bool:
        """Whether the way to a server that a canary was sent to was gone for so long that it came of this."""
        if not self._gaps or seen.fate not in (Fate.LATE, Fate.UNFINISHED):
            return False  # what broke with the way in time was ended by us, and says nothing
        away = [
            sum(
                max(min(gap.to_ns, seen.until_ns) - max(gap.from_ns, seen.begun_ns), 0)
                for gap in self._gaps
                if gap.node == node
            )
            for node in self._asked.get(seen.canary.path, ())
        ]
        longest = max(away, default=0)
        return longest > 0 and seen.until_ns - seen.begun_ns - longest <= self._deadline_ns

    def keeps_busy(self, seen: Seen) -> bool:
        """Whether it may have waited for, or been turned away because of, what a cut left behind on the target.

        A port that refuses us has nobody behind it, however busy its peers are.
        """
        if seen.fate is Fate.FAILED:
            refused = seen.canary.error.startswith("refused")
            return not refused and any(left.from_ns <= seen.until_ns <= left.until_ns for left in self._left)
        if not seen.fate.bad:
            return False
        covered = covered_ns(self._left, seen.begun_ns, seen.until_ns)
        return covered > 0 and seen.until_ns - seen.begun_ns - covered <= self._deadline_ns


class Doubt:
    """Whether our own lag, a reference canary that failed too or a hole in the record may explain a failure."""

    def __init__(self, facts: Facts) -> None:
        self._lags = sorted((h.t_ns, h.lag_max_ms) for h in facts.health.get("harness", ()))
        self._deadline_ns = int(facts.plan.canary_deadline_s * SECOND)
        reads = [
            (h.t_ns, h.reference_ok and (h.reference_ms or 0.0) * MS <= self._deadline_ns)
            for h in facts.health.get("harness", ())
            if h.reference_ok is not None
        ]
        reads += [(r.t_ns, r.ok) for r in facts.references if r.ended_by != "harness"]
        self._references = sorted(reads)
        self._waits = [(h.t_ns, h.cpu_wait) for h in facts.health.get("harness", ()) if h.cpu_wait]
        self._nodes = {path.id: facts.nodes_of(path) for path in facts.paths()}
        self._away = Away(facts)
        self._facts = facts if facts.lost_after(0) else None

    def about(self, seen: Seen) -> bool:
        """True when the failure may be ours: our trouble is at least as large as the canary's."""
        return (
            self._lag_explains(seen)
            or self._reference_explains(seen)
            or self._gap_explains(seen)
            or self._starvation_explains(seen)
            or self._away.explains(seen)
            or self._away.keeps_busy(seen)
        )

    def _gap_explains(self, seen: Seen) -> bool:
        # Its end may be among the events that are missing, unless the run said that it was still open.
        canary = seen.canary
        if self._facts is None or seen.fate is not Fate.UNFINISHED or canary.overdue or canary.ended_ns is not None:
            return False
        return self._facts.lost_after(min(canary.seqs, default=0))

    def _lag_explains(self, seen: Seen) -> bool:
        # Lag delays an answer, it does not make an error; and 3 s of lag do not explain a hang of 300 s.
        if seen.fate not in (Fate.LATE, Fate.UNFINISHED):
            return False
        lags = [lag for at_ns, lag in self._lags if seen.begun_ns <= at_ns and at_ns - int(lag * MS) <= seen.until_ns]
        over_ns = seen.until_ns - seen.begun_ns - self._deadline_ns
        unfit = max(lags, default=0.0) * MS >= LAG_SHARE * self._deadline_ns
        return unfit and sum(lags) * MS >= over_ns

    def _starvation_explains(self, seen: Seen) -> bool:
        """Whether a machine that we share with the target kept so much CPU time from it that this came of it.

        Whoever waits for a CPU a third of the time takes half as long again, and is not to blame for what would have
        been in time without. A router gives a server up whose health check is late, so refusals follow, too, where
        most of the time was waiting.
        """
        if seen.fate in (Fate.LATE, Fate.UNFINISHED):
            share = self._waited(seen, seen.begun_ns)
            return (seen.until_ns - seen.begun_ns) * (1 - share) <= self._deadline_ns
        if seen.fate is Fate.FAILED and seen.canary.error == "status":
            return self._waited(seen, seen.until_ns - STARVED_BEFORE_NS) >= MOSTLY
        return False

    def _waited(self, seen: Seen, from_ns: int) -> float:
        """The share of its time that the most hindered node of a path waited, on average, up to this canary's end."""
        nodes = self._nodes.get(seen.canary.path, ())
        shares = [
            max((wait[node] for node in nodes if node in wait), default=0.0)
            for t_ns, wait in self._waits
            if from_ns <= t_ns <= seen.until_ns
        ]
        return sum(shares) / len(shares) if shares else 0.0

    def _reference_explains(self, seen: Seen) -> bool:
        if not seen.fate.bad:
            return False
        near = [
            ok
            for at_ns, ok in self._references
            if seen.begun_ns - REFERENCE_NEAR_NS <= at_ns <= seen.until_ns + REFERENCE_NEAR_NS
        ]
        return bool(near) and near.count(False) * 2 >= len(near)


def look_all(canaries: Iterable[Canary], horizon_ns: int, deadline_ns: int, doubt: Doubt) -> Sequence[Seen]:
    """All canaries in the order they were sent."""
    seen = [look(canary, horizon_ns, deadline_ns) for canary in sorted(canaries, key=_order)]
    return [Seen(s.canary, s.fate, s.until_ns, doubtful=doubt.about(s)) for s in seen]


def _order(canary: Canary) -> tuple[int, int, str]:
    return canary.begun_ns, min(canary.seqs, default=0), canary.req
