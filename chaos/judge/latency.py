"""How fast a run served users' requests after everything had recovered, as one number per measure; or why nobody knows.

Only requests sent while the run measured count, and only where we were fit to time them: what our own loop delivered
late was late by our doing. Requests of one run share its machine and its moment, so a run gives its medians, no more.
"""

from __future__ import annotations

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
        fit = [request for request in ended if request.ok and seen.fit(who, request)]
        if len(fit) < ENOUGH or len(fit) < FIT_SHARE * len(ended):
            unfit.append(f"we were fit to time {len(fit)} of {count(len(ended), 'request')} of {group}")
            continue
        medians[f"{group}: time to first token"] = statistics.median(map(_first_ms, fit))
        gaps = [request.gaps.p50_ms for request in fit if request.gaps is not None and request.gaps.n > 0]
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
        self._busy: dict[str, tuple[list[int], list[int]]] = {}

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

    def fit(self, who: str, request: ev.RequestEnded) -> bool:
        """Whether whoever timed this request was never late itself between its sending and its first token."""
        if who not in self._busy:
            self._busy[who] = self._busy_spans(who)
        begins, ends = self._busy[who]
        sent_ns, first_ns = request.sent_ns or 0, request.first_ns or request.last_ns or 0
        # Spans follow each other: those that begin before the first token less those that end before the sending.
        covered = bool(self._beats[who]) and self._beats[who][-1].t_ns >= first_ns
        return covered and request.first_ns is not None and bisect_right(begins, first_ns) == bisect_left(ends, sent_ns)

    def _busy_spans(self, who: str) -> tuple[list[int], list[int]]:
        """When whoever it is was late by more than latencies allow: the beginnings and the ends, both in order."""
        spans = []
        before_ns: int | None = None
        for beat in sorted(self._beats[who], key=lambda beat: beat.t_ns):
            since_ns = beat.t_ns - ns(BEAT_S) if before_ns is None else before_ns
            if beat.lag_p99_ms >= FIT_LAG_MS:
                spans.append((since_ns, beat.t_ns))
            before_ns = beat.t_ns
        return [begin for begin, _ in spans], [end for _, end in spans]
