"""How fast a run served users' requests after everything had recovered, as one number per measure; or why nobody knows.

Only requests sent while the run measured count, and only where we were fit to time them: what our own loop delivered
late was late by our doing. Requests of one run share its machine and its moment, so a run gives its medians, no more.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

from chaos.judge.units import MS, count, ns
from chaos.judge.verdict import in_order
from chaos.model import events as ev
from chaos.model.campaign import Latency

if TYPE_CHECKING:
    from collections.abc import Iterable

FIT_LAG_MS = 5.0
"""A latency claim needs our own lag below this (DESIGN §7)."""
FIT_ERROR = 0.02
"""Or below this share of the time that is measured: a small part of the smallest difference that can be asked for."""
BEAT_S = 0.5
"""Who reports on itself does so twice a second; the first report is of no longer than this."""
ENOUGH = 10
"""Fewer requests have no median worth the name."""
FIT_SHARE = 0.5
"""Of the requests that were sent; where we were fit for fewer, those are no fair choice of them."""
FAILED_SHARE = 0.05
"""Where more fail, slowness is not the question."""
FRESH = "canaries"


def latency(events: Iterable[ev.AnyEvent]) -> Latency:
    """The medians of one run."""
    seen = _Seen()
    for event in in_order(events):
        seen.feed(event)
    if seen.begun_ns is None or seen.until_ns is None:
        return Latency(why="it did not come to measuring")
    medians: dict[str, float] = {}
    unfit: list[str] = []
    for (group, who), ended in sorted(seen.requests().items()):
        failed = sum(not request.ok for request in ended)
        if failed > FAILED_SHARE * len(ended):
            unfit.append(f"{failed} of {count(len(ended), 'request')} of {group} failed")
            continue
        fit = [request for request in ended if request.ok and seen.timed(who, request)]
        if len(fit) < ENOUGH or len(fit) < FIT_SHARE * len(ended):
            why = "too few" if len(ended) < ENOUGH else "we were not fit to time the rest"
            unfit.append(f"only {len(fit)} of {count(len(ended), 'request')} of {group} could be timed, {why}")
            continue
        medians[f"{group}: time to first token"] = statistics.median(map(_first_ms, fit))
        gaps = [request.gaps.p50_ms for request in fit if request.gaps and request.gaps.n and seen.paced(who, request)]
        if len(gaps) >= ENOUGH and group != FRESH:
            medians[f"{group}: time between tokens"] = statistics.median(gaps)
    why = "" if medians else "; ".join(unfit) or "no request was sent while it measured"
    return Latency(why=why, sessions=seen.sessions(), medians_ms=medians)


def _first_ms(request: ev.RequestEnded) -> float:
    return ((request.first_ns or 0) - (request.sent_ns or 0)) / MS


class _Seen:
    """What one pass over the events keeps."""

    def __init__(self) -> None:
        self.begun_ns: int | None = None
        self.until_ns: int | None = None
        self._ended: list[ev.RequestEnded] = []
        self._beats: dict[str, list[ev.HarnessHealth]] = defaultdict(list)
        self._spans: dict[str, list[tuple[int, int, float]]] = {}

    def feed(self, event: ev.AnyEvent) -> None:
        match event:
            case ev.PhaseEntered(phase="measuring"):
                self.begun_ns = event.t_ns
            case ev.PhaseEntered() if self.begun_ns is not None and self.until_ns is None:
                self.until_ns = event.t_ns
            case ev.RequestEnded() if event.kind in ("load", "canary"):
                self._ended.append(event)
            case ev.HarnessHealth():
                self._beats[event.who].append(event)
            case _:
                pass

    def requests(self) -> dict[tuple[str, str], list[ev.RequestEnded]]:
        """Those sent while it measured, by group and by who timed them; canaries of the routed path as one group."""
        found: dict[tuple[str, str], list[ev.RequestEnded]] = defaultdict(list)
        for event in self._ended:
            if event.sent_ns is None or not (self.begun_ns or 0) <= event.sent_ns < (self.until_ns or 0):
                continue
            if event.kind == "load":
                found[event.group, event.src].append(event)
            elif event.path == "routed":
                found[FRESH, "harness"].append(event)
        return found

    def sessions(self) -> float:
        """How many sessions of users there were at a time."""
        total = 0.0
        for who, beats in self._beats.items():
            within = [beat for beat in beats if (self.begun_ns or 0) <= beat.t_ns < (self.until_ns or 0)]
            if who != "harness" and within:
                total += statistics.median(
                    sum(number for phase, number in beat.phases.items() if phase not in ("done", "none"))
                    for beat in within
                )
        return total

    def timed(self, who: str, request: ev.RequestEnded) -> bool:
        """Whether whoever timed this request was on time at both its ends; what it did between them is of no matter."""
        if request.sent_ns is None or request.first_ns is None:
            return False
        error_ms = max(self._lag_ms(who, at, at) for at in (request.sent_ns, request.first_ns))
        return error_ms < max(FIT_LAG_MS, FIT_ERROR * (request.first_ns - request.sent_ns) / MS)

    def paced(self, who: str, request: ev.RequestEnded) -> bool:
        """Whether whoever timed this request was on time for every token of it."""
        if request.first_ns is None or request.last_ns is None:
            return False
        return self._lag_ms(who, request.first_ns, request.last_ns) < FIT_LAG_MS

    def _lag_ms(self, who: str, from_ns: int, to_ns: int) -> float:
        """The largest lag that was told of any moment between; infinite where nobody told."""
        if who not in self._spans:
            self._spans[who] = self._told(who)
        spans = self._spans[who]
        at = bisect_left(spans, from_ns, key=lambda span: span[1])
        if not spans or spans[-1][1] < to_ns or spans[at][0] > from_ns:
            return math.inf
        until = bisect_right(spans, to_ns, key=lambda span: span[0])
        return max(lag_ms for _, _, lag_ms in spans[at : max(until, at + 1)])

    def _told(self, who: str) -> list[tuple[int, int, float]]:
        """From when to when each report is, and the lag it tells of; they follow each other."""
        spans: list[tuple[int, int, float]] = []
        for beat in self._beats[who]:
            since_ns = spans[-1][1] if spans else beat.t_ns - ns(BEAT_S)
            spans.append((since_ns, beat.t_ns, beat.lag_p99_ms))
        return spans
