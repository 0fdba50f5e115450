"""Healthy variants that look sick: nothing here is ever a violation."""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

from chaos.lab.sim import lines
from chaos.lab.sim.builds.build import Build
from chaos.lab.sim.builds.processes import ConstantHealth
from chaos.lab.sim.decode_scheduler import DecodeScheduler
from chaos.lab.sim.frontend import Frontend
from chaos.lab.sim.prefill_scheduler import PrefillScheduler
from chaos.lab.sim.rooms import ABORTED_BY_REQUEST, KVPoll
from chaos.lab.sim.scheduler import ABORTED_RUNNING
from chaos.lab.sim.stats import NodeMetrics
from chaos.lab.sim.transfer import TransferWorkers
from chaos.lab.sim.workers import Workers

if TYPE_CHECKING:
    from chaos.lab.sim.decode_request import DecodeReq
    from chaos.lab.sim.request import Req
    from chaos.lab.sim.scheduler import Parts
    from chaos.lab.sim.stats import Stats
    from chaos.lab.sim.transfer import Links
    from chaos.lab.sim.workers import Worker

SLOWER = 10


class SlowPrefill(PrefillScheduler):
    """Every forward pass takes ten times as long, so `/health` waits behind long prompts until it gives up."""

    def forward_s(self, tokens: int) -> float:
        """Slow, and sure."""
        return SLOWER * super().forward_s(tokens)


class ColdPrefill(PrefillScheduler):
    """The first prompt of each length bucket compiles its kernels; nothing else runs meanwhile."""

    def __init__(self, parts: Parts, **more: object) -> None:
        super().__init__(parts, **more)  # type: ignore[arg-type]
        self._compiled: set[int] = set()

    def forward_s(self, tokens: int) -> float:
        """Once for each of up to 15, 255, 4095 and more tokens."""
        bucket = tokens.bit_length() // 4
        if bucket in self._compiled:
            return super().forward_s(tokens)
        self._compiled.add(bucket)
        self.log("Entering DeepGEMM JIT Pre-Compile session.")
        return super().forward_s(tokens) + self.clocks.jit_s


class StaleGauges(NodeMetrics):
    """The inflight gauge shows one too many, as one was seen on an idle server (`baseline idle ... 1.0`)."""

    def write(self, stats: Stats) -> None:
        """One that has gone already."""
        super().write(replace(stats, num_prefill_inflight_queue_reqs=stats.num_prefill_inflight_queue_reqs + 1))


class DeferredRelease(DecodeScheduler):
    """An aborted room keeps slot and KV until prefill has acknowledged it or 30 s have gone by (0.5.20 and later)."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._deferred: set[int] = set()

    def give_up(self, item: DecodeReq, reason: str) -> None:
        """Prefill is told at once; the room goes later."""
        if reason != ABORTED_BY_REQUEST or item.poll is not KVPoll.WAITING_FOR_INPUT:
            super().give_up(item, reason)
        elif item.room not in self._deferred:
            self._deferred.add(item.room)
            item.req.to_finish = ABORTED_RUNNING  # should its KV come first
            self.notify_abort(item)
            asyncio.get_running_loop().call_later(self.clocks.deferred_release_s, self._release, item)

    def _release(self, item: DecodeReq) -> None:
        self._deferred.discard(item.room)
        if item in self.transfer_queue and item.fail(ABORTED_BY_REQUEST):
            waited = self.clocks.deferred_release_s
            self.log(
                f"Deferred KV release for room {item.room} timed out after {waited:.1f}s without a full drain ack from "
                "prefill; releasing anyway."
            )
            self.wake()


class NoisyFrontend(Frontend):
    """Warns of every abort that comes too late, and of every client that left, with a traceback."""

    def abort(self, rid: str, *, abort_all: bool = False) -> None:
        """As a healthy one, with words."""
        if not abort_all and rid not in self.requests:
            lines.scheduler(f"Abort request for {rid=!s} not found in rid_to_state; likely already finished/removed.")
        super().abort(rid, abort_all=abort_all)

    def client_left(self, req: Req, *, headers_sent: bool) -> float:
        """Somebody wrote to a connection that was closed: the server's own handler prints that, and goes on."""
        lines.scheduler("[http_server] Client disconnected: ")
        lines.scheduler("Ignore abort_request with empty rid and abort_all=False")
        try:
            _write_to_closed()
        except ConnectionResetError:
            lines.undated(f"ERROR:    Exception in ASGI application\n{traceback.format_exc().rstrip()}")
        return super().client_left(req, headers_sent=headers_sent)


def _write_to_closed() -> None:
    raise ConnectionResetError("Cannot write to closing transport")


class NoisyTransfer(TransferWorkers):
    """A room that was aborted while its KV was queued hits an assertion, which is caught and logged (before 0.5.20)."""

    async def transfer(self, room: int, kv: bytes, links: Links) -> None:
        """The worker lives on."""
        try:
            assert room in self.manager.transfer_infos  # noqa: S101, the engine's own
        except AssertionError:
            self.log(f"Unexpected transfer worker error for room {room}\n{traceback.format_exc().rstrip()}")
        await super().transfer(room, kv, links)


class FreedByNextBatch(PrefillScheduler):
    """What a prompt held is freed in the next step; without work there is none, and it stays until somebody comes."""

    def __init__(self, parts: Parts, **more: object) -> None:
        super().__init__(parts, **more)  # type: ignore[arg-type]
        self._to_free: list[Req] = []

    def release(self, req: Req) -> None:
        """Later."""
        self._to_free.append(req)

    def admit(self, req: Req) -> bool:
        """A step frees first, so nobody ever waits for this memory."""
        while self._to_free:
            super().release(self._to_free.pop())
        return super().admit(req)

    def check_memory(self) -> None:
        """Not made: idle with memory in use is nothing strange here."""

    def flush_cache(self) -> bool:
        """Refused for as long as anything is to be freed."""
        if self._to_free:
            self.log(f"Failed to reset prefix cache because some blocks ({self.pool.used}) are not freed yet")
            return False
        return super().flush_cache()


class LoadDrifts(Workers):
    """A request is counted out at the end of its handler, which one whose client has left never reaches."""

    def started(self, worker: Worker, by: int) -> None:
        """A handler that was cancelled is dropped where it waits. Round robin does not look at the number."""
        task = asyncio.current_task()
        if by > 0 or task is None or not task.cancelling():
            super().started(worker, by)


BUILDS = (
    Build(
        name="slow-prefill",
        about="healthy: prefill is ten times slower, so its /health says 503 behind long prompts while it works",
        version="0.5.16",
        upstream="sgl-project/sglang #22511",
        prefill=SlowPrefill,
    ),
    Build(
        name="cold-start",
        about="healthy: the first prompt of each length compiles kernels for half a minute (times the time scale)",
        version="0.5.16",
        upstream="sgl-project/sglang #15891, #9867; ai-dynamo/dynamo #9435",
        prefill=ColdPrefill,
    ),
    Build(
        name="stale-gauge",
        about="healthy: the inflight gauge of an idle server shows 1, and all gauges lag behind",
        version="0.5.16",
        upstream="sgl-project/sglang #26495, #31517, #4244",
        metrics=StaleGauges,
    ),
    Build(
        name="late-drain",
        about="healthy: decode releases aborted rooms up to 30 s late, and then does",
        version="0.5.20",
        upstream="sgl-project/sglang PR #35360",
        decode=DeferredRelease,
    ),
    Build(
        name="noisy-log",
        about="healthy: dozens of lines about aborts and tracebacks that end nothing",
        version="0.5.16",
        upstream="sgl-project/sglang #9266, #35281",
        frontend=NoisyFrontend,
        transfer=NoisyTransfer,
    ),
    Build(
        name="freed-by-next-batch",
        about="healthy: an idle prefill holds the KV of what it computed last until the next request comes",
        version="0.5.16",
        upstream="vllm-project/vllm #41180",
        prefill=FreedByNextBatch,
        frontend=ConstantHealth,
    ),
    Build(
        name="load-count-drifts",
        about="healthy: the router counts requests whose clients left as in flight for good, and selects round robin",
        version="0.5.16",
        upstream="vllm-project/router PR #215, #200; sgl-project/sglang PR #9523",
        workers=LoadDrifts,
    ),
)
