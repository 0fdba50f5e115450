"""Follows the logs of a host and tells what known lines they bring; the stream `follow`, and what ends it in peace.

What is sent is JSON: of one text of one source what a look brought, together with the cursor behind it, so that whoever
hears half of the stream can go on exactly there. Of each known line the first are sent raw and the rest counted, so
that a flood of them is a few bytes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable

from chaos.outpost import wraps
from chaos.outpost.budget import BYTES_PER_S, CPU_SHARE, NOTHING_LEFT_S, Budget
from chaos.outpost.printed import PrintedSource
from chaos.outpost.scan import Scanner
from chaos.outpost.sources import FILE, FileSource, GlobSource, is_glob

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence

    from chaos.outpost.lines import Hit
    from chaos.outpost.news import News
    from chaos.outpost.sources import Source

POLL_S = 0.2
LOOK_BYTES = 8 << 20
"""Read per look of all sources together."""
RAW_HITS = 200
"""Raw lines kept per known line and node; enough to see 100 aborts on two ranks, little enough for a journal."""
MAX_KEYS = 100_000
MAX_LINE_BYTES = 4 << 10
SIGN_EVERY_S = 1.0
SOON_S = 0.005
FINISH_S = 5.0
"""How long reading to the end may take: by then a file is seldom further behind than a second's worth."""

Json = dict[str, Any]
Told = list[Any]
_finishing: set[str] = set()


class _Tally:
    """What was kept and seen of one known line on one node."""

    def __init__(self) -> None:
        self.kept = 0
        self.keys: set[str] = set()

    def take(self, key: str) -> str:
        """How a line counts: `raw`, `counted`, or not at all, being an echo of one with the same key.

        What is counted are lines, but of those that have keys only the ones with a new key: the count then says how
        many things happened, not how many ranks told of them.
        """
        echo = bool(key) and key in self.keys
        if key and len(self.keys) < MAX_KEYS:
            self.keys.add(key)
        if self.kept < RAW_HITS:
            self.kept += 1
            return "raw"
        return "" if echo else "counted"


class Follower:
    """Sources that are read together, on one budget."""

    def __init__(
        self, sources: Sequence[Json], known: dict[str, list[list[str]]], budget: Budget, run: str = ""
    ) -> None:
        self._nodes = [str(source["node"]) for source in sources]
        self._budget = budget
        self._sources = [_source(source, known[source["node"]], run) for source in sources]
        self._tallies: dict[tuple[str, int], _Tally] = {}
        self._states: dict[tuple[int, int], tuple[str, str]] = {}  # of each text what was last told of its state
        self._turn = 0
        self._signed_s = 0.0
        self.more = False

    def turn(self) -> Iterator[Json]:
        """Look once at every source; what they bring, and a sign of life."""
        self.more = told = False
        count, left = len(self._sources), min(LOOK_BYTES, self._budget.left())
        self._turn += 1
        for n in range(count):
            number = (n + self._turn) % count  # whoever floods does not always come first
            # What the ones before did not need is there for the rest.
            for text, news in self._sources[number].look(self._budget, left // (count - n)):
                left -= sum(span.end - span.start for span in news.ranges if not span.lost)
                self.more = self.more or news.more
                for message in self._messages(number, text, news):
                    told = True
                    yield message
        now_s = time.monotonic()
        if told or now_s - self._signed_s >= SIGN_EVERY_S:
            self._signed_s = now_s
            yield {"looked": clocks()}

    def finish(self, give_up: Callable[[], bool]) -> Iterator[Json]:
        """Read on to where everything ends now, and say what is left to say."""
        for source in self._sources:
            source.stop_here()
        until_s = time.monotonic() + FINISH_S
        self.more = True
        while self.more and time.monotonic() < until_s and not give_up():
            yield from self.turn()
            if self.more:
                time.sleep(max(SOON_S, self.pause_s(0.0)))
        for number, source in enumerate(self._sources):
            for text, news in source.finish():
                yield from self._messages(number, text, news)
        yield {"looked": clocks()}

    def pause_s(self, poll_s: float) -> float:
        """How long to wait before the next turn."""
        if not self.more:
            return poll_s
        return 0.0 if self._budget.left() else NOTHING_LEFT_S

    def close(self) -> None:
        """Let go of everything."""
        for source in self._sources:
            source.close()

    def _messages(self, number: int, text: int, news: News) -> Iterator[Json]:
        raw, counted = self._sorted_out(self._nodes[number], news.hits)
        ranges = [span for span in news.ranges if span.end > span.start or span.lost or span.note]
        state = (news.blind, news.ranges[-1].note if news.ranges else "")
        changed = self._states.get((number, text)) != state
        self._states[number, text] = state
        if not (changed or raw or counted or news.gap or any(span.end > span.start or span.lost for span in ranges)):
            return
        yield {
            "source": number,
            "text": text,
            "hits": raw,
            "counted": counted,
            "ranges": [list(span) for span in news.ranges],
            "gap": news.gap,
            "blind": news.blind,
            "whole": news.whole,
            "cursor": self._sources[number].cursor(text),
            "at": clocks(),
        }

    def _sorted_out(self, node: str, hits: Sequence[Hit]) -> tuple[list[Told], list[Told]]:
        """The raw lines, and of each known line that has more how many and the last."""
        raw: list[Told] = []
        counted: dict[int, tuple[Hit, int]] = {}
        for hit in hits:
            known = hit.found.known
            counts_as = self._tallies.setdefault((node, known), _Tally()).take(hit.found.key)
            if counts_as == "raw":
                raw.append(_told(hit, 1))
            elif counts_as:
                counted[known] = (hit, counted[known][1] + 1 if known in counted else 1)
        return raw, [_told(hit, count) for hit, count in counted.values()]


def follow(
    send: Callable[[Any], None],
    stopped: threading.Event,
    *,
    name: str,
    sources: list[Json],
    known: dict[str, list[list[str]]],
    run: str = "",
    poll_s: float = POLL_S,
    bytes_per_s: float = BYTES_PER_S,
    cpu_share: float = CPU_SHARE,
    finish: bool = False,
) -> None:
    """Follow until stopped, or until `log.finish` is asked for with the same name; with `finish`, only to the end.

    `known` holds for each node the lines that mean something there, as `scan.Known`.
    """
    follower = Follower(sources, known, Budget(bytes_per_s, cpu_share), run)
    try:
        while not stopped.is_set():
            if finish or name in _finishing:
                for message in follower.finish(stopped.is_set):
                    send(message)
                return
            for message in follower.turn():
                send(message)
            stopped.wait(follower.pause_s(poll_s))
    finally:
        _finishing.discard(name)
        follower.close()


def finish(name: str) -> None:
    """Let the stream of this name read to where everything ends now, and end."""
    _finishing.add(name)


def clocks() -> list[int]:
    """Monotonic and wall clock (nanoseconds) and how far local time is ahead of UTC (seconds)."""
    return [time.monotonic_ns(), time.time_ns(), time.localtime().tm_gmtoff]


def _told(hit: Hit, count: int) -> Told:
    found = hit.found
    line = found.line[:MAX_LINE_BYTES].decode(errors="replace")
    return [found.known, line, hit.offset, found.key, found.log_time, found.dated, count]


def _source(source: Json, known: list[list[str]], run: str) -> Source:
    kind, what, cursors = source["kind"], source["what"], source.get("cursors") or {}
    if kind != FILE:
        return PrintedSource(kind, what, Scanner(known, wraps.WRAPS.get(kind)), cursors, run)
    return (GlobSource if is_glob(what) else FileSource)(what, Scanner(known), cursors)
