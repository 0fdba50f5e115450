"""Bugs that need load and no fault."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chaos.lab.sim import kv
from chaos.lab.sim.builds.build import Build
from chaos.lab.sim.decode_scheduler import DecodeScheduler
from chaos.lab.sim.frontend import Frontend
from chaos.lab.sim.prefill_scheduler import PrefillScheduler
from chaos.lab.sim.rooms import KVPoll
from chaos.lab.sim.transfer import TransferWorkers

if TYPE_CHECKING:
    from chaos.lab.sim.request import Req
    from chaos.lab.sim.stats import Stats

SWA_TOKENS = 4096  # of the pool of a hybrid model's sliding-window layers, beside the full one
SWA_MARGIN = 512  # of it, kept free at admission
QUARANTINE_BUDGET = 16  # transfers that may miss their deadline (mQuarantineBudget)
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


class SlidingWindowPool(PrefillScheduler):
    """A prompt that the pool of the sliding-window layers could never hold is not refused: it waits, at the head."""

    def admit(self, req: Req) -> bool:
        """It has to fit into both pools."""
        return req.prompt_len + SWA_MARGIN <= SWA_TOKENS - self.pool.used and super().admit(req)

    def usage(self, stats: Stats) -> str:
        """Of both."""
        swa = self.pool.used / SWA_TOKENS
        return f"full token usage: {stats.token_usage:.2f}, swa token usage: {swa:.2f}"


class Quarantined(TransferWorkers):
    """A transfer that is not over at its deadline, which counts from when it was queued, is put down as dead for good.

    It goes on, and arrives.
    """

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        self._quarantined = 0

    @property
    def is_healthy(self) -> bool:
        """Whether no more than the budget were put down; nothing ever takes one back."""
        return self._quarantined <= QUARANTINE_BUDGET

    def enqueue(self, room: int, kv: bytes) -> None:
        """The deadline runs while it waits for a worker, too."""
        asyncio.get_running_loop().call_later(self.clocks.transfer_timeout_s, self._due, room)
        super().enqueue(room, kv)

    def _due(self, room: int) -> None:
        rooms = self.manager.rooms
        if rooms.known(room) and rooms.poll(room) not in (KVPoll.SUCCESS, KVPoll.FAILED):
            self._quarantined += 1


class AsksTransceiver(Frontend):
    """`/health` is what the transfer backend thinks of itself, whatever is generated meanwhile."""

    async def is_healthy(self) -> bool:
        """As it always was, and then that."""
        backends = [each.transfer for each in self.ranks.schedulers if isinstance(each, PrefillScheduler)]
        sick = any(isinstance(each, Quarantined) and not each.is_healthy for each in backends)
        return not sick and await super().is_healthy()


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
    Build(
        name="starved-by-one-prompt",
        about="a prompt too long for the sliding-window pool stays first in prefill's queue until its client leaves",
        version="0.5.16",
        upstream="sgl-project/sglang #31205",
        prefill=SlidingWindowPool,
    ),
    Build(
        name="slow-counted-as-dead",
        about="17 transfers that took over 30 s, queue included, and prefill's /health says 503 for good; it serves on",
        version="0.5.16",
        upstream="NVIDIA/TensorRT-LLM PR #13831, #13824",
        transfer=Quarantined,
        frontend=AsksTransceiver,
    ),
)
