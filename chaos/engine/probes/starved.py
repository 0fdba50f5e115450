"""How long the target's processes waited for a CPU, as their hosts' kernels count it (`chaos/outpost/starved.py`).

On a machine that has too little of it every answer is late, and that says nothing of the engine.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.hosts import HostLost, HostTrouble

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chaos.engine.hosts import Host
    from chaos.engine.probes.locate import Located

PATIENCE_S = 2.0
"""A host that needs longer says nothing this time; our own fitness is told in time."""


class CpuWait:
    """Samples the processes of all nodes."""

    def __init__(self) -> None:
        self._watch = secrets.token_hex(8)

    async def sample(self, whereabouts: Sequence[tuple[Host, Mapping[str, Located]]]) -> dict[str, float]:
        """By node: in which share of the time since the last sample its most hindered thread waited for a CPU."""
        samples = await asyncio.gather(*(self._of(host, located) for host, located in whereabouts))
        return {node: share for sample in samples for node, share in sample.items()}

    async def _of(self, host: Host, located: Mapping[str, Located]) -> dict[str, float]:
        roots = {node: where.pid for node, where in located.items()}
        try:
            told = await host.call("starved", timeout_s=PATIENCE_S, watch=self._watch, roots=roots)
        except (HostLost, HostTrouble):
            return {}
        return msgspec.convert(told, dict[str, float])
