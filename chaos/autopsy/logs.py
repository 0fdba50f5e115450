"""A log file as evidence: what its lines mean, what numbers they tell, and how much of it nobody can read.

Lines without a stamp (tracebacks on stderr, progress bars) are dated by the last stamp before them; those before the
first one by that. Order within a file is kept, for ranks and clocks differ by less than people think it matters.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chaos.engine.probes.follow import known_lines
from chaos.engine.probes.knowledge import known_signatures
from chaos.engine.probes.literals import required_literal
from chaos.model import events as ev
from chaos.outpost.scan import Scanner, stamp_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.autopsy.clock import ImportClock
    from chaos.engine.probes.stamps import Stamps
    from chaos.model.pack import LineReading, Pack

MAX_BYTES = 256 << 20
"""A log is read as a whole; who has more cuts it to the time watched."""
MAX_LINE_BYTES = 4 << 10
RAW_HITS = 200
"""Raw lines kept per signature and node, as in a run of ours; further occurrences are counted."""
SHOWN_UNPARSED = 3

_ACCESS = re.compile(rb'"GET (/[^ "?]*)[^"]* HTTP/[0-9.]+" ([0-9]{3})')
_LEVEL = re.compile(rb"(?:\([^()\n]{1,40} pid=[0-9]{1,10}\) )?(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL): ")
_BAR = re.compile(rb"[^\n]{0,80}[0-9]{1,3}%\|")
_TRACEBACK = (b"Traceback (most recent call last):", b"Exception in thread ")
_CHAINED = (b"During handling of the above exception", b"The above exception was the direct cause")


class NoStamps(ValueError):
    """Not one line of the file has a stamp, so nothing in it can be dated."""


@dataclass(frozen=True, slots=True)
class LogRead:
    """What was read of one log, for people. Empty lines are not counted; what a progress bar overwrites is."""

    node: str
    file: str
    lines: int  # in the time watched
    outside: int  # lines from before or after it
    known: int  # lines that tell something: a signature or a reading knows them, or health was asked
    unparsed: tuple[int, ...]  # numbers of lines whose form nobody knows

    @property
    def counted(self) -> str:
        """Every line of the file once."""
        plain = self.lines - self.known - len(self.unparsed)
        parts = [f"{self.known} used as evidence", f"{plain} without meaning for it"]
        parts += [f"{len(self.unparsed)} that could not be read"] if self.unparsed else []
        parts += [f"{self.outside} from before or after the time watched"] if self.outside else []
        return f"{self.node}: {self.file}: {_lines(self.lines + self.outside)}: {', '.join(parts)}"

    @property
    def told(self) -> str:
        """One clause about what could not be read; empty when there is nothing."""
        if not self.unparsed:
            return ""
        first = ", ".join(map(str, self.unparsed[:SHOWN_UNPARSED])) + (", ..." * (len(self.unparsed) > SHOWN_UNPARSED))
        number = f"{len(self.unparsed)} of {self.lines} lines of {self.file}"
        return f"{self.node}: {number} could not be read (line{'s' * (len(self.unparsed) > 1)} {first})"


@dataclass(frozen=True, slots=True)
class LogText:
    """One log and how to read it."""

    node: ev.Node
    file: str
    pack: Pack
    body: bytes
    stamps: Stamps
    until_ns: int | None  # since the epoch: when it was copied


@dataclass(slots=True)
class _Lines:
    """The lines of a file with the moment of each (nanoseconds since the epoch)."""

    starts: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # as an editor counts them
    texts: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    stamps: list[str] = field(default_factory=list)  # the last one up to each line

    def at(self, offset: int) -> int:
        """The index of the line that holds a byte."""
        return bisect_right(self.starts, offset) - 1


def read_log(log: LogText, clock: ImportClock) -> tuple[list[ev.AnyEvent], LogRead]:
    """Everything one log tells. Raises `NoStamps`."""
    lines = _dated(log)
    watched = [clock.watched(at) for at in lines.times]
    known: set[int] = set()
    events: list[ev.AnyEvent] = list(_hits(log, lines, watched, clock, known))
    others: list[tuple[int, ev.AnyEvent]] = [*_levels(log, lines, watched, clock), *_health(log, lines, watched, clock)]
    known |= {index for index, _ in others}
    events += [event for _, event in others]
    unparsed = [i for i in _unparsed(lines) if watched[i] and i not in known]
    within = sum(watched)
    filled = sum(bool(text.strip()) for text, inside in zip(lines.texts, watched, strict=True) if inside)
    outside = sum(bool(text.strip()) for text in lines.texts) - filled
    last_ns = max((at for at, inside in zip(lines.times, watched, strict=True) if inside), default=clock.since_ns)
    until_ns = last_ns if log.until_ns is None else min(max(log.until_ns, last_ns), clock.until_ns)
    if within or log.until_ns is not None:
        events.append(
            ev.LogCovered(
                t_ns=clock.on_journal(until_ns),
                src="import:logs",
                node=log.node.id,
                stream=log.file,
                start=0,
                end=len(log.body),
                lines=filled,
                unparsed=len(unparsed),
                note=f"{_lines(outside)} from outside the time watched" if outside else "",
            )
        )
    told = LogRead(log.node.id, log.file, filled, outside, len(known), tuple(lines.numbers[i] for i in unparsed))
    return events, told


def _lines(number: int) -> str:
    return f"{number} line{'s' * (number != 1)}"


def _dated(log: LogText) -> _Lines:
    lines = _Lines()
    start, stamp, at, same = 0, "", -1, 0
    for number, whole in enumerate(log.body.split(b"\n"), 1):
        for text in whole.split(b"\r"):  # progress bars write many lines into one
            written = stamp_of(text)
            read = log.stamps.epoch_ns(written) if written else None
            if read is not None and (read, written) != (at, stamp):
                at, stamp, same = read, written, 0
            lines.starts.append(start)
            lines.numbers.append(number)
            lines.texts.append(text)
            # In one and the same second the order of the file is the order of things.
            lines.times.append(at if at < 0 else at + same)
            lines.stamps.append(stamp)
            start, same = start + len(text) + 1, same + 1
    if at < 0:
        raise NoStamps
    first = next(time for time in lines.times if time >= 0)
    ahead = lines.times.index(first)
    lines.times[:ahead] = [first - ahead + i for i in range(ahead)]
    return lines


def _hits(log: LogText, lines: _Lines, watched: list[bool], clock: ImportClock, known: set[int]) -> Iterator[ev.LogHit]:
    """Lines that a signature knows; `known` takes the indices of all of them, of the further ones, too."""
    kept: dict[str, int] = defaultdict(int)
    keys: dict[str, set[str]] = defaultdict(set)
    further: dict[str, tuple[ev.LogHit, int]] = {}
    signatures = known_signatures(log.pack, log.node.role, log.node.version)
    for found in Scanner(known_lines(signatures)).scan(log.body):
        index = lines.at(found.start)
        if not watched[index]:
            continue
        known.add(index)
        signature = signatures[found.known]
        hit = ev.LogHit(
            t_ns=clock.on_journal(lines.times[index]),
            src="import:logs",
            node=log.node.id,
            stream=log.file,
            signature=signature.id,
            klass=signature.klass,
            line=found.line[:MAX_LINE_BYTES].decode(errors="replace"),
            title=signature.title,
            offset=found.start,
            key=found.key,
            side=signature.side,
            ends=signature.ends,
            upstream=signature.upstream,
            fixed_in=signature.fixed_in,
            log_time=lines.stamps[index],
        )
        echo = bool(found.key) and found.key in keys[signature.id]
        keys[signature.id].add(found.key)
        kept[signature.id] += 1
        if kept[signature.id] <= RAW_HITS:
            yield hit
        elif not echo:
            number = further[signature.id][1] if signature.id in further else 0
            further[signature.id] = (hit, number + 1)
    for hit, number in further.values():
        yield _counted(hit, number)


def _counted(hit: ev.LogHit, number: int) -> ev.LogHit:
    """The last of several occurrences, standing for all of them."""
    fields = {name: getattr(hit, name) for name in hit.__struct_fields__}
    return ev.LogHit(**{**fields, "count": number, "key": hit.key if number == 1 else ""})


def _levels(
    log: LogText, lines: _Lines, watched: list[bool], clock: ImportClock
) -> Iterator[tuple[int, ev.LevelsTold]]:
    readings = [
        (reading, re.compile(reading.pattern), (required_literal(reading.pattern) or "").encode())
        for reading in log.pack.readings
        if log.node.role in reading.roles
    ]
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for index, text in enumerate(lines.texts):
        for reading, pattern, literal in readings:
            match = pattern.search(text.decode(errors="replace")) if literal in text else None
            if match is None or not watched[index]:
                continue
            samples = _samples(log, reading, match, lines.times[index], lines.stamps[index], sums, clock)
            yield (
                index,
                ev.LevelsTold(
                    t_ns=clock.on_journal(lines.times[index]),
                    src="import:logs",
                    node=log.node.id,
                    by="log",
                    samples=tuple(samples),
                ),
            )
            break


def _samples(
    log: LogText,
    reading: LineReading,
    match: re.Match[str],
    at_ns: int,
    stamp: str,
    sums: dict[tuple[str, str], float],
    clock: ImportClock,
) -> Iterator[ev.Sample]:
    rank = (match.groupdict().get("rank") or "").strip()
    labels = f"logged,rank={rank}" if rank else "logged"  # a scrape's series are others, with other words for ranks
    for level in reading.levels:
        text = match[level.group]
        if level.kind == "clock":
            last = log.stamps.clock_ns(text, at_ns, stamp)
            if last is not None:
                # Counted from the stamp's own second: a heartbeat has no finer clock than that.
                yield ev.Sample(name=level.metric, labels=labels, value=clock.on_journal(last) // 1_000_000_000)
            continue
        value = float(text)
        if level.kind == "sum":
            sums[level.metric, labels] += value
            value = sums[level.metric, labels]
        yield ev.Sample(name=level.metric, labels=labels, value=value)


def _health(log: LogText, lines: _Lines, watched: list[bool], clock: ImportClock) -> Iterator[tuple[int, ev.Liveness]]:
    """What health endpoints answered, by the server's own access log."""
    endpoints = set(log.pack.endpoints.liveness)
    for index, text in enumerate(lines.texts):
        match = _ACCESS.search(text) if watched[index] else None
        if match is not None and match[1].decode(errors="replace") in endpoints:
            yield (
                index,
                ev.Liveness(
                    t_ns=clock.on_journal(lines.times[index]),
                    src="import:logs",
                    node=log.node.id,
                    endpoint=match[1].decode(),
                    status=int(match[2]),
                    took_ms=0.0,
                ),
            )


def _unparsed(lines: _Lines) -> Iterator[int]:
    """Lines that have no stamp and no level, and are neither a progress bar nor part of a traceback."""
    traceback = False
    for index, text in enumerate(lines.texts):
        if any(head in text for head in _TRACEBACK) or text.startswith(_CHAINED):
            traceback = True
        elif not text.strip() or stamp_of(text) or _LEVEL.match(text) or _BAR.match(text):
            traceback = traceback and not text.strip()
        elif text[:1] in (b" ", b"\t") and traceback:
            pass
        elif traceback:
            traceback = False  # the exception itself ends its traceback
        else:
            yield index
