"""Whole lines out of the blocks of one growing text, scanned as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chaos.outpost.scan import Found, last_date

if TYPE_CHECKING:
    from chaos.outpost.scan import Scanner

MAX_PARTIAL_BYTES = 1 << 20
"""A line without an end is taken for one line at this length: binary garbage must not fill our memory."""


class Hit(NamedTuple):
    """A known line and where in the text it begins."""

    found: Found
    offset: int


class Lines:
    """How far a text was read (`offset`), and the line that has not ended yet."""

    def __init__(self, scanner: Scanner, offset: int = 0, date: str = "") -> None:
        self._scanner = scanner
        self._partial = b""
        self.date = date
        self.offset = offset
        self.count = 0

    @property
    def begun(self) -> int:
        """Where the line begins that has not ended yet: who reads on from here misses nothing and repeats nothing."""
        return self.offset - len(self._partial)

    def take(self, block: bytes) -> list[Hit]:
        """The next bytes of the text."""
        text = self._partial + block
        self.offset += len(block)
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if end == 0 and len(text) > MAX_PARTIAL_BYTES:
            end = len(text)
        whole, self._partial = text[:end], text[end:]
        return self._scan(whole, self.offset - len(text)) if whole else []

    def finish(self) -> list[Hit]:
        """Scan the last line although it has no end: the process may have died while writing it."""
        begun, rest, self._partial = self.begun, self._partial, b""
        return self._scan(rest, begun) if rest else []

    def skip(self, offset: int) -> None:
        """Go on elsewhere, with nothing of the line that was begun."""
        self.offset, self._partial = offset, b""

    def _scan(self, whole: bytes, offset: int) -> list[Hit]:
        self.count += max(1, whole.count(b"\n"))
        hits = [Hit(found, offset + found.start) for found in self._scanner.scan(whole, self.date)]
        self.date = last_date(whole, 0, len(whole), self._scanner.stamp) or self.date
        return hits
