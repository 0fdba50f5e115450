"""Follows one log file that may be rotated, truncated, deleted, unreadable, or not there yet.

It keeps the file open, so a file that was renamed or deleted is read to its end, and its inode cannot be given to
another file meanwhile. Who was away (a connection was cut) goes on with a cursor: the file is found by its inode, also
when it was renamed in its folder by then.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from chaos.outpost.lines import Lines
from chaos.outpost.news import News, Range

if TYPE_CHECKING:
    from chaos.outpost.budget import Budget
    from chaos.outpost.lines import Hit
    from chaos.outpost.news import Cursor
    from chaos.outpost.scan import Scanner

BLOCK_BYTES = 256 << 10
"""Scanned in one go; small, because the scan holds the interpreter's lock."""
MARK_BYTES = 64
"""The bytes before the offset are remembered: a file cut and grown beyond the offset shows other bytes there."""
BEHIND_BYTES = 64 << 20
"""Further behind than this the reader skips ahead: seconds at the rate that it may read at."""
KEPT_BYTES = 8 << 20
"""What is still read of the end then: what was written last says most."""
MISSING = "missing"
GONE = "replaced while nobody could read it, and the former file is gone"

Identity = tuple[int, int]


class LogTail:
    """A cursor in one log file, taken when this is made unless one is given: what the file holds by then is never read.

    One that `stays` follows this very file wherever it is moved to, and no other that takes its path.
    """

    def __init__(self, path: Path, scanner: Scanner, cursor: Cursor | None = None, *, stays: bool = False) -> None:
        self._path = path
        self._stays = stays
        self._file: BinaryIO | None = None
        self._detour: list[Path] = []  # files that had the path while nobody looked, oldest first
        self._until: int | None = None
        self._finishing = False
        self._gap = ""
        cursor = cursor_of(path) if cursor is None else cursor
        self.identity: Identity | None = (cursor["dev"], cursor["ino"]) if "ino" in cursor else None
        self._mark = bytes.fromhex(cursor.get("mark", ""))
        self._was_away = "mark" in cursor  # else it was taken, and nothing was read yet
        self._lines = Lines(scanner, cursor.get("offset", 0), cursor.get("date", ""))
        self._reported = self._lines.offset
        self._size = cursor.get("size", self._lines.offset)
        self.blind = self._open()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def readable(self) -> bool:
        """Whether it is open."""
        return self._file is not None

    @property
    def linked(self) -> bool:
        """Whether the path still leads to a file: a pipe or a device in its place is nothing that we would open."""
        return self._path.is_file()

    @property
    def cursor(self) -> Cursor:
        """Where to read on. A line that has not ended is read again, whole."""
        if self.identity is None:
            return {}
        begun = self._lines.begun
        mark = self._mark[: max(0, len(self._mark) - (self._lines.offset - begun))]  # what is before that line
        dev, ino = self.identity
        return {
            "dev": dev,
            "ino": ino,
            "offset": begun,
            "mark": mark.hex(),
            "size": self._size,
            "date": self._lines.date,
        }

    def look(self, budget: Budget, most: int) -> News:
        """Read and scan what is new, up to `most` bytes and what the budget has left."""
        news = News()
        if self._file is None:
            news.blind = self.blind = self._open()
        news.gap, self._gap = self._gap, ""
        if self._file is None:
            news.whole = news.blind == MISSING
            return news
        try:
            self._advance(self._file, budget, most, news)
        except OSError as error:
            news.blind = error.strerror or str(error)
            self.close()
        self.blind = news.blind
        return news

    def report(self, note: str = "", lost: int = 0) -> Range:
        """What was read since the last report; with a note it ends there."""
        ends = bool(note)
        if not note and not self.linked:
            note = "moved or deleted; the open file is still read"
        told = Range(self._reported, self._lines.offset, self._lines.count, lost, note, ends)
        self._reported, self._lines.count = self._lines.offset, 0
        return told

    def stop_here(self) -> None:
        """From now on read no further than the file reaches now."""
        self._finishing = True
        if self._file is not None:
            self._until = os.fstat(self._file.fileno()).st_size

    def finish(self) -> list[Hit]:
        """Scan the last line although it has no end."""
        return self._lines.finish()

    @property
    def unread(self) -> int:
        """Bytes between the cursor and where it was told to stop."""
        return 0 if self._until is None or self._file is None else max(0, self._until - self._lines.offset)

    # ------------------------------------------------------------------------------------------ inside

    def _open(self) -> str:
        """Open the file at the cursor, another file at its beginning; the reason when it cannot be opened."""
        try:
            path = self._where()
            # Not a pipe or a device: opening one could block, and neither has an offset.
            if not path.is_file():
                return "not a regular file" if path.exists() else MISSING
            self._file = path.open("rb", buffering=0)
            now = os.fstat(self._file.fileno())
            identity = (now.st_dev, now.st_ino)
            if identity != self.identity:
                if self.identity is not None and not self._detour:
                    self._gap = GONE
                self._begin(identity)
            elif not self._mark and self._lines.offset <= now.st_size:
                start = max(0, self._lines.offset - MARK_BYTES)
                self._mark = os.pread(self._file.fileno(), self._lines.offset - start, start)
            self._until = now.st_size if self._finishing else None
        except OSError as error:
            self.close()
            return error.strerror or str(error)
        return ""

    def _where(self) -> Path:
        """Where the file is that comes next: at its path, unless it was moved or others had the path meanwhile."""
        if self._detour:
            return self._detour[0]
        if self.identity is None or identity_of(self._path) == self.identity:
            return self._path
        return next((path for path in _siblings(self._path) if identity_of(path) == self.identity), self._path)

    def _begin(self, identity: Identity | None) -> None:
        """Start at the beginning of a file, with nothing of another one left over."""
        self.identity = identity
        self._lines.skip(0)
        self._reported = self._lines.count = self._size = 0
        self._mark = b""

    def _advance(self, file: BinaryIO, budget: Budget, most: int, news: News) -> None:
        successor = self._successor(file)
        size = os.fstat(file.fileno()).st_size
        if size != self._size and self._was_cut(file, size):
            news.gap += "truncated: what was written between the last look and the cut is lost"
            news.hits += self.finish()
            news.ranges.append(self.report("truncated", max(0, self._size - self._lines.offset)))
            self._begin(self.identity)
        self._size = size
        end = size if self._until is None else min(size, self._until)
        if end - self._lines.offset > BEHIND_BYTES:
            self._skip(file, end - KEPT_BYTES, news)
        while self._lines.offset < end:
            count = min(BLOCK_BYTES, most, budget.left(), end - self._lines.offset)
            block = os.pread(file.fileno(), count, self._lines.offset) if count else b""
            if not block:
                break
            most -= len(block)
            budget.spend(len(block))
            self._mark = (self._mark + block)[-MARK_BYTES:]
            news.hits += self._lines.take(block)
        news.more = self._lines.offset < end
        if successor and not news.more:
            # Whoever wrote the old file may do so until it opens the new one: that has bytes, so it is done here.
            self._leave(file, news)
            news.more = True

    def _successor(self, file: BinaryIO) -> bool:
        """Whether another file with something in it has taken the path."""
        if self._stays:
            return False
        try:
            now = self._path.stat()
        except OSError:
            return False  # moved away or deleted: the old file may still be written to
        ours = os.fstat(file.fileno())
        return (now.st_dev, now.st_ino) != (ours.st_dev, ours.st_ino) and now.st_size > 0

    def _was_cut(self, file: BinaryIO, size: int) -> bool:
        if size < self._lines.offset:
            return True
        return os.pread(file.fileno(), len(self._mark), self._lines.offset - len(self._mark)) != self._mark

    def _skip(self, file: BinaryIO, to: int, news: News) -> None:
        lost = to - self._lines.offset
        news.gap += f"grew faster than it could be read: {lost} bytes were skipped"
        news.ranges.append(self.report("skipped ahead", lost))
        self._lines.skip(to)
        self._reported = to
        self._mark = os.pread(file.fileno(), MARK_BYTES, to - MARK_BYTES)

    def _leave(self, file: BinaryIO, news: News) -> None:
        """Done with this file: report its range and go on with whatever has the path, from its beginning."""
        news.hits += self.finish()
        news.ranges.append(self.report("rotated"))
        if self._detour:
            self._detour.pop(0)
        elif self._was_away:
            self._detour = _between(self._path, os.fstat(file.fileno()))
        self._was_away = False
        self.close()
        self._begin(None)


def cursor_of(path: Path) -> Cursor:
    """Where the file ends now, which needs no right to read it; empty when it is not there: all it will hold is new."""
    try:
        now = path.stat()
    except OSError:
        return {}
    return {"dev": now.st_dev, "ino": now.st_ino, "offset": now.st_size, "size": now.st_size}


def identity_of(path: Path) -> Identity | None:
    """Which file is at a path; None for none."""
    try:
        now = path.stat()
    except OSError:
        return None
    return now.st_dev, now.st_ino


def _siblings(path: Path) -> list[Path]:
    """The files beside a path."""
    try:
        return [Path(entry.path) for entry in os.scandir(path.parent) if entry.is_file(follow_symlinks=False)]
    except OSError:
        return []


def _between(path: Path, former: os.stat_result) -> list[Path]:
    """Files that were rotated away after a former one and before the present one, by name and age; oldest first."""
    now = identity_of(path)
    found = []
    for sibling in _siblings(path):
        if sibling.name.startswith(path.name) and sibling.suffix not in {".gz", ".zst", ".xz", ".bz2"}:
            stat = sibling.stat()
            if (stat.st_dev, stat.st_ino) not in {now, (former.st_dev, former.st_ino)}:
                found.append((stat.st_mtime_ns, sibling))
    return [sibling for written, sibling in sorted(found) if written > former.st_mtime_ns]
