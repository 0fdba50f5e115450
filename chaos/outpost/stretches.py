"""Stretches of files: what stands around a moment, and at the end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

BEFORE_BYTES = 64 << 10
AFTER_BYTES = 128 << 10
END_BYTES = 64 << 10


def ends(paths: Sequence[str]) -> dict[str, list[int]]:
    """Where files end now: inode and size, by path; those that are not there are left out."""
    found = {}
    for path in paths:
        try:
            now = os.stat(path)  # noqa: PTH116 - the same
        except OSError:
            continue
        found[path] = [now.st_ino, now.st_size]
    return found


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
