"""What prefill and decode nodes have in common: metrics, HTTP application, warm-up, end."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

from aiohttp import web

from chaos.lab.sim import lines, process
from chaos.lab.sim.builds import BUILDS
from chaos.lab.sim.endpoints import Endpoints
from chaos.lab.sim.gates import Gates
from chaos.lab.sim.generation import Generation
from chaos.lab.sim.scheduler import Parts
from chaos.lab.sim.stats import NodeMetrics
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
        self.metrics = NodeMetrics(engine_type=role, model=settings.model, pid=os.getpid())
        self.parts = Parts(
            settings=settings,
            clocks=config.clocks,
            pool=self.build.pool(tokens=settings.kv_tokens, slots=slots),
            metrics=self.metrics,
            gates=Gates(gates),
        )

    @abstractmethod
    async def prepare(self, tasks: asyncio.TaskGroup) -> Scheduler:
        """Start what only this role has, and return its scheduler."""

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled; `ready` is called once requests are taken."""
        settings = self.config.settings
        async with asyncio.TaskGroup() as tasks:
            scheduler = await self.prepare(tasks)
            frontend = self.build.frontend(scheduler, self.config.clocks, self.metrics)
            endpoints = Endpoints(frontend, self.config, version=self.build.version)
            app = web.Application(client_max_size=_LARGEST_BODY)
            Tracking(self.metrics.page).install(app)
            Generation(frontend, model=settings.model, context_len=settings.context_len).add_routes(app)
            endpoints.add_routes(app)
            await process.serve_app(app, self.config.sockets["http"])
            tasks.create_task(scheduler.run())
            await frontend.warm_up()
            # a lab stands for an engine that has been up for a while: its gauges have been written once
            self.metrics.write(scheduler.stats())
            endpoints.starting = False
            lines.scheduler("The server is fired up and ready to roll!")
            ready()
            try:
                await asyncio.Event().wait()
            finally:
                endpoints.stopping = True
