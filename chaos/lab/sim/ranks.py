"""Data-parallel ranks: who of them a request belongs to, and the schedulers of a node as one.

A node has `dp` schedulers, each with its own queues, memory and gauges; a request belongs to the rank
`bootstrap_room % dp` on both sides (sglang 0.5.9 and later), so what hits one rank hits that share of the requests. A
health check has room 0: it sees the first rank only.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from chaos.lab.sim.lines import Log
from chaos.lab.sim.rank_process import RankGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.lab.sim.gates import Gates
    from chaos.lab.sim.request import Req
    from chaos.lab.sim.scheduler import Listener, Scheduler


def rank_name(dp: int, tp: int, *, dp_size: int, tp_size: int) -> str:
    """How the engine writes a rank in its log lines and, joined by `_`, in process titles; empty when there is one."""
    return " ".join([f"DP{dp}"] * (dp_size > 1) + [f"TP{tp}"] * (tp_size > 1))


@dataclass(frozen=True, slots=True)
class Rank:
    """One data-parallel rank: its place, the processes of its tensor-parallel ranks, and their log."""

    dp: int = 0
    dp_size: int = 1
    tp_size: int = 1
    group: RankGroup = field(default_factory=RankGroup)

    @property
    def logs(self) -> tuple[Log, ...]:
        """One per tensor-parallel rank; what only one of them says, the first says."""
        names = (rank_name(self.dp, tp, dp_size=self.dp_size, tp_size=self.tp_size) for tp in range(self.tp_size))
        return tuple(Log(name) for name in names)


class DataParallel:
    """The schedulers of a node behind the one that the HTTP side talks to."""

    def __init__(self, schedulers: Sequence[Scheduler]) -> None:
        self.schedulers = tuple(schedulers)

    @property
    def first(self) -> Scheduler:
        """The rank that health checks go to."""
        return self.schedulers[0]

    @property
    def gates(self) -> Gates:
        """All ranks share them."""
        return self.first.gates

    def listen(self, listener: Listener) -> None:
        """Who gets what the schedulers produce."""
        for scheduler in self.schedulers:
            scheduler.listener = listener
        self.gates.on_change = self.wake

    def wake(self) -> None:
        """Something changed for all of them."""
        for scheduler in self.schedulers:
            scheduler.wake()

    def continued(self) -> None:
        """The process goes on after a SIGSTOP."""
        for scheduler in self.schedulers:
            scheduler.continued()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for scheduler in self.schedulers:
                tasks.create_task(scheduler.run())

    def submit(self, req: Req) -> None:
        """Hand a request to its rank, which looks at it at its next turn."""
        scheduler = self.schedulers[req.bootstrap_room % len(self.schedulers)]
        scheduler.post(partial(scheduler.submit, req))

    def abort(self, rid: str, *, abort_all: bool) -> None:
        """Every rank hears of an abort; `rid` is matched as a prefix."""
        for scheduler in self.schedulers:
            scheduler.post(partial(scheduler.abort, rid, abort_all=abort_all))

    def is_fully_idle(self) -> bool:
        """Whether all of them are."""
        return all(scheduler.is_fully_idle() for scheduler in self.schedulers)

    def flush_cache(self) -> bool:
        """Flush all of them; False when any could not."""
        flushed = [scheduler.flush_cache() for scheduler in self.schedulers]
        return all(flushed)
