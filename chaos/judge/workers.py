"""Which workers still take part in what goes through the router.

A worker that the router has lost is missed by nobody: its peers answer every canary that takes the router's way, its
health stays green, it even answers canaries that go straight to it, and the deployment has lost what it could carry.
Only a counter on the worker itself tells, one that rises with every request that it takes on (`served`); what our
canaries sent straight to it is taken off.

A worker is lost when it takes none of the fresh requests that others answer, past the recovery budget, and chance does
not explain it: the router would have had to pass it by `n` times in a row. What share of the requests it should get is
taken from the baseline, where nothing but our canaries asks, and never assumed to be more than an equal one: a router
that prefers some workers accuses nobody.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import pairwise
from typing import TYPE_CHECKING

from chaos.judge.metrics import counted
from chaos.judge.paths import settled_ns
from chaos.judge.units import between, count, ns
from chaos.judge.windows import load_start
from chaos.model.chance import DOUBT, by_chance

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from chaos.judge.facts import Facts
    from chaos.judge.windows import Window


class Part(Enum):
    """What a worker does in a window."""

    TAKES = auto()  # takes fresh requests, and never ceased to for longer than chance explains
    BACK = auto()  # takes fresh requests again, but came back only after the budget
    LOST = auto()  # takes none any more
    APART = auto()  # took none before either, while others did: nothing of it is expected
    UNSHOWN = auto()  # took none before, of too few to say that nothing is expected of it
    UNREAD = auto()  # its counter, or that of a peer, could not be read
    UNDECIDED = auto()  # took some before, and of too few fresh requests since to tell

    @property
    def open(self) -> bool:
        """Whether evidence does not tell."""
        return self in (Part.UNSHOWN, Part.UNREAD, Part.UNDECIDED)


@dataclass(frozen=True, slots=True)
class WorkerRun:
    """One worker in one window."""

    node: str
    role: str
    window: Window
    part: Part
    why: str  # one clause for people
    since_ns: int  # LOST: since when; BACK: when it took one again; else the anchor
    seqs: tuple[int, ...] = ()
    confirmed: bool = False  # watched past the engine's own timeouts


@dataclass(frozen=True, slots=True)
class _Look:
    """One reading of how many of the router's requests a worker has taken."""

    t_ns: int
    taken: float
    seq: int


@dataclass(frozen=True, slots=True)
class _Take:
    """Requests taken between two readings."""

    after_ns: int
    by_ns: int
    number: float
    seq: int


class _Counts:
    """What the workers' counters and our canaries say, read once."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.peers: dict[str, list[str]] = {}
        for node in facts.nodes:
            self.peers.setdefault(node.role, []).append(node.id)
        self.watched = watched_workers(facts)
        self.doubt = DOUBT / max(len(self.watched), 1)
        roles = {facts.role(node) for node in self.watched}
        self.looks = {node: _looks(facts, node) for role in roles for node in self.peers[role]}
        self.takes = {node: _takes(looks) for node, looks in self.looks.items()}
        routed = {path.id for path in facts.paths() if path.kind == "routed"}
        self.answered = [
            (canary.begun_ns, canary.ended_ns)
            for canary in facts.canaries.values()
            if canary.path in routed and canary.ok and canary.ended_ns is not None
        ]

    def alike(self, node: str) -> list[str]:
        """The workers of a node's role, itself among them."""
        return self.peers[self.facts.role(node)]

    def equal_share(self, node: str) -> float:
        """What it would get from a router without preferences."""
        return 1 / len(self.alike(node))

    def canaries(self, start_ns: int, end_ns: int) -> int:
        """Fresh requests of ours that were sent and answered in a stretch."""
        return sum(1 for begun, ended in self.answered if begun >= start_ns and ended <= end_ns)

    def before(self, node: str, end_ns: int) -> tuple[float | None, int]:
        """Its share of what it and its peers took up to a moment, and how many those were; None: unread.

        Where nothing was seen being taken, what they had taken by their first reading tells of their shares, and of no
        try of ours.
        """
        taken, earlier = {}, {}
        for peer in self.alike(node):
            looks = [look for look in self.looks[peer] if look.t_ns <= end_ns]
            if not looks:
                return None, 0
            taken[peer] = sum(take.number for take in self.takes[peer] if take.by_ns <= end_ns)
            earlier[peer] = max(looks[0].taken, 0.0)
        total = sum(taken.values())
        # Others may use the deployment, too: only what our own canaries can have brought is counted as tries.
        tries = min(round(total), self.canaries(self.facts.first_ns or 0, end_ns))
        counted_on = taken if total else earlier
        among = sum(counted_on.values())
        return (min(self.equal_share(node), counted_on[node] / among) if among else 0.0), tries

    def passed_by(self, node: str, start_ns: int, end_ns: int) -> int:
        """Fresh requests of ours answered in a stretch, as far as the counters of the node's peers confirm them."""
        confirmed = sum(
            take.number
            for peer in self.alike(node)
            if peer != node
            for take in self.takes[peer]
            if start_ns < take.by_ns <= end_ns
        )
        return min(round(confirmed), self.canaries(start_ns, end_ns))

    def tells(self, share: float, tries: int) -> bool:
        """Whether so many tries without success are more than chance."""
        return by_chance(share, tries) < self.doubt


def watched_workers(facts: Facts) -> tuple[str, ...]:
    """Workers with peers, in roles where some counter tells who takes requests."""
    counted_roles = {role for metric in facts.metrics("served") for role in metric.roles}
    several = {node.role for node in facts.nodes if any(o.role == node.role and o.id != node.id for o in facts.nodes)}
    return tuple(node.id for node in facts.nodes if node.role in counted_roles and node.role in several)


def workers_known(facts: Facts, now_ns: int) -> bool:
    """Whether the baseline has shown of each worker that it takes requests, or that nothing is expected of it."""
    counts = _Counts(facts)
    alone = [node for node in counts.watched if node not in _asked(facts)]
    shares = [(node, *counts.before(node, now_ns)) for node in alone]
    return all(share is None or share > 0 or counts.tells(counts.equal_share(node), n) for node, share, n in shares)


def worker_runs(facts: Facts, window: Window, down: Collection[str]) -> tuple[WorkerRun, ...]:
    """Judge every watched worker in one window; those in `down`, which cannot serve because of us, are left out.

    Of a worker that canaries ask by itself nothing is expected that the router did not show before.
    """
    counts, asked = _Counts(facts), _asked(facts)
    runs = [_run(counts, node, window) for node in counts.watched if node not in down]
    unasked = (Part.APART, Part.UNSHOWN, Part.UNREAD)
    return tuple(run for run in runs if run.node not in asked or run.part not in unasked)


def _asked(facts: Facts) -> frozenset[str]:
    """Workers that canaries go straight to."""
    return frozenset(node for path in facts.paths() if path.kind != "routed" for node in path.nodes)


def _run(counts: _Counts, node: str, window: Window) -> WorkerRun:
    facts = counts.facts
    confirmed = window.horizon_ns - window.anchor_ns >= ns(facts.plan.watch_s)

    def told(part: Part, why: str, since_ns: int = window.anchor_ns, seqs: Sequence[int] = ()) -> WorkerRun:
        return WorkerRun(
            node, facts.role(node), window, part, why, since_ns, tuple(seqs), part is Part.LOST and confirmed
        )

    share, tries = counts.before(node, _baseline_end(facts, window))
    if share is None:
        return told(Part.UNREAD, "how many requests it took before anything was broken could not be read")
    if not share:
        apart = counts.tells(counts.equal_share(node), tries)
        why = f"took none of {'' if apart else 'only '}{count(tries, 'request')} before anything was broken"
        return told(Part.APART if apart else Part.UNSHOWN, why)
    until_ns = min(window.until_ns, window.horizon_ns + 1)
    looks = [look for look in counts.looks[node] if window.anchor_ns <= look.t_ns < until_ns]
    if not looks:
        return told(Part.UNDECIDED, f"how many requests it takes could not be read {window.after}")
    takes = [take for take in counts.takes[node] if window.anchor_ns < take.by_ns < until_ns]
    return told(*_fared(counts, node, share, window, takes, looks))


def _fared(
    counts: _Counts, node: str, share: float, window: Window, takes: Sequence[_Take], looks: Sequence[_Look]
) -> tuple[Part, str, int, Sequence[int]]:
    budget_ns, end_ns = window.budget_ns(counts.facts.plan), looks[-1].t_ns
    last_ns = max([window.anchor_ns, *(take.by_ns for take in takes)])
    passed_by = counts.passed_by(node, max(budget_ns, last_ns), end_ns)
    if counts.tells(share, passed_by):
        why = f"took none of {count(passed_by, 'fresh request')} that its peers answered"
        return Part.LOST, why, last_ns, (looks[0].seq, looks[-1].seq)
    back = _came_back(counts, node, share, takes, budget_ns)
    if back is not None:
        why = f"took requests again only {between(window.anchor_ns, back.by_ns)} {window.after}"
        return Part.BACK, why, back.by_ns, (back.seq,)
    settled = settled_ns(counts.facts, window)
    fresh = [take for take in takes if take.after_ns >= settled]
    if fresh:
        number = count(round(sum(take.number for take in fresh)), "request")
        return Part.TAKES, f"took {number} once things had settled", last_ns, (fresh[0].seq, fresh[-1].seq)
    number = count(counts.passed_by(node, settled, end_ns), "fresh request")
    return Part.UNDECIDED, f"took none of {number} once things had settled, too few to tell", last_ns, ()


def _came_back(counts: _Counts, node: str, share: float, takes: Sequence[_Take], budget_ns: int) -> _Take | None:
    """The first request taken after a silence past the budget that chance does not explain."""
    last_ns = budget_ns
    for take in takes:
        if take.by_ns > budget_ns:
            if counts.tells(share, counts.passed_by(node, last_ns, take.after_ns)):
                return take
            last_ns = take.by_ns
    return None


def _baseline_end(facts: Facts, window: Window) -> int:
    loaded_ns = load_start(facts)
    return window.anchor_ns if loaded_ns is None else loaded_ns


def _looks(facts: Facts, node: str) -> list[_Look]:
    """How many requests the router had passed to a node, whatever its process, by each reading.

    An engine may count a request a moment before we see its answer, so what is above a later reading was not the
    router's. A count that fell is that of a new process, which began at zero.
    """
    names = [metric.name for metric in facts.metrics("served") if facts.role(node) in metric.roles]
    direct = sorted(_answered_directly(facts, node))
    looks: list[_Look] = []
    total = last = 0.0
    for scrape in facts.scrapes.get(node, ()):
        known = [value for name in names if scrape.ok and (value := counted(scrape, name)) is not None]
        if known:
            now = sum(known)
            total += now - last if now >= last else now
            last = now
            # What was answered while the reading was on its way may not be in it.
            asked_ns = scrape.t_ns - round((scrape.took_ms or 0.0) * 1e6)
            looks.append(_Look(scrape.t_ns, total - bisect_right(direct, asked_ns), scrape.seq))
    least = math.inf
    for at in range(len(looks) - 1, -1, -1):
        least = min(least, looks[at].taken)
        looks[at] = replace(looks[at], taken=least)
    return looks


def _answered_directly(facts: Facts, node: str) -> Iterator[int]:
    """When canaries that went straight to a node were answered."""
    paths = {path.id for path in facts.paths() if path.kind != "routed" and node in path.nodes}
    for canary in facts.canaries.values():
        if canary.path in paths and canary.ok and canary.ended_ns is not None:
            yield canary.ended_ns


def _takes(looks: Sequence[_Look]) -> list[_Take]:
    """What was taken between readings."""
    taken = [(was, now, now.taken - was.taken) for was, now in pairwise(looks)]
    return [_Take(was.t_ns, now.t_ns, number, now.seq) for was, now, number in taken if number > 0]
