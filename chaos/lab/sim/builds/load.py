"""Bugs that need load and no fault."""

from __future__ import annotations

from chaos.lab.sim import kv
from chaos.lab.sim.builds.build import Build
from chaos.lab.sim.decode_scheduler import DecodeScheduler

BUSY = 8  # requests on their way or running from which on KV goes through the host cache


class RetractedForGood(DecodeScheduler):
    """A retracted request is never put back, and nothing is admitted before it."""

    def resume_retracted(self) -> None:
        """Its receiver is in Success already, so nothing ever happens to it again."""

    def abort(self, rid: str, *, abort_all: bool) -> None:
        """Not even when its client has left."""
        stuck, self.retracted_queue = self.retracted_queue, []
        super().abort(rid, abort_all=abort_all)
        self.retracted_queue = stuck


class WrongLayout(DecodeScheduler):
    """Under load KV is kept in a host cache whose layout is wrong: half of it is the KV that came before."""

    _before = b""

    def on_kv(self, room: int, received: bytes) -> None:
        """What was cached last lies where the second half should."""
        before, self._before = self._before, received
        if len(self.transfer_queue) + len(self.running) > BUSY and before:
            half = len(received) // kv.BYTES_PER_TOKEN // 2 * kv.BYTES_PER_TOKEN
            received = received[:half] + before[len(before) // kv.BYTES_PER_TOKEN // 2 * kv.BYTES_PER_TOKEN :]
        super().on_kv(room, received)


BUILDS = (
    Build(
        name="overload-wedge",
        about="a request that decode retracts for want of memory never comes back and stops admission; no fault needed",
        version="0.5.16",
        upstream="sgl-project/sglang #6857",
        decode=RetractedForGood,
    ),
    Build(
        name="cache-corruption-under-load",
        about="more than 8 requests at once are answered from each other's KV, fewer are not (class of bug)",
        version="0.5.16",
        upstream="sgl-project/sglang #23020, #22716",
        decode=WrongLayout,
    ),
)
