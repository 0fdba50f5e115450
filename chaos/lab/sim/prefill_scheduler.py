"""The prefill side: bootstrap queue -> waiting queue -> forward pass -> inflight queue -> done with one token."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from chaos.lab.sim import kv
from chaos.lab.sim.config import CHUNKED_PREFILL_TOKENS
from chaos.lab.sim.gates import PREFILL
from chaos.lab.sim.request import Finish, Req
from chaos.lab.sim.rooms import ABORTED_BY_REQUEST, KVPoll, transfer_error
from chaos.lab.sim.scheduler import ABORTED_WAITING, INTERNAL_ERROR, Scheduler
from chaos.lab.sim.stats import Stats

if TYPE_CHECKING:
    from chaos.lab.sim.control import PrefillManager
    from chaos.lab.sim.scheduler import Parts
    from chaos.lab.sim.transfer import TransferWorkers


class PrefillScheduler(Scheduler):
    """Queues of a prefill rank. Requests on the fake path skip bootstrap and transfer."""

    def __init__(
        self, parts: Parts, *, manager: PrefillManager, transfer: TransferWorkers, reports_running: bool
    ) -> None:
        super().__init__(parts)
        self.manager = manager
        self.transfer = transfer
        self.reports_running = reports_running  # before 0.5.16 the gauge is always 0 (PR #31495)
        self.bootstrap_queue: list[Req] = []
        self.waiting_queue: list[Req] = []
        self.forwarding: list[Req] = []
        self.inflight_queue: list[Req] = []
        self._last_batch = time.monotonic()
        self._last_batch_size = 0
        self._throughput = 0.0
        for each in (manager, *manager.followers):
            each.wake = self.wake

    # ------------------------------------------------------------------ in and out

    def submit(self, req: Req) -> None:
        """Queue a request: for bootstrap, or straight for a forward pass when it is fake."""
        if req.prompt_len > self.pool.tokens:
            message = f"Request {req.rid} exceeds the maximum number of tokens: {req.prompt_len} > {self.pool.tokens}"
            self.log(message)
            self.finish(req, Finish("abort", message, 400))
            return
        if req.fake:
            self.waiting_queue.append(req)
        else:
            self.manager.begin(req.bootstrap_room)
            self.bootstrap_queue.append(req)
        self.wake()

    def abort(self, rid: str, *, abort_all: bool) -> None:
        """Waiting requests end at once; the others fail their room and end when the scheduler looks at it."""
        for req in [each for each in self.waiting_queue if abort_all or each.rid.startswith(rid)]:
            self.waiting_queue.remove(req)
            self._end(req, ABORTED_WAITING)
        for req in (*self.bootstrap_queue, *self.forwarding, *self.inflight_queue):
            if not req.fake and (abort_all or req.rid.startswith(rid)):
                self.manager.give_up(req.bootstrap_room, ABORTED_BY_REQUEST)
        self.wake()

    def _end(self, req: Req, finish: Finish, *, tokens: int = 0) -> None:
        if not req.fake:
            self.manager.forget(req.bootstrap_room)
        self.finish(req, finish, tokens=tokens)

    # ------------------------------------------------------------------ the loop

    async def advance(self) -> None:
        """Poll both polled queues and run forward passes until there is nothing to run."""
        while True:
            self._poll_bootstrap_queue()
            self._poll_inflight_queue()
            batch = self._next_batch()
            if not batch:
                return
            await self._forward(batch)

    def _poll_bootstrap_queue(self) -> None:
        still = []
        for req in self.bootstrap_queue:
            poll = self.manager.poll(req.bootstrap_room)
            if poll is KVPoll.FAILED:
                self._fail(req, "Prefill bootstrap failed", "num_bootstrap_failed_reqs_total")
            elif poll is KVPoll.WAITING_FOR_INPUT:
                self.waiting_queue.append(req)
            else:
                still.append(req)
        self.bootstrap_queue = still

    def _poll_inflight_queue(self) -> None:
        still = []
        for req in self.inflight_queue:
            poll = self.manager.poll(req.bootstrap_room)
            if poll is KVPoll.FAILED:
                self._fail(req, "Prefill transfer failed", "num_transfer_failed_reqs_total")
            elif poll is KVPoll.SUCCESS:
                self._end(req, Finish("length"), tokens=1)
            else:
                still.append(req)
        self.inflight_queue = still

    def _fail(self, req: Req, what: str, counter: str) -> None:
        error = transfer_error(req.bootstrap_room, self.manager.reason(req.bootstrap_room))
        for rank, log in enumerate(self.logs):
            log(f"{what} for request {rank=} {req.rid=} {req.bootstrap_room=} with exception {error}")
        self.metrics.count(counter)
        message = f"{what} for request rank=0 {req.rid=} {req.bootstrap_room=} with exception {error}"
        self._end(req, Finish("abort", message, INTERNAL_ERROR))

    def _next_batch(self) -> list[Req]:
        batch: list[Req] = []
        budget = CHUNKED_PREFILL_TOKENS
        held = self.gates.holds(PREFILL)
        for req in list(self.waiting_queue):
            if held and not req.fake:
                continue
            if batch and req.prompt_len > budget:
                break
            if not self.admit(req):
                break
            self.waiting_queue.remove(req)
            batch.append(req)
            budget -= req.prompt_len
        return batch

    def admit(self, req: Req) -> bool:
        """Take memory for the head of the queue; False when it has to wait, and all behind it. A seam for builds."""
        return self.pool.reserve(req.rid, req.prompt_len)

    async def _forward(self, batch: list[Req]) -> None:
        """One or, for a prompt longer than a chunk, several forward passes."""
        self.forwarding = batch
        left = sum(req.prompt_len for req in batch)
        while left > 0:
            chunk = min(left, CHUNKED_PREFILL_TOKENS)
            left -= chunk
            self._report(len(batch), chunk, left)
            await asyncio.sleep(self.forward_s(chunk))
            await self.turn()
            self.metrics.count("realtime_tokens_total", chunk, mode="prefill_compute")
        self.forwarding = []
        for req in batch:
            computed = kv.make_kv(req.tokens)
            req.continuation = kv.Continuation.of(computed)
            if req.fake:
                self._end(req, Finish("length"), tokens=1)
            else:
                self.inflight_queue.append(req)
                self.transfer.enqueue(req.bootstrap_room, computed)
        self.after_batch()

    def forward_s(self, tokens: int) -> float:
        """How long a forward pass of so many tokens takes; a seam for builds."""
        return tokens / self.settings.prefill_tps

    # ------------------------------------------------------------------ reports

    def _report(self, seqs: int, new_tokens: int, pending: int) -> None:
        now = time.monotonic()
        self._throughput = new_tokens / max(now - self._last_batch, 1e-3)
        self._last_batch, self._last_batch_size = now, seqs
        stats = self.stats()
        self.metrics.write(stats)
        self.log(
            f"Prefill batch, #new-seq: {seqs}, #new-token: {new_tokens}, #cached-token: 0, "
            f"{self.usage(stats)}, #running-req: {stats.num_running_reqs}, "
            f"#queue-req: {stats.num_queue_reqs}, "
            f"#pending-token: {pending + sum(req.prompt_len for req in self.waiting_queue)}, "
            f"#bootstrap-req: {len(self.bootstrap_queue)}, #inflight-req: {len(self.inflight_queue)}, "
            f"cuda graph: False, input throughput (token/s): {self._throughput:.2f}"
        )

    def usage(self, stats: Stats) -> str:
        """Memory in use, as a batch's line tells it; a seam for builds of models with several pools."""
        return f"token usage: {stats.token_usage:.2f}"

    def stats(self) -> Stats:
        """What the gauges would show now."""
        return Stats(
            num_running_reqs=self._last_batch_size if self.reports_running and self.forwarding else 0,
            num_queue_reqs=len(self.waiting_queue),
            num_prefill_bootstrap_queue_reqs=len(self.bootstrap_queue),
            num_prefill_inflight_queue_reqs=len(self.inflight_queue),
            num_used_tokens=self.pool.used,
            max_total_num_tokens=self.pool.tokens,
        )

    def is_fully_idle(self) -> bool:
        """Nothing runs, waits, bootstraps or is being sent."""
        return not (self.forwarding or self.waiting_queue or self.bootstrap_queue or self.inflight_queue)

    def is_batch_running(self) -> bool:
        """Never: health checks queue as requests and run as batches of their own."""
        return False
