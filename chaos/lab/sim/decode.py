"""A decode node: `python -m chaos.lab.sim.decode`, started by the lab's provider."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from chaos.lab.sim import process
from chaos.lab.sim.gates import TRANSFER
from chaos.lab.sim.node import EngineNode
from chaos.lab.sim.transfer import KvServer

if TYPE_CHECKING:
    import asyncio

    from chaos.lab.sim.config import NodeConfig
    from chaos.lab.sim.scheduler import Parts, Scheduler


class DecodeNode(EngineNode):
    """Adds the KV port and the peers."""

    def __init__(self, config: NodeConfig) -> None:
        super().__init__(config, role="decode", slots=config.settings.slots, gates=(TRANSFER,))

    async def prepare(self, parts: Parts, tasks: asyncio.TaskGroup) -> Scheduler:
        """Listen for KV and start heartbeats."""
        scheduler = self.build.decode(parts)
        kv_server = KvServer(scheduler)
        await kv_server.start(self.config.address)
        scheduler.peers = self.build.peers(
            agent=uuid.uuid4().hex,
            address=self.config.address,
            kv_port=kv_server.port,
            clocks=parts.clocks,
            events=scheduler,
            log=parts.rank.logs[0],
        )
        tasks.create_task(scheduler.peers.heartbeat())
        return scheduler


if __name__ == "__main__":
    process.main(DecodeNode)
