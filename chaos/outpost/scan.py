"""Finds the lines of a block that somebody knows the meaning of.

A block is first searched for pieces of text that the patterns require (`bytes.find`, one pass per piece); patterns run
only on lines that hold one. Patterns without such a piece run on every line. The first pattern in order that matches a
line is its meaning. What is known comes as data, for it is the same here and on a host that holds nothing of ours.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_LINE_BYTES = 64 << 10
"""A pattern sees this much of a line: no engine writes longer ones, and binary garbage has no line ends at all."""

WINDOW_BYTES = 128 << 10
"""Searched for every piece of text before the next: what stays in the processor's cache is read twice as fast."""

_CLOCK = rb"[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_ANSI = rb"(?:\x1b\[[0-9;]*m)*"
_PROCESS = rb"(?:\([^()\n]{1,40} pid=\d{1,10}\)" + _ANSI + rb" )?"
_LEVEL = rb"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)" + _ANSI + rb" )?"
_BEFORE = _ANSI + _PROCESS + _ANSI + _LEVEL + rb"\W{0,3}(?:rank\d{1,5}\W{1,3})?(?:[IWEF](?=\d{3,4} ))?"
_DATE = re.compile(_BEFORE + rb"((?:\d{4}[-/]\d\d[-/]\d\d|\d{3,4}|\d\d-\d\d)" + _CLOCK + rb")")
"""A stamp at the start of a line: `[2026-06-27 10:16:12 TP0]`, `2026-02-26T13:55:38Z`, glog's `E0521 16:22:21.69`,
PyTorch's `[rank3]:[E620 18:10:00.12` and vLLM's `(EngineCore pid=60) INFO 06-27 10:16:12`."""


class Known(NamedTuple):
    """A line that means something: the pattern searched in it, the group that is its key, text that it must hold."""

    pattern: str
    key: str = ""
    literal: str = ""  # empty: the pattern is tried on every line


class Found(NamedTuple):
    """A known line. `start` is its place in the block, `known` which one it is."""

    start: int
    line: bytes
    known: int
    key: str
    log_time: str
    dated: bool  # by itself; else by the nearest stamp before it


class Scanner:
    """Scans blocks of whole lines for what is known of one node.

    `wrap` matches what a log service puts before each line, its first group the stamp: lines are read without it.
    """

    def __init__(self, known: Iterable[Sequence[str]], wrap: re.Pattern[bytes] | None = None) -> None:
        all_known = [Known(*one) for one in known]
        self._known = [(re.compile(one.pattern), one.key) for one in all_known]
        self._every_line = any(not one.literal for one in all_known)
        self._literals = [literal.encode() for literal in sorted({one.literal for one in all_known} - {""})]
        self._wrap = wrap
        self.stamp = wrap or _DATE

    def scan(self, block: bytes, dated_before: str = "") -> list[Found]:
        """The known lines of `block`, in order. `dated_before` is the last stamp seen before it."""
        if not self._known:
            return []
        found: list[Found] = []
        date, dated_to = dated_before, 0
        for start, end in self._candidates(block):
            # A file cut under a writer that keeps its own offset begins with a hole, which reads as zeros.
            line = block[start:end].lstrip(b"\0")
            text = line if self._wrap is None else self._unwrapped(line)
            meaning = self._meaning(text[:MAX_LINE_BYTES].decode(errors="replace"))
            if meaning is not None:
                date, dated_to = last_date(block, dated_to, end, self.stamp) or date, end
                dated = self.stamp.match(line) is not None
                found.append(Found(end - len(text), text, *meaning, date, dated))
        return found

    def _unwrapped(self, line: bytes) -> bytes:
        wrapped = self.stamp.match(line)
        return line if wrapped is None else line[wrapped.end() :]

    def _meaning(self, text: str) -> tuple[int, str] | None:
        for number, (pattern, key) in enumerate(self._known):
            match = pattern.search(text)
            if match is not None:
                return number, (match[key] or "") if key else ""
        return None

    def _candidates(self, block: bytes) -> list[tuple[int, int]]:
        """Start and end of the lines worth a pattern."""
        if self._every_line:
            lines, start = [], 0
            for line in split_lines(block):
                lines.append((start, start + len(line)))
                start += len(line) + 1
            return lines
        spans: set[tuple[int, int]] = set()
        begin = 0
        while begin < len(block):
            stop = block.find(b"\n", begin + WINDOW_BYTES) + 1 or len(block)
            for literal in self._literals:
                at = block.find(literal, begin, stop)
                while at >= 0:
                    end = line_end(block, at)
                    spans.add((line_start(block, at), end))
                    at = block.find(literal, end, stop)
            begin = stop
        return sorted(spans)


def split_lines(block: bytes) -> list[bytes]:
    r"""Lines ended by `\n` or `\r` (progress bars); `\r\n` gives an empty line, which nothing matches."""
    return block.replace(b"\r", b"\n").split(b"\n")


def line_start(block: bytes, at: int) -> int:
    """Where the line that holds `at` begins."""
    start = block.rfind(b"\n", 0, at) + 1
    return max(start, block.rfind(b"\r", start, at) + 1)


def line_end(block: bytes, at: int) -> int:
    """Where the line that holds `at` ends (its end mark, or the end of the block)."""
    end = block.find(b"\n", at)
    end = len(block) if end < 0 else end
    bar = block.find(b"\r", at, end)
    return end if bar < 0 else bar


def stamp_of(line: bytes) -> str:
    """The stamp that a line begins with, as it is written; empty for none."""
    match = _DATE.match(line)
    return match[1].decode() if match else ""


def last_date(block: bytes, start: int, end: int, stamp: re.Pattern[bytes] = _DATE) -> str:
    """The stamp of the last dated line that begins in `block[start:end]`; empty when none does."""
    at = end
    while at >= start:
        line = line_start(block, at)
        match = stamp.match(block, line, end)
        if match is not None and line >= start:
            return match[1].decode()
        at = line - 1
    return ""
