"""What prefill and decode nodes have in common: ranks and their processes, metrics, HTTP application, warm-up, end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

from aiohttp import web

from chaos.lab.sim import lines, process
from chaos.lab.sim.builds import BUILDS
from chaos.lab.sim.endpoints import Endpoints
from chaos.lab.sim.gates import Gates
from chaos.lab.sim.generation import Generation
from chaos.lab.sim.rank_process import RankGroup, RankProcess
from chaos.lab.sim.ranks import DataParallel, Rank, rank_name
from chaos.lab.sim.scheduler import Parts
from chaos.lab.sim.tracking import Tracking

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.lab.sim.config import NodeConfig
    from chaos.lab.sim.scheduler import Scheduler

_LARGEST_BODY = 64 << 20


class EngineNode(ABC):
    """A node that generates; the two roles differ in their scheduler and in what else they run."""

    def __init__(
        self, config: NodeConfig, *, role: Literal["prefill", "decode"], slots: int, gates: tuple[str, ...]
    ) -> None:
        self.config = config
        self.build = BUILDS[config.build]
        settings = config.settings
        self.metrics = self.build.metrics(engine_type=role, model=settings.model, pid=os.getpid())
        shared = Gates(gates)
        self.parts = tuple(
            Parts(
                settings=settings,
                clocks=config.clocks,
                pool=self.build.pool(
                    tokens=max(1, settings.kv_tokens // settings.dp), slots=max(1, slots // settings.dp)
                ),
                metrics=self.build.metrics(
                    engine_type=role,
                    model=settings.model,
                    pid=os.getpid(),
                    page=self.metrics.page,
                    dp_rank=dp if settings.dp > 1 else None,
                ),
                gates=shared,
                rank=self._rank(dp),
                end=_end_at_once,
            )
            for dp in range(settings.dp)
        )

    def _rank(self, dp: int) -> Rank:
        sizes = {"dp_size": self.config.settings.dp, "tp_size": self.config.settings.tp}
        processes = []
        for tp in range(sizes["tp_size"]):
            name = rank_name(dp, tp, **sizes).replace(" ", "_")
            title = "sglang::scheduler" + (f"_{name}" if name else "")
            processes.append(RankProcess(title, ordinal=dp * sizes["tp_size"] + tp))
            processes[-1].on_end = self._rank_ended
        return Rank(dp=dp, **sizes, group=RankGroup(processes))

    def _rank_ended(self, ended: RankProcess) -> None:
        """The engine's watchdog of its children (SubprocessWatchdog): one that crashed takes the server along."""
        if self.build.watches_ranks:
            status = ended.process.wait()
            lines.scheduler(
                f"Subprocess scheduler_{ended.ordinal} (pid={ended.process.pid}) crashed with exit code {status}. "
                "Triggering SIGQUIT for cleanup..."
            )
            _end_at_once()

    @abstractmethod
    async def prepare(self, parts: Parts, tasks: asyncio.TaskGroup) -> Scheduler:
        """Start what one rank of this role needs, and return its scheduler."""

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled; `ready` is called once requests are taken."""
        settings = self.config.settings
        async with asyncio.TaskGroup() as tasks:
            for parts in self.parts:
                await parts.rank.group.connect()
            ranks = DataParallel([await self.prepare(parts, tasks) for parts in self.parts])
            frontend = self.build.frontend(ranks, self.config.clocks, self.metrics)
            endpoints = Endpoints(frontend, self.config, version=self.build.version)
            app = web.Application(client_max_size=_LARGEST_BODY)
            Tracking(self.metrics.page).install(app)
            Generation(frontend, model=settings.model, context_len=settings.context_len).add_routes(app)
            endpoints.add_routes(app)
            await process.serve_app(app, self.config.sockets["http"])
            asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, ranks.continued)
            tasks.create_task(ranks.run())
            await frontend.warm_up()
            # a lab stands for an engine that has been up for a while: its gauges have been written once
            for scheduler in ranks.schedulers:
                scheduler.metrics.write(scheduler.stats())
            endpoints.starting = False
            lines.scheduler("The server is fired up and ready to roll!")
            ready()
            try:
                await asyncio.Event().wait()
            finally:
                endpoints.stopping = True


def _end_at_once() -> None:
    """What the main process does when a child failed: it kills its whole tree, itself last."""
    signum, frame = int(signal.SIGQUIT), sys._getframe()  # noqa: SLF001, the engine prints the interrupted frame
    lines.scheduler(f"SIGQUIT received. {signum=}, {frame=}. It usually means one child failed.")
    os.kill(os.getpid(), signal.SIGKILL)
