"""Reads the servers' logs as they grow and reports the lines that a pack's signatures know.

Cursors are taken when the probe is made, before the run does anything, so lines of a former life never count. Files
are read in a thread, a bounded amount per look, so a flood of log lines cannot stall a canary's stamps.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.probes.pace import Pace
from chaos.engine.probes.scan import Scanner
from chaos.engine.probes.tail import Covered, Hit, LogTail
from chaos.model.events import EvidenceLost, LogCovered, LogHit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chaos.engine.ports import Clock, Emit
    from chaos.engine.probes.tail import News
    from chaos.model.pack import Signature

POLL_S = 0.2
BUDGET_BYTES = 8 << 20
"""Read per file and look: 40 MB/s; an engine under load writes below 2 MB/s."""
MAX_LINE_BYTES = 4 << 10
RAW_HITS = 200
"""Raw lines kept per signature and node; enough to see 100 aborts on two ranks, little enough for a journal."""
COUNT_EVERY_S = 1.0
COVERAGE_EVERY_S = 10.0
MAX_KEYS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """A log file of a node and the signatures that its lines may match."""

    node: str
    stream: str
    path: Path
    signatures: tuple[Signature, ...]


@dataclass(slots=True)
class _Followed:
    source: LogSource
    tail: LogTail
    blind_since_ns: int
    blind_cause: str = ""


@dataclass(slots=True)
class _Tally:
    """What is kept and counted of one signature on one node."""

    kept: int = 0
    pending: int = 0
    sample: LogHit | None = None
    keys: set[str] = field(default_factory=set)


class LogProbe:
    """Emits `LogHit`, `LogCovered` and `EvidenceLost` for the files it was given."""

    def __init__(self, sources: Sequence[LogSource], *, emit: Emit, clock: Clock, poll_s: float = POLL_S) -> None:
        self._emit = emit
        self._clock = clock
        self._poll_s = poll_s
        now_ns = clock.now_ns()
        self._files = [
            _Followed(source, LogTail(source.path, Scanner(source.signatures)), now_ns) for source in sources
        ]
        for file in self._files:
            file.blind_cause = file.tail.blind
        self._last_look_ns = now_ns
        self._tallies: dict[tuple[str, str], _Tally] = {}
        self._counted_ns = self._covered_ns = now_ns
        self._reading = asyncio.Lock()

    async def run(self) -> None:
        """Read until cancelled; after the last look call `finish`."""
        pace = Pace(self._clock, self._poll_s)
        while True:
            await pace.next()
            while await self.look():
                await self._clock.sleep(0)

    async def look(self) -> bool:
        """Read what is new in every file, up to the budget of one look; True when some file has more."""
        async with self._reading:
            more = False
            for file in self._files:
                more = await self._look_at(file) or more
            now_ns = self._last_look_ns = self._clock.now_ns()
        if now_ns - self._counted_ns >= COUNT_EVERY_S * 1e9:
            self._flush_counts()
        if now_ns - self._covered_ns >= COVERAGE_EVERY_S * 1e9:
            self.checkpoint()
        return more

    def checkpoint(self) -> None:
        """Emit what was covered since the last checkpoint: a range per readable file, empty ones too."""
        self._covered_ns = self._clock.now_ns()
        for file in self._files:
            if not file.blind_cause:
                self._emit_covered(file.source, file.tail.checkpoint())

    async def finish(self) -> None:
        """Read every file to where it ends now, and report the rest: counts, coverage, files never readable."""
        while await self.look():
            pass
        for file in self._files:
            for hit in file.tail.finish():
                self._hit(file.source, hit)
        self._flush_counts()
        self.checkpoint()
        for file in self._files:
            if file.blind_cause:
                self._lost(file, self._clock.now_ns())
        self.close()

    def close(self) -> None:
        """Let go of the files without a further look."""
        for file in self._files:
            file.tail.close()

    # ------------------------------------------------------------------------------------------ inside

    async def _look_at(self, file: _Followed) -> bool:
        """One look. A cancelled one still waits for its thread and reports what that read: the cursor has moved."""
        looking = asyncio.ensure_future(asyncio.to_thread(file.tail.look, BUDGET_BYTES))
        looking.add_done_callback(partial(self._looked, file))
        try:
            return (await asyncio.shield(looking)).more
        except asyncio.CancelledError:
            while not looking.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([looking])
            raise

    def _looked(self, file: _Followed, looking: asyncio.Future[News]) -> None:
        if not looking.cancelled() and looking.exception() is None:  # else whoever awaits it hears of it
            self._report(file, looking.result())

    def _report(self, file: _Followed, news: News) -> None:
        now_ns = self._clock.now_ns()
        if news.gap:
            self._emit(
                EvidenceLost(
                    t_ns=now_ns,
                    src="probe:logs",
                    probe="logs",
                    node=file.source.node,
                    from_ns=self._last_look_ns,
                    to_ns=now_ns,
                    cause=f"{file.source.stream} {news.gap}",
                )
            )
        for covered in news.covered:
            self._emit_covered(file.source, covered)
        for hit in news.hits:
            self._hit(file.source, hit)
        if news.blind and not file.blind_cause:
            file.blind_since_ns = self._last_look_ns
        elif not news.blind and file.blind_cause and file.blind_cause != "missing":
            self._lost(file, now_ns)  # a file that was not there and appeared is read from its beginning: nothing lost
        file.blind_cause = news.blind

    def _lost(self, file: _Followed, now_ns: int) -> None:
        self._emit(
            EvidenceLost(
                t_ns=now_ns,
                src="probe:logs",
                probe="logs",
                node=file.source.node,
                from_ns=file.blind_since_ns,
                to_ns=now_ns,
                cause=f"{file.source.stream}: {file.blind_cause}",
            )
        )

    def _emit_covered(self, source: LogSource, covered: Covered) -> None:
        self._emit(
            LogCovered(
                t_ns=self._clock.now_ns(),
                src="probe:logs",
                node=source.node,
                stream=source.stream,
                start=covered.start,
                end=covered.end,
                lost=covered.lost,
                lines=covered.lines,
                note=covered.note,
            )
        )

    def _hit(self, source: LogSource, hit: Hit) -> None:
        """Emit the first hits raw, count the rest.

        What is counted are lines, but of a signature that tells occurrences apart only those with a new key: the
        count then says how many things happened, not how many ranks told of them.
        """
        signature, key = hit.found.signature, hit.found.key
        tally = self._tallies.setdefault((source.node, signature.id), _Tally())
        echo = bool(key) and key in tally.keys
        if key and len(tally.keys) < MAX_KEYS:
            tally.keys.add(key)
        event = LogHit(
            t_ns=self._clock.now_ns(),
            src="probe:logs",
            node=source.node,
            stream=source.stream,
            signature=signature.id,
            klass=signature.klass,
            line=hit.found.line[:MAX_LINE_BYTES].decode(errors="replace"),
            title=signature.title,
            offset=hit.offset,
            key=key,
            side=signature.side,
            ends=signature.ends,
            upstream=signature.upstream,
            fixed_in=signature.fixed_in,
            log_time=hit.found.log_time,
        )
        if tally.kept < RAW_HITS:
            tally.kept += 1
            self._emit(event)
        elif not echo:
            tally.pending += 1
            tally.sample = event

    def _flush_counts(self) -> None:
        self._counted_ns = self._clock.now_ns()
        for tally in self._tallies.values():
            if tally.sample is not None:
                self._emit(
                    msgspec.structs.replace(
                        tally.sample,
                        t_ns=self._counted_ns,
                        count=tally.pending,
                        key=tally.sample.key if tally.pending == 1 else "",
                    )
                )
                tally.pending, tally.sample = 0, None
