"""Pairs of measurements in CPU time, alternating, so that both sides meet the same noise."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def paired(ours: Callable[[], object], theirs: Callable[[], object], *, rounds: int = 7) -> tuple[float, float]:
    """Median CPU seconds of each, measured in turns."""
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for side, work in zip(took, (ours, theirs), strict=True):
            begun = time.process_time()
            work()
            side.append(time.process_time() - begun)
    return statistics.median(took[0]), statistics.median(took[1])
