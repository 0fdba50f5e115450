"""Fewer points that look the same: a long run must open as fast as a short one."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")
SPARSE = 8  # series in a pane beyond this many get fewer points each


def thin(xs: Sequence[float], ys: Sequence[float], most: int) -> tuple[list[float], list[float]]:
    """At most about `most` points: of each bucket its first, lowest, highest and last, so no spike is lost.

    Of a run of equal values only its ends are kept first: a gauge that does not move needs two points.
    """
    kept = [i for i in range(len(ys)) if i in (0, len(ys) - 1) or not (ys[i - 1] == ys[i] == ys[i + 1])]
    if len(kept) > most:
        buckets = max(1, most // 4)
        size = len(kept) / buckets
        chosen: set[int] = set()
        for k in range(buckets):
            bucket = kept[int(k * size) : int((k + 1) * size)]
            if bucket:
                chosen |= {bucket[0], bucket[-1], min(bucket, key=ys.__getitem__), max(bucket, key=ys.__getitem__)}
        kept = sorted(chosen)
    return [xs[i] for i in kept], [ys[i] for i in kept]


def unbroken(xs: Sequence[float], silence: float) -> list[tuple[int, int]]:
    """Stretches (start, stop) between gaps that are longer than `silence` and than six usual steps.

    A line drawn over a gap would claim that somebody looked.
    """
    steps = sorted(b - a for a, b in pairwise(xs))
    gap = max(silence, 6 * steps[len(steps) // 2]) if steps else silence
    breaks = [i for i in range(1, len(xs)) if xs[i] - xs[i - 1] > gap]
    return list(zip([0, *breaks], [*breaks, len(xs)], strict=True))


def even(items: Sequence[T], most: int) -> list[T]:
    """At most `most` items, evenly spread, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    if most <= 1:
        return list(items[:most])
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]
