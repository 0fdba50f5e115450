"""Stretches of files: what stands around a moment, and at the end."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

BEFORE_BYTES = 64 << 10
AFTER_BYTES = 128 << 10
END_BYTES = 64 << 10
MOST_FILES = 3


def ends(patterns: Sequence[str]) -> dict[str, dict[str, list[int]]]:
    """Where files end now: inode and size, by pattern and path; of many that fit a pattern the latest few."""
    found: dict[str, dict[str, list[int]]] = {}
    for pattern in patterns:
        paths = glob.glob(pattern) if glob.has_magic(pattern) else [pattern]  # noqa: PTH207 - may be absolute
        there = sorted((now.st_mtime_ns, path, now) for path in paths if (now := _stat(path)) is not None)
        found[pattern] = {path: [now.st_ino, now.st_size] for _, path, now in there[-MOST_FILES:]}
    return found


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - the same
    except OSError:
        return None


def stretch(path: str, around: Sequence[int] | None = None) -> str:
    """A file around where it ended at a moment (see `ends`) and its end, in whole lines and bounded.

    Without a moment, or in another file by now, only its end. Raises Trouble `missing`.
    """
    try:
        with Path(path).open("rb") as file:
            now = os.fstat(file.fileno())
            parts = []
            for start, stop in _ranges(now.st_ino, now.st_size, around):
                file.seek(start)
                raw = file.read(stop - start)
                if start:
                    raw = raw[raw.find(b"\n") + 1 :]  # whole lines only
                if stop < now.st_size:
                    raw = raw[: raw.rfind(b"\n") + 1]
                parts.append(f"--- bytes {start} to {stop} of {now.st_size}\n{raw.decode(errors='replace')}")
    except OSError as error:
        raise Trouble("missing", error.strerror or str(error)) from None
    return "\n".join(parts)


def _ranges(inode: int, size: int, around: Sequence[int] | None) -> list[tuple[int, int]]:
    if around is None or around[0] != inode or around[1] > size:
        return [(max(0, size - BEFORE_BYTES - AFTER_BYTES - END_BYTES), size)]
    first = max(0, around[1] - BEFORE_BYTES), min(around[1] + AFTER_BYTES, size)
    end = max(first[1], size - END_BYTES)
    return [(first[0], size)] if end <= first[1] else [first, (end, size)]


OPS: dict[str, Callable[..., object]] = {"ends": ends, "stretch": stretch}
