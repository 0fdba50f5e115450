"""A prefill node: `python -m chaos.lab.sim.prefill`, started by the lab's provider."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chaos.lab.sim import process
from chaos.lab.sim.bootstrap import BootstrapServer
from chaos.lab.sim.gates import PREFILL, TRANSFER
from chaos.lab.sim.node import EngineNode

if TYPE_CHECKING:
    from chaos.lab.sim.config import NodeConfig
    from chaos.lab.sim.scheduler import Scheduler

_MANY_SLOTS = 4096  # requests in forward and inflight: a prefill's KV tokens end first


class PrefillNode(EngineNode):
    """Adds the control thread, the bootstrap server and the transfer workers."""

    def __init__(self, config: NodeConfig) -> None:
        super().__init__(config, role="prefill", slots=_MANY_SLOTS, gates=(PREFILL, TRANSFER))

    async def prepare(self, tasks: asyncio.TaskGroup) -> Scheduler:
        """Start control, bootstrap and transfer."""
        manager = self.build.manager()
        control = self.build.control(manager, asyncio.get_running_loop())
        control.start()
        bootstrap = BootstrapServer()
        bootstrap.register(control)
        await process.serve_app(bootstrap.app(), self.config.sockets["bootstrap"])
        transfer = self.build.transfer(manager, self.parts.gates, self.metrics)
        tasks.create_task(transfer.run())
        return self.build.prefill(
            self.parts, manager=manager, transfer=transfer, reports_running=self.build.prefill_reports_running
        )


if __name__ == "__main__":
    process.main(PrefillNode)
