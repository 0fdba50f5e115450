"""Follows what a command prints: any command of the target's owner, or one that asks a log service of the host.

Both streams are read, as two texts; offsets are counts of bytes. A command that ends is started again, ever more
patiently. A service is asked for what it had to say meanwhile; of any other command that is lost, and what it prints
at first may be the past (`history.py`).
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from chaos.outpost import commands, history, wraps
from chaos.outpost.lines import MAX_PARTIAL_BYTES, Lines
from chaos.outpost.news import News, Range
from chaos.outpost.recent import Recent, forget, remember
from chaos.outpost.running import PIPE_BYTES, Running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.outpost.budget import Budget
    from chaos.outpost.news import Cursor
    from chaos.outpost.scan import Scanner

OUT, ERR = 0, 1
BLOCK_BYTES = 256 << 10
PROVEN_S = 1.0
"""A command that has lived so long, or printed anything, is not one that fails at once."""
AGAIN_S, AGAIN_MOST_S = 1.0, 30.0
STEADY_S = 10.0
"""After living so long its next failure is a first one."""
LATE_S = 2.0
"""Whoever fills the pipe for so long faster than it may be scanned is read without being scanned."""
UNSCANNED_BYTES = 32 << 20
QUIET_S, FINISH_S = 0.3, 1.5
"""At the end: how long nothing must have come, and how long that is waited for."""
CAUSE_BYTES = 200


class _Pipe:
    """One stream of the command: the bytes of a line that has not ended, and the lines before it."""

    def __init__(self, scanner: Scanner, again: wraps.Again, offset: int, past: history.Past) -> None:
        self.lines = Lines(scanner, offset)
        self.again = again
        self.past = past
        self.opening = False
        self.partial = b""
        self.reported = offset
        self.open = False
        self.first = ""  # line of this life

    def take(self, block: bytes) -> list[Any]:
        """Scan what is whole of it, without what was read in a former life."""
        if not self.first:
            self.first = block.strip().split(b"\n", 1)[0][:CAUSE_BYTES].decode(errors="replace")
        if self.again.everything:
            return self._news(block, self.lines.take(block))
        text = self.partial + block
        end = text.rfind(b"\n") + 1 or (len(text) if len(text) > MAX_PARTIAL_BYTES else 0)
        whole, self.partial = text[:end], text[end:]
        return self.lines.take(self.again.fresh(whole)) if whole else []

    def end(self) -> list[Any]:
        """The last line although it has no end."""
        rest, self.partial = self.partial, b""
        hits = self.lines.take(self.again.fresh(rest)) if rest else []
        hits += self.lines.finish()
        return self._news(b"", hits) if self.again.everything else hits

    def report(self, note: str = "", lost: int = 0) -> Range:
        """What was read since the last report."""
        told = Range(self.reported, self.lines.offset, self.lines.count, lost, note or self.past.note, bool(note))
        self.reported, self.lines.count = self.lines.offset, 0
        return told

    def _news(self, block: bytes, hits: list[Any]) -> list[Any]:
        return self.past.read(block, hits, self.lines.date, history.now(), opening=self.opening)


class PrintedSource:
    """A command. Its cursors are those of its two streams."""

    def __init__(self, kind: str, what: str, scanner: Scanner, cursors: dict[str, Any], run: str) -> None:
        self._kind, self._what, self._run = kind, what, run
        self._began_ns = min((cursor["since"] for cursor in cursors.values() if cursor), default=time.time_ns())
        self._pipes = [self._piped(scanner, cursors.get(str(text)) or {}) for text in (OUT, ERR)]
        self._recent = [Recent(), Recent()]
        remember(kind, what, self._recent)
        self._gap = ""
        if not wraps.resumes(kind) and any("offset" in (cursor or {}) for cursor in cursors.values()):
            self._gap = "what it printed while nobody listened is lost"
        self._running: Running | None = None
        self._started_s = self._next_s = self._late_s = self._quiet_s = 0.0
        self._patience_s = AGAIN_S
        self._cause = ""
        self._finish_s: float | None = None

    def look(self, budget: Budget, most: int) -> Iterator[tuple[int, News]]:
        """As every source."""
        now_s = time.monotonic()
        if self._running is None and now_s >= self._next_s and self._finish_s is None:
            self._start(now_s)
        news = [News(), News()]
        news[OUT].gap, self._gap = self._gap, ""
        full = False
        if self._running is not None:
            for text, fd in ((OUT, self._running.out), (ERR, self._running.err)):
                full = self._read(text, fd, budget, most, news[text]) or full
            self._judge(self._running, now_s, news)
            self._settle(now_s, news, full=full)
        self._late_s = self._late_s if full else 0.0
        for text in (OUT, ERR):
            pipe = self._pipes[text]
            news[text].ranges.append(pipe.report())
            news[text].more = full or self._waits(now_s)
            if text == OUT or pipe.lines.offset:
                news[text].blind, news[text].whole = self._cause if text == OUT else "", wraps.resumes(self._kind)
                yield text, news[text]

    def cursor(self, text: int) -> Cursor | None:
        """As every source."""
        pipe = self._pipes[text]
        return {
            "since": self._since_ns(),
            "seen": dict(pipe.again.seen),
            "offset": pipe.lines.begun,
            "last": pipe.past.last,
        }

    def stop_here(self) -> None:
        """As every source."""
        self._finish_s = self._quiet_s = time.monotonic()

    def finish(self) -> Iterator[tuple[int, News]]:
        """As every source."""
        brought = [News(), News()]
        for text in (OUT, ERR):
            brought[text].hits = self._pipes[text].end()
        self._settle(None, brought)
        for text in (OUT, ERR):
            pipe, news = self._pipes[text], brought[text]
            news.ranges.append(pipe.report())
            if text == OUT or pipe.lines.offset:
                news.blind, news.whole = self._cause if text == OUT else "", wraps.resumes(self._kind)
                yield text, news

    def close(self) -> None:
        """As every source."""
        forget(self._kind, self._what, self._recent)
        self._end()

    # ------------------------------------------------------------------------------------------ inside

    def _piped(self, scanner: Scanner, cursor: Cursor) -> _Pipe:
        again = wraps.Again(wraps.WRAPS.get(self._kind), cursor.get("seen", {}))
        past = history.Past(self._began_ns, cursor.get("last") or ("", 0))
        return _Pipe(scanner, again, cursor.get("offset", 0), past)

    def _since_ns(self) -> int:
        """From when on it is asked for: a little before the last line that was read."""
        last_ns = max(pipe.again.last_ns() for pipe in self._pipes)
        return max(self._began_ns, last_ns - int(wraps.OVERLAP_S * 1e9))

    def _start(self, now_s: float) -> None:
        for pipe in self._pipes:
            pipe.again = wraps.Again(wraps.WRAPS.get(self._kind), pipe.again.seen)
            pipe.open, pipe.first, pipe.opening = True, "", pipe.again.everything
            if pipe.opening:
                pipe.past.again()
                pipe.lines.date = ""
        self._started_s = self._quiet_s = now_s
        try:
            self._running = Running(wraps.argv(self._kind, self._what, self._since_ns()), self._run)
        except (OSError, ValueError) as error:
            self._failed(now_s, str(error))

    def _end(self) -> None:
        if self._running is not None:
            self._running.end()
            self._running = None

    def _failed(self, now_s: float, cause: str) -> None:
        self._cause = cause
        self._patience_s = AGAIN_S if now_s - self._started_s > STEADY_S else self._patience_s
        self._next_s = now_s + self._patience_s
        self._patience_s = min(AGAIN_MOST_S, self._patience_s * 2)

    def _read(self, text: int, fd: int, budget: Budget, most: int, news: News) -> bool:
        """Read what is there, within the budget; whether there is more."""
        pipe = self._pipes[text]
        while pipe.open:
            count = min(BLOCK_BYTES, most, budget.left())
            if not count:
                return self._beyond(pipe, fd, budget, news)
            block = _read(fd, count)
            if block is None:
                return False
            pipe.open = bool(block)
            most -= len(block)
            budget.spend(len(block))
            self._quiet_s = time.monotonic()
            self._recent[text].keep(block)
            news.hits += pipe.take(block) if block else pipe.end()
        return False

    def _beyond(self, pipe: _Pipe, fd: int, budget: Budget, news: News) -> bool:
        """There is more than may be read. Where that lasts, it is read without being scanned: the last says most."""
        now_s = time.monotonic()
        if budget.left() or self._finish_s is not None:
            return True  # the next look has it
        self._late_s = self._late_s or now_s
        if now_s - self._late_s < LATE_S:
            return True  # it waits for us; the pipe holds what it prints
        skipped = len(pipe.partial)
        pipe.partial = b""
        while skipped < UNSCANNED_BYTES:
            block = _read(fd, PIPE_BYTES)
            if not block:
                break
            skipped += len(block)
        if skipped:
            news.gap = f"printed faster than it could be read: {skipped} bytes were skipped"
            news.ranges.append(pipe.report("skipped ahead", skipped))
            pipe.lines.skip(pipe.lines.offset + skipped)
            pipe.reported = pipe.lines.offset
        return True

    def _judge(self, running: Running, now_s: float, news: list[News]) -> None:
        """Whether it has ended, or has shown that it works."""
        status = running.status()
        over = status is not None and not any(pipe.open for pipe in self._pipes)
        if status is not None and not over and now_s - self._quiet_s > PROVEN_S:
            over = True  # a descendant keeps a pipe open and prints nothing
        if over:
            for text in (OUT, ERR):
                news[text].hits += self._pipes[text].end()
            self._end()
            self._failed(now_s, self._pipes[ERR].first or f"it ended with status {status}")
        elif self._pipes[OUT].first or (status is None and now_s - self._started_s > PROVEN_S):
            self._cause = ""

    def _settle(self, now_s: float | None, news: list[News], *, full: bool = False) -> None:
        """Once it has paused, or is over (`now_s` is None or it does not run), what it prints is not the past."""
        if now_s is not None and self._running is not None:
            begun = any(pipe.first for pipe in self._pipes) and not full
            paused = begun and now_s - self._quiet_s >= history.PAUSE_S
            if not paused and now_s - self._started_s < history.OPENING_S:
                return
        past = any(pipe.past.begins for pipe in self._pipes)
        for text in (OUT, ERR):
            pipe = self._pipes[text]
            if pipe.opening:
                pipe.opening = False
                news[text].hits += pipe.past.settle(past=past)

    def _waits(self, now_s: float) -> bool:
        """Whether, at the end, more may still be on its way."""
        if self._finish_s is None or self._running is None:
            return False
        return now_s - self._quiet_s < QUIET_S and now_s - self._finish_s < FINISH_S


def _read(fd: int, count: int) -> bytes | None:
    """Up to so many bytes; None when there are none now, empty at the end."""
    with contextlib.suppress(BlockingIOError):
        return os.read(fd, count)
    return None


def _holds(unit: str) -> bool:
    """Whether the journal has any line of a unit: journalctl follows one that does not exist without a word."""
    done = commands.run(["journalctl", f"--unit={unit}", "--lines=1", "--output=cat", "--quiet", "--no-pager"])
    return bool(done.stdout.strip())


def complaint(kind: str, what: str, run: str, within_s: float) -> str:
    """Why a command does not print a log: what it says when it ends soon; empty when it runs on."""
    if kind == "journald" and not _holds(what):
        return "the journal shows no line of this unit: is it called so, and may this user read the journal?"
    try:
        running = Running(wraps.argv(kind, what, time.time_ns()), run)
    except (OSError, ValueError) as error:
        return str(error)
    until_s = time.monotonic() + within_s
    try:
        while running.status() is None and time.monotonic() < until_s:
            time.sleep(0.02)
        status = running.status()
        if status is None:
            return ""
        said = (_read(running.err, BLOCK_BYTES) or _read(running.out, BLOCK_BYTES) or b"").strip().split(b"\n")[0]
        return said[:CAUSE_BYTES].decode(errors="replace") or f"it ends at once, with status {status}"
    finally:
        running.end()
