"""Makes events of what the hosts tell of the servers' logs: known lines, what was read, what was lost.

Reading is done where the log is (`chaos/outpost/follow.py`), the same way here and over SSH. Where a log ended is asked
before the run does anything, so lines of a former life never count. Every message holds the cursor behind it: when a
host is lost, following goes on at the last one as soon as it answers again.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.hosts import HostLost, HostTrouble
from chaos.engine.probes.follow import LogSource, News, Range, known_lines, ordered, text_name
from chaos.engine.probes.written import Written
from chaos.model.events import EvidenceLost, LogCovered, LogHit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.engine.hosts import Host
    from chaos.engine.ports import Clock, Emit
    from chaos.engine.probes.follow import Cursors, Line

POLL_S = 0.2
COUNT_EVERY_S = 1.0
COVERAGE_EVERY_S = 10.0
AGAIN_S = 1.0
"""Between attempts to follow on a host that was lost; its own connection has the patience, and a limit."""
FINISH_S = 15.0
"""How long a host may take for the rest of its logs: it gives itself five seconds, and a connection has its delays."""


@dataclass(slots=True)
class _Text:
    """One text of a source: what of it is read and not told yet, and whether it can be read."""

    read: Range | None = None
    blind: str = ""
    whole: bool = False
    blind_since_ns: int = 0


@dataclass(slots=True)
class _Feed:
    """What is followed on one host."""

    host: Host
    sources: list[LogSource]
    cursors: list[Cursors]
    written: list[Written]
    last_look_ns: int
    texts: dict[tuple[int, int], _Text] = field(default_factory=dict)
    name: str = ""  # of the stream that is open
    attempts: int = 0
    finishing: bool = False
    followed: bool = False  # whether somebody sees to it that it is followed, again and again
    lost: str = ""  # why nobody follows there now
    done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _Counted:
    """Lines of one signature on one node that were not kept raw, since they were last told of."""

    count: int = 0
    sample: LogHit | None = None


class LogProbe:
    """Emits `LogHit`, `LogCovered` and `EvidenceLost` for the logs it was given."""

    def __init__(
        self, sources: Sequence[LogSource], *, emit: Emit, clock: Clock, run_id: str = "", poll_s: float = POLL_S
    ) -> None:
        self._emit = emit
        self._clock = clock
        self._run_id = run_id
        self._poll_s = poll_s
        now_ns = clock.now_ns()
        by_host: dict[int, list[LogSource]] = {}
        for source in sources:
            by_host.setdefault(id(source.host), []).append(source)
        self._feeds = [
            _Feed(
                host=mine[0].host,
                sources=mine,
                cursors=[dict(source.cursors) for source in mine],
                written=[Written(now_ns if source.since_ns is None else source.since_ns) for source in mine],
                last_look_ns=now_ns,
            )
            for mine in by_host.values()
        ]
        self._counted: dict[tuple[str, str], _Counted] = {}
        self._counted_ns = self._covered_ns = now_ns

    async def run(self) -> None:
        """Follow until `finish`, or until cancelled; then `finish` reads the rest in a new look."""
        async with asyncio.TaskGroup() as tasks:
            for feed in self._feeds:
                tasks.create_task(self._follow(feed))

    def checkpoint(self) -> None:
        """Emit what was read since the last checkpoint: a range per readable text, empty ones too."""
        self._covered_ns = self._clock.now_ns()
        for feed in self._feeds:
            self._tell_covered(feed)

    async def finish(self) -> None:
        """Read every log to where it ends now, and report the rest: counts, coverage, logs never readable."""
        await asyncio.gather(*(self._finish(feed) for feed in self._feeds))
        self._flush_counts()
        self.checkpoint()
        now_ns = self._clock.now_ns()
        for feed in self._feeds:
            for (source, _), text in feed.texts.items():
                if text.blind:
                    self._lost(feed.sources[source], text.blind_since_ns, f": {text.blind}")
            if feed.lost:
                for node in dict.fromkeys(source.node for source in feed.sources):
                    self._emit(_lost(node, feed.last_look_ns, now_ns, f"nobody could read its log: {feed.lost}"))

    # ------------------------------------------------------------------------------------------ inside

    async def _follow(self, feed: _Feed) -> None:
        """Follow on one host to the end, again and again where it is lost."""
        feed.followed = True
        try:
            await self._hear(feed)
            while not feed.done.is_set():
                await self._clock.sleep(AGAIN_S)
                await self._hear(feed)
        finally:
            feed.followed = False

    async def _hear(self, feed: _Feed) -> None:
        """Follow once, from the cursors on."""
        feed.attempts += 1
        feed.name = f"{self._run_id}:{id(self):x}:{feed.attempts}"
        stream = feed.host.stream(
            "follow",
            name=feed.name,
            sources=[ordered(*one) for one in zip(feed.sources, feed.cursors, strict=True)],
            known={source.node: known_lines(source.signatures) for source in feed.sources},
            run=self._run_id,
            poll_s=self._poll_s,
            finish=feed.finishing,
        )
        try:
            async with aclosing(stream) as heard:
                async for message in heard:
                    self._take(feed, msgspec.convert(message, News))
            feed.lost = "" if feed.finishing else "reading it stopped by itself"
            if feed.finishing:
                feed.done.set()
        except (HostLost, HostTrouble) as why:
            self._tell_covered(feed)
            feed.lost = str(why)
        finally:
            feed.name = ""

    async def _finish(self, feed: _Feed) -> None:
        feed.finishing = True
        try:
            async with asyncio.timeout(FINISH_S):
                if feed.name:
                    await feed.host.call("log.finish", name=feed.name)
                if feed.followed:
                    await feed.done.wait()
                else:
                    await self._hear(feed)
        except TimeoutError:
            feed.lost = f"the rest did not come within {FINISH_S:g} s"
        except (HostLost, HostTrouble) as why:
            feed.lost = str(why)
        feed.done.set()

    def _take(self, feed: _Feed, news: News) -> None:
        feed.lost = ""
        if news.source >= 0:
            self._report(feed, news)
        now_ns = self._clock.now_ns()
        if news.looked is not None:
            feed.last_look_ns = now_ns
        if now_ns - self._counted_ns >= COUNT_EVERY_S * 1e9:
            self._flush_counts()
        if now_ns - self._covered_ns >= COVERAGE_EVERY_S * 1e9:
            self.checkpoint()

    def _report(self, feed: _Feed, news: News) -> None:
        source = feed.sources[news.source]
        feed.cursors[news.source][str(news.text)] = news.cursor
        text = feed.texts.setdefault((news.source, news.text), _Text())
        if news.gap:
            self._lost(source, feed.last_look_ns, f" {news.gap}")
        for span in news.ranges:
            self._cover(source, news.text, text, span)
        for line in news.hits:
            self._emit(self._hit(feed, news, line))
        for line in news.counted:
            counted = self._counted.setdefault((source.node, source.signatures[line.known].id), _Counted())
            counted.count += line.count
            counted.sample = self._hit(feed, news, line)
        if news.blind and not text.blind:
            text.blind_since_ns = feed.last_look_ns
        elif text.blind and not news.blind and not text.whole:
            self._lost(source, text.blind_since_ns, f": {text.blind}")
        text.blind, text.whole = news.blind, news.whole

    def _tell_covered(self, feed: _Feed) -> None:
        """A range per text that can be read; of a host that is lost nothing is known since then."""
        for (source, number), text in feed.texts.items():
            if text.read is not None and not text.blind and not feed.lost:
                self._emit_covered(feed.sources[source], number, text.read)
                text.read = Range(text.read.end, text.read.end, 0, 0, text.read.note, ends=False)

    def _cover(self, source: LogSource, number: int, text: _Text, span: Range) -> None:
        """Join what was read to what was read before; what does not join it, or ends there, is told at once."""
        read = text.read
        if read is not None and span.start == read.end:
            lines = read.lines + span.lines
            span = msgspec.structs.replace(span, start=read.start, lines=lines)
        elif read is not None and read.end > read.start:
            self._emit_covered(source, number, read)
        text.read = span
        if span.ends:
            self._emit_covered(source, number, span)
            text.read = None

    def _lost(self, source: LogSource, from_ns: int, what: str) -> None:
        self._emit(_lost(source.node, from_ns, self._clock.now_ns(), f"{source.stream}{what}"))

    def _emit_covered(self, source: LogSource, number: int, span: Range) -> None:
        self._emit(
            LogCovered(
                t_ns=self._clock.now_ns(),
                src="probe:logs",
                node=source.node,
                stream=text_name(source.stream, number),
                start=span.start,
                end=span.end,
                lost=span.lost,
                lines=span.lines,
                note=span.note,
            )
        )

    def _hit(self, feed: _Feed, news: News, line: Line) -> LogHit:
        source = feed.sources[news.source]
        signature = source.signatures[line.known]
        written_ns = None
        if line.dated and news.at is not None:
            written_ns = feed.written[news.source].at(line.log_time, news.at, feed.host.offset_ns)
        return LogHit(
            t_ns=self._clock.now_ns(),
            src="probe:logs",
            node=source.node,
            stream=text_name(source.stream, news.text),
            signature=signature.id,
            klass=signature.klass,
            line=line.text,
            title=signature.title,
            offset=line.offset,
            key=line.key,
            side=signature.side,
            ends=signature.ends,
            upstream=signature.upstream,
            fixed_in=signature.fixed_in,
            log_time=line.log_time,
            written_ns=written_ns,
        )

    def _flush_counts(self) -> None:
        self._counted_ns = self._clock.now_ns()
        for counted in self._counted.values():
            if counted.sample is not None:
                key = counted.sample.key if counted.count == 1 else ""
                self._emit(msgspec.structs.replace(counted.sample, t_ns=self._counted_ns, count=counted.count, key=key))
                counted.count, counted.sample = 0, None


def _lost(node: str, from_ns: int, to_ns: int, cause: str) -> EvidenceLost:
    return EvidenceLost(
        t_ns=to_ns, src="probe:logs", probe="logs", node=node, from_ns=from_ns, to_ns=to_ns, cause=cause
    )
