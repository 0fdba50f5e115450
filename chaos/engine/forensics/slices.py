"""The logs around the last fault: some bytes before it, more after it, and the end; whole lines, bounded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BEFORE_BYTES = 64 << 10
AFTER_BYTES = 128 << 10
END_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a file ended at a moment: the file itself and its size then."""

    inode: int
    size: int


def mark(path: Path) -> Mark | None:
    """Where the file ends now; None when it is not there. Costs a few microseconds."""
    try:
        now = path.stat()
    except OSError:
        return None
    return Mark(now.st_ino, now.st_size)


def log_slice(path: Path, at: Mark | None) -> str:
    """The file around `at` and its end; without a mark, or in another file, only the end. Raises OSError."""
    with path.open("rb") as file:
        now = os.fstat(file.fileno())
        if at is None or at.inode != now.st_ino or at.size > now.st_size:
            ranges = [(max(0, now.st_size - BEFORE_BYTES - AFTER_BYTES - END_BYTES), now.st_size)]
        else:
            ranges = [(max(0, at.size - BEFORE_BYTES), min(at.size + AFTER_BYTES, now.st_size))]
            end = max(ranges[0][1], now.st_size - END_BYTES)
            if end <= ranges[0][1]:
                ranges = [(ranges[0][0], now.st_size)]
            else:
                ranges.append((end, now.st_size))
        parts = []
        for start, stop in ranges:
            file.seek(start)
            raw = file.read(stop - start)
            if start:
                raw = raw[raw.find(b"\n") + 1 :]  # whole lines only
            if stop < now.st_size:
                raw = raw[: raw.rfind(b"\n") + 1]
            parts.append(f"--- bytes {start} to {stop} of {now.st_size}\n{raw.decode(errors='replace')}")
    return "\n".join(parts)
