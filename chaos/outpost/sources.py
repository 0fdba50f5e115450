"""Where a log comes from, one face for all kinds: a file, every file that a glob matches.

A source has texts, numbered from 0; a plain file has one. Of a glob's files each is a text from 1 up, in the order in
which they were found (numbers and not names, for names may tell of hosts), and 0 speaks of the glob itself.
"""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from chaos.outpost.news import News
from chaos.outpost.tail import MISSING, LogTail, cursor_of, identity_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.outpost.budget import Budget
    from chaos.outpost.news import Cursor
    from chaos.outpost.scan import Scanner
    from chaos.outpost.tail import Identity

FILE = "file"
MAX_FILES = 64
"""Of one glob, open at once."""
NO_MATCH = "no file matches"

Cursors = dict[str, Any]
"""The cursor of each text, by its number."""


class Source(Protocol):
    """What is followed. The methods are called by one thread."""

    def look(self, budget: Budget, most: int) -> Iterator[tuple[int, News]]:
        """What each text brings, `most` bytes together."""

    def cursor(self, text: int) -> Cursor | None:
        """Where to read on in a text; None once it is done with."""

    def stop_here(self) -> None:
        """From now on read no further than everything reaches now."""

    def finish(self) -> Iterator[tuple[int, News]]:
        """What is left to say once there is no more to read."""

    def close(self) -> None:
        """Let go of it."""


class FileSource:
    """One path."""

    def __init__(self, path: str, scanner: Scanner, cursors: Cursors) -> None:
        self._tail = LogTail(Path(path), scanner, cursors.get("0"))

    def look(self, budget: Budget, most: int) -> Iterator[tuple[int, News]]:
        """As every source."""
        yield 0, _looked(self._tail, budget, most)

    def cursor(self, text: int) -> Cursor | None:  # noqa: ARG002 - there is one
        """As every source."""
        return self._tail.cursor

    def stop_here(self) -> None:
        """As every source."""
        self._tail.stop_here()

    def finish(self) -> Iterator[tuple[int, News]]:
        """As every source."""
        yield 0, _finished(self._tail)

    def close(self) -> None:
        """As every source."""
        self._tail.close()


class GlobSource:
    """Every file that a pattern matches, told apart by inode: a file that is renamed is not read twice."""

    def __init__(self, pattern: str, scanner: Scanner, cursors: Cursors) -> None:
        self._pattern, self._scanner = pattern, scanner
        self._paths: dict[int, Path] = {}
        self._tails: dict[int, LogTail] = {}
        self._left_out: set[Identity | None] = set()
        self._last = max((int(text) for text in cursors), default=0)
        here = {(now["dev"], now["ino"]): path for path, now in _present(pattern)}
        for text, cursor in cursors.items():
            if cursor is not None and text != "0":
                path = here.get((cursor["dev"], cursor["ino"]), Path(cursor["path"]))
                self._follow(int(text), path, cursor)

    def look(self, budget: Budget, most: int) -> Iterator[tuple[int, News]]:
        """As every source."""
        of_all = News()
        of_all.gap = self._find()
        if not self._tails:
            of_all.blind, of_all.whole = NO_MATCH, True
        yield 0, of_all
        each = most // max(1, len(self._tails))
        for text, tail in sorted(self._tails.items(), key=lambda one: -one[0]):
            news = _looked(tail, budget, each)
            if news.blind == MISSING:
                news.blind, news.gap = "", "gone while nobody could read it"
                self._forget(text)
            yield text, news

    def cursor(self, text: int) -> Cursor | None:
        """As every source."""
        tail = self._tails.get(text)
        return {**tail.cursor, "path": str(self._paths[text])} if tail and tail.identity else None

    def stop_here(self) -> None:
        """As every source."""
        self._find()
        for tail in self._tails.values():
            tail.stop_here()

    def finish(self) -> Iterator[tuple[int, News]]:
        """As every source."""
        for text, tail in self._tails.items():
            yield text, _finished(tail)

    def close(self) -> None:
        """As every source."""
        for tail in self._tails.values():
            tail.close()

    def _find(self) -> str:
        """Take up the files that are new, each from its beginning; says so when there are too many."""
        known = self._left_out | {tail.identity for tail in self._tails.values()}
        before = len(self._left_out)
        for path, now in _present(self._pattern):
            identity = (now["dev"], now["ino"])
            if identity in known:
                continue
            if len(self._tails) >= MAX_FILES and not self._make_room():
                self._left_out.add(identity)
                continue
            self._last += 1
            self._follow(self._last, path, {"dev": now["dev"], "ino": now["ino"], "offset": 0, "size": 0})
        return f"more than {MAX_FILES} files match: some are not read" if len(self._left_out) > before else ""

    def _follow(self, text: int, path: Path, cursor: Cursor) -> None:
        self._paths[text] = path
        self._tails[text] = LogTail(path, self._scanner, cursor, stays=True)

    def _make_room(self) -> bool:
        """Let go of the oldest file that is moved or deleted; False when there is none."""
        text = next(
            (text for text, tail in self._tails.items() if identity_of(self._paths[text]) != tail.identity), None
        )
        if text is not None:
            self._forget(text)
        return text is not None

    def _forget(self, text: int) -> None:
        self._tails.pop(text).close()


def _looked(tail: LogTail, budget: Budget, most: int) -> News:
    news = tail.look(budget, most)
    if tail.readable:
        news.ranges.append(tail.report())
    return news


def _finished(tail: LogTail) -> News:
    news = News()
    news.blind, news.whole = tail.blind, tail.blind == MISSING
    unread = tail.unread
    news.hits = tail.finish()
    if unread:
        news.gap = f"{unread} bytes at its end could not be read in time"
    if tail.readable:
        news.ranges.append(tail.report("its end could not be read in time" if unread else "", unread))
    return news


def _present(pattern: str) -> list[tuple[Path, Cursor]]:
    """The regular files that match, with a cursor at the end of each."""
    found = [Path(path) for path in sorted(glob.glob(pattern, recursive=True))]  # noqa: PTH207 - absolute patterns
    return [(path, cursor) for path in found if path.is_file() and (cursor := cursor_of(path))]


def is_glob(path: str) -> bool:
    """Whether a path is a pattern; a file that is really called like that is a file."""
    return any(char in path for char in "*?[") and not Path(path).exists()


def cursors_of(path: str) -> Cursors:
    """A cursor at the end of everything that a file source holds now."""
    if not is_glob(path):
        return {"0": cursor_of(Path(path))}
    return {str(n): {**cursor, "path": str(file)} for n, (file, cursor) in enumerate(_present(path), 1)}
