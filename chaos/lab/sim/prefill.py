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
    from chaos.lab.sim.scheduler import Parts, Scheduler

_MANY_SLOTS = 4096  # requests in forward and inflight: a prefill's KV tokens end first


class PrefillNode(EngineNode):
    """Adds the control thread, the bootstrap server and the transfer workers."""

    def __init__(self, config: NodeConfig) -> None:
        super().__init__(config, role="prefill", slots=_MANY_SLOTS, gates=(PREFILL, TRANSFER))

        settings = config.settings
        self._bootstrap = BootstrapServer(dp_size=settings.dp, tp_size=settings.tp)

    async def prepare(self, parts: Parts, tasks: asyncio.TaskGroup) -> Scheduler:
        """Start control of every tensor-parallel rank, and transfer; the bootstrap server with the first rank."""
        if parts.rank.dp == 0:
            await process.serve_app(self._bootstrap.app(), self.config.sockets["bootstrap"])
        followers = [self.build.manager() for _ in range(1, parts.rank.tp_size)]
        manager = self.build.manager(followers)
        for tp, each in enumerate((manager, *followers)):
            control = self.build.control(
                each, asyncio.get_running_loop(), dp=parts.rank.dp, tp=tp, address=self.config.address
            )
            control.start()
            self._bootstrap.register(control)
        transfer = self.build.transfer(
            manager,
            parts.gates,
            parts.metrics,
            log=parts.rank.logs[0],
            least_s=parts.settings.transfer_ms / 1000,
            clocks=parts.clocks,
        )
        tasks.create_task(transfer.run())
        return self.build.prefill(
            parts, manager=manager, transfer=transfer, reports_running=self.build.prefill_reports_running
        )


if __name__ == "__main__":
    process.main(PrefillNode)
