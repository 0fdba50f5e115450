"""How long the target's processes waited for a CPU, where they run on this machine.

On a machine that has too little of it every answer is late, and that says nothing of the engine. The kernel counts for
each thread how long it ran and how long it was ready to run and had to wait (`/proc/PID/task/TID/schedstat`, both in
nanoseconds).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from chaos.engine.probes.locate import Located

LEAST = 0.05
"""Less than this share of the time is not worth a line in the journal."""
LOOK_FOR_CHILDREN_EVERY = 10  # samples: who has which children is expensive to ask


class CpuWait:
    """Samples the processes of all nodes."""

    def __init__(self) -> None:
        self._at_ns = 0
        self._last: dict[tuple[int, int], int] = {}
        self._trees: dict[int, list[int]] = {}
        self._samples = 0

    def sample(self, located: Mapping[str, Located]) -> dict[str, float]:
        """By node: in which share of the time since the last sample its most hindered thread waited for a CPU."""
        new = any(one.pid not in self._trees for one in located.values())
        if new or self._samples % LOOK_FOR_CHILDREN_EVERY == 0:
            self._trees = {one.pid: _tree(one.pid) for one in located.values()}
        self._samples += 1
        at_ns = time.monotonic_ns()
        passed_ns, self._at_ns = max(at_ns - self._at_ns, 1), at_ns
        now: dict[tuple[int, int], int] = {}
        shares = {}
        for node, where in located.items():
            waited = {(pid, thread): ns for pid in self._trees[where.pid] for thread, ns in _waited(pid)}
            longest = max((ns - self._last[key] for key, ns in waited.items() if key in self._last), default=0)
            now |= waited
            if longest / passed_ns >= LEAST:
                shares[node] = round(min(longest / passed_ns, 1.0), 3)
        self._last = now
        return shares


def _tree(pid: int) -> list[int]:
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return [pid]


def _waited(pid: int) -> Iterator[tuple[int, int]]:
    """(thread, nanoseconds waited so far) of a process; nothing where the kernel does not tell."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - names only
    except OSError:
        return
    for thread in threads:
        try:
            _, waited, _ = Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes().split()
        except (OSError, ValueError):
            continue
        yield int(thread), int(waited)
