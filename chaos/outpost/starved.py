"""How long processes waited for a CPU.

The kernel counts for each thread how long it ran and how long it was ready to run and had to wait
(`/proc/PID/task/TID/schedstat`, both in nanoseconds). What was counted at the last look is kept here, by watch, so that
only shares travel.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable

from chaos.outpost import proc

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LEAST = 0.05
"""Less than this share of the time is not worth telling."""
LOOK_FOR_CHILDREN_EVERY = 10  # samples: who has which children is expensive to ask
MOST_WATCHES = 16


class _Watch:
    """Samples the processes of one caller."""

    def __init__(self) -> None:
        self._at_ns = 0
        self._last: dict[tuple[int, str], int] = {}
        self._trees: dict[int, list[int]] = {}
        self._samples = 0

    def sample(self, roots: Mapping[str, int]) -> dict[str, float]:
        if any(pid not in self._trees for pid in roots.values()) or self._samples % LOOK_FOR_CHILDREN_EVERY == 0:
            everyone = proc.everybody()
            self._trees = {pid: [pid, *(one.pid for one in proc.below(pid, everyone))] for pid in roots.values()}
        self._samples += 1
        at_ns = time.monotonic_ns()
        passed_ns, self._at_ns = max(at_ns - self._at_ns, 1), at_ns
        now: dict[tuple[int, str], int] = {}
        shares = {}
        for name, root in roots.items():
            waited = {(pid, thread): ns for pid in self._trees[root] for thread, ns in _waited(pid)}
            longest = max((ns - self._last[key] for key, ns in waited.items() if key in self._last), default=0)
            now.update(waited)
            if longest / passed_ns >= LEAST:
                shares[name] = round(min(longest / passed_ns, 1.0), 3)
        self._last = now
        return shares


_watches: dict[str, _Watch] = {}


def starved(watch: str, roots: Mapping[str, int]) -> dict[str, float]:
    """By name of a root process: in which share of the time since the last call its most hindered thread waited.

    `watch` names the caller, whose calls are compared with each other. Less than a twentieth is left out.
    """
    while watch not in _watches and len(_watches) >= MOST_WATCHES:
        del _watches[next(iter(_watches))]
    return _watches.setdefault(watch, _Watch()).sample(roots)


def _waited(pid: int) -> Iterator[tuple[str, int]]:
    """(thread, nanoseconds waited so far) of a process; nothing where the kernel does not tell."""
    for thread in proc.threads(pid):
        fields = proc.read(f"/proc/{pid}/task/{thread}/schedstat").split()
        if len(fields) == 3:
            yield thread, int(fields[1])


OPS: dict[str, Callable[..., object]] = {"starved": starved}
