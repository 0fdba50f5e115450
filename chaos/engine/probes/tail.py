"""Follows one log file that may be rotated, truncated, deleted, unreadable, or not there yet.

Synchronous: the log probe calls it from a thread. It keeps the file open, so a file that was renamed or deleted is
read to its end, and its inode cannot be given to another file meanwhile.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from chaos.engine.probes.scan import Found, Scanner, last_date

if TYPE_CHECKING:
    from pathlib import Path

BLOCK_BYTES = 256 << 10
"""Scanned in one go; small, because the scan holds the interpreter's lock."""
MAX_PARTIAL_BYTES = 1 << 20
"""A line without an end is taken for one line at this length: binary garbage must not fill our memory."""
MARK_BYTES = 64
"""The bytes before the offset are remembered: a file cut and grown beyond the offset shows other bytes there."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A known line and where in the file it begins."""

    found: Found
    offset: int


@dataclass(frozen=True, slots=True)
class Covered:
    """A range of one file that was read; `lost` bytes are known to have gone unread."""

    start: int
    end: int
    lines: int
    lost: int = 0
    note: str = ""


@dataclass(slots=True)
class News:
    """What one look at the file brought. `more` says that the budget ended before the file did."""

    hits: list[Hit] = field(default_factory=list)
    covered: list[Covered] = field(default_factory=list)
    blind: str = ""  # why the file cannot be read now
    gap: str = ""  # something between the last look and this one is lost
    more: bool = False


class LogTail:
    """A cursor in one log file, taken when this is made: what the file holds by then is never read."""

    def __init__(self, path: Path, scanner: Scanner) -> None:
        self._path = path
        self._scanner = scanner
        self._file: BinaryIO | None = None
        self._partial = b""
        self._date = ""
        self._mark = b""
        self._identity: tuple[int, int] | None = None
        self._offset = self._reported = self._lines = self._size = 0
        self._take_cursor()
        self.blind = self._open()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def look(self, budget: int) -> News:
        """Read and scan up to `budget` new bytes."""
        news = News()
        if self._file is None:
            news.blind = self.blind = self._open()
        if self._file is None:
            return news
        try:
            self._advance(self._file, budget, news)
        except OSError as error:
            news.blind = error.strerror or str(error)
            self.close()
        self.blind = news.blind
        return news

    def checkpoint(self, note: str = "") -> Covered:
        """What was covered since the last checkpoint."""
        if not note and not self._path.exists():
            note = "moved or deleted; the open file is still read"
        covered = Covered(self._reported, self._offset, self._lines, note=note)
        self._reported, self._lines = self._offset, 0
        return covered

    def finish(self) -> list[Hit]:
        """Scan the last line although it has no end: the process may have died while writing it."""
        rest, self._partial = self._partial, b""
        return self._scan(rest, self._offset - len(rest)) if rest else []

    # ------------------------------------------------------------------------------------------ inside

    def _take_cursor(self) -> None:
        """Remember where the file ends now, which needs no right to read it."""
        try:
            now = self._path.stat()
        except OSError:
            return  # not there yet: all it will hold is new
        self._identity = (now.st_dev, now.st_ino)
        self._offset = self._reported = self._size = now.st_size

    def _open(self) -> str:
        """Open the file at the cursor, another file at its beginning; the reason when it cannot be opened."""
        try:
            # Not a pipe or a device: opening one could block, and neither has an offset.
            if not self._path.is_file():
                return "not a regular file" if self._path.exists() else "missing"
            self._file = self._path.open("rb", buffering=0)
            now = os.fstat(self._file.fileno())
            identity = (now.st_dev, now.st_ino)
            if identity != self._identity:
                self._begin(identity)
            elif not self._mark and self._offset <= now.st_size:
                self._mark = os.pread(self._file.fileno(), MARK_BYTES, max(0, self._offset - MARK_BYTES))
                self._mark = self._mark[: min(MARK_BYTES, self._offset)]
        except OSError as error:
            self.close()
            return error.strerror or str(error)
        return ""

    def _begin(self, identity: tuple[int, int] | None) -> None:
        """Start at the beginning of a file, with nothing of another one left over."""
        self._identity = identity
        self._offset = self._reported = self._lines = self._size = 0
        self._partial = self._mark = b""

    def _advance(self, file: BinaryIO, budget: int, news: News) -> None:
        successor = self._successor(file)
        size = os.fstat(file.fileno()).st_size
        if size != self._size and self._was_cut(file, size):
            news.gap = "truncated: what was written between the last look and the cut is lost"
            news.hits += self.finish()
            news.covered.append(
                Covered(self._reported, self._offset, self._lines, max(0, self._size - self._offset), "truncated")
            )
            self._begin(self._identity)
        self._size = size
        while self._offset < size and budget > 0:
            block = os.pread(file.fileno(), min(BLOCK_BYTES, budget, size - self._offset), self._offset)
            if not block:
                break
            budget -= len(block)
            self._take(block, news)
        news.more = self._offset < size
        if successor and not news.more:
            # Whoever wrote the old file may do so until it opens the new one: that has bytes, so it is done here.
            self._leave(news, "rotated")
            news.more = True

    def _successor(self, file: BinaryIO) -> bool:
        """Whether another file with something in it has taken the path."""
        try:
            now = self._path.stat()
        except OSError:
            return False  # moved away or deleted: the old file may still be written to
        ours = os.fstat(file.fileno())
        return (now.st_dev, now.st_ino) != (ours.st_dev, ours.st_ino) and now.st_size > 0

    def _was_cut(self, file: BinaryIO, size: int) -> bool:
        if size < self._offset:
            return True
        return os.pread(file.fileno(), len(self._mark), self._offset - len(self._mark)) != self._mark

    def _take(self, block: bytes, news: News) -> None:
        self._offset += len(block)
        self._mark = (self._mark + block)[-MARK_BYTES:]
        text = self._partial + block
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if end == 0 and len(text) > MAX_PARTIAL_BYTES:
            end = len(text)
        whole, self._partial = text[:end], text[end:]
        if whole:
            news.hits += self._scan(whole, self._offset - len(text))

    def _scan(self, whole: bytes, offset: int) -> list[Hit]:
        self._lines += max(1, whole.count(b"\n"))
        hits = [Hit(found, offset + found.start) for found in self._scanner.scan(whole, self._date)]
        self._date = last_date(whole, 0, len(whole)) or self._date
        return hits

    def _leave(self, news: News, note: str) -> None:
        """Done with this file: report its range and go on with whatever has the path, from its beginning."""
        news.hits += self.finish()
        news.covered.append(self.checkpoint(note))
        self.close()
        self._begin(None)
