"""Gates hold a node at a point of a request's way, so that a test reaches a phase without sleeping.

Set over `POST /_sim/gates`; per process, never logged. Health checks pass every gate: they use neither user prefill
nor the transfer path.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFILL = "prefill"  # prefill nodes: no forward pass of user requests
TRANSFER = "transfer"  # prefill nodes: no KV is sent; decode nodes: KV that arrived is not taken


class Gates:
    """The gates of one process; all are open at the start."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._open = {name: asyncio.Event() for name in names}
        for gate in self._open.values():
            gate.set()
        self.on_change: Callable[[], None] = lambda: None

    def holds(self, name: str) -> bool:
        """Whether a gate is shut."""
        return not self._open[name].is_set()

    async def passed(self, name: str) -> None:
        """Wait until a gate is open."""
        await self._open[name].wait()

    def apply(self, wanted: Mapping[str, object]) -> str:
        """Set gates from a request body; the text says what is wrong with it, or is empty."""
        for name, state in wanted.items():
            if name not in self._open or state not in ("hold", "open"):
                return f"no gate {name}={state} here; gates: {', '.join(self._open)}; states: hold, open"
        for name, state in wanted.items():
            gate = self._open[name]
            gate.set() if state == "open" else gate.clear()
        self.on_change()
        return ""

    def state(self) -> dict[str, str]:
        """Every gate's state."""
        return {name: "open" if gate.is_set() else "hold" for name, gate in self._open.items()}
