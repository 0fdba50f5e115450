"""The decode side: prealloc queue -> transfer queue -> running batch, one token per request and step.

A request is admitted (memory reserved, destination sent to prefill) only while slots and KV tokens last; the others
wait in the prealloc queue without a first token. Only requests in these two queues send ABORT when they are aborted.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

from chaos.lab.sim import kv
from chaos.lab.sim.config import DECODE_LOG_INTERVAL
from chaos.lab.sim.decode_request import DecodeReq
from chaos.lab.sim.gates import TRANSFER
from chaos.lab.sim.request import Finish, Req
from chaos.lab.sim.rooms import ABORTED_BY_REQUEST, KVPoll, transfer_error
from chaos.lab.sim.scheduler import ABORTED_RUNNING, ABORTED_WAITING, INTERNAL_ERROR, Scheduler
from chaos.lab.sim.stats import Stats

if TYPE_CHECKING:
    from chaos.lab.sim.peers import Peers, PrefillPeer
    from chaos.lab.sim.scheduler import Parts

_GROW_BY = 64  # KV tokens taken at once by a sequence that outgrew its reservation
_SLOW_TRANSFER = (
    "Some requests fail to receive KV Cache transfer done signal after bootstrapping. If a greater mean TTFT is "
    "acceptable, you can 'export SGLANG_DISAGGREGATION_WAITING_TIMEOUT=600' (10 minutes) to relax the timeout "
    "condition. "
)


class DecodeScheduler(Scheduler):
    """Queues of a decode rank; also hears from the peers and takes KV."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.peers: Peers | None = None
        self.prealloc_queue: list[DecodeReq] = []
        self.transfer_queue: list[DecodeReq] = []
        self.running: list[Req] = []
        self.retracted_queue: list[Req] = []
        self._something_runs = asyncio.Event()
        self._steps = 0
        self._tokens_since_report = 0
        self._last_report = time.monotonic()
        self._throughput = 0.0

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run())
            tasks.create_task(self._run_steps())

    # ------------------------------------------------------------------ in and out

    def submit(self, req: Req) -> None:
        """Queue a request for admission."""
        if req.prompt_len >= self.pool.tokens:
            message = f"Request {req.rid} exceeds the maximum number of tokens: {req.prompt_len} > {self.pool.tokens}"
            self.log(message)
            self.finish(req, Finish("abort", message, 400))
            return
        req.max_new_tokens = min(req.max_new_tokens, self.pool.tokens - req.prompt_len)
        item = DecodeReq(req)
        if not req.fake and self.peers is not None:
            item.peer = self.peers.get(req.bootstrap_addr)
        self.prealloc_queue.append(item)
        self.wake()

    def abort(self, rid: str, *, abort_all: bool) -> None:
        """Give up queued rooms, with a notice to prefill; running requests end at the next step, without one."""
        for item in (*self.prealloc_queue, *self.transfer_queue):
            if (abort_all or item.req.rid.startswith(rid)) and not item.req.fake:
                self.give_up(item, ABORTED_BY_REQUEST)
        for req in [each for each in self.retracted_queue if abort_all or each.rid.startswith(rid)]:
            self.retracted_queue.remove(req)
            self.finish(req, ABORTED_WAITING)
        for req in self.running:
            if abort_all or req.rid.startswith(rid):
                req.to_finish = ABORTED_RUNNING
        self.wake()

    def give_up(self, item: DecodeReq, reason: str) -> None:
        """End a queued room by an abort or a timeout; a seam for builds."""
        if item.fail(reason):
            self.notify_abort(item)

    def notify_abort(self, item: DecodeReq) -> None:
        """Tell prefill that a room was given up (since 0.5.13); a seam for builds."""
        if item.peer is not None and item.peer.ready and self.peers is not None:
            self.peers.send_abort(item.peer, item.room)

    # ------------------------------------------------------------------ what peers and prefill tell

    def on_peer_ready(self, peer: PrefillPeer) -> None:  # noqa: ARG002, the queue knows its peers
        """Requests that waited for this prefill's address can be admitted."""
        self.wake()

    def on_peer_unknown(self, peer: PrefillPeer, reason: str) -> None:
        """Fail every request for a prefill that could not be found."""
        for item in self.prealloc_queue:
            if item.peer is peer:
                item.fail(reason)
        self.wake()

    def on_peer_lost(self, peer: PrefillPeer) -> None:
        """Fail every request of a prefill that stopped answering."""
        reason = f"Lost connection with prefill instance (bootstrap_addr: {peer.addr})"
        affected = [item for item in (*self.prealloc_queue, *self.transfer_queue) if item.peer is peer]
        for item in affected:
            item.fail(reason)
        self.log(f"{reason}, {len(affected)} requests affected")
        self.wake()

    def on_kv(self, room: int, received: bytes) -> None:
        """KV of a room arrived; of a room given up it is dropped."""
        for item in self.transfer_queue:
            if item.room == room and item.poll is KVPoll.WAITING_FOR_INPUT:
                item.kv, item.poll = received, KVPoll.SUCCESS
                self.wake()

    # ------------------------------------------------------------------ queues

    async def advance(self) -> None:
        """Fail, resume, admit and start whatever can be."""
        self._drop_failed()
        self._take_transferred()
        self.resume_retracted()
        self._admit()

    def _drop_failed(self) -> None:
        for item in [item for item in self.prealloc_queue if item.poll is KVPoll.FAILED]:
            self.prealloc_queue.remove(item)
            self._fail(item, "Decode handshake failed", "num_bootstrap_failed_reqs_total")
        for item in [item for item in self.transfer_queue if item.poll is KVPoll.FAILED]:
            self.transfer_queue.remove(item)
            self._fail(item, "Decode transfer failed", "num_transfer_failed_reqs_total")

    def _fail(self, decode_req: DecodeReq, what: str, counter: str) -> None:
        error = transfer_error(decode_req.room, decode_req.reason)
        of = f"{decode_req.req.rid=} {decode_req.req.bootstrap_room=} with exception {error}"
        for rank, log in enumerate(self.logs):
            log(f"{what} for request {rank=} {of}")
        message = f"{what} for request rank=0 {of}"
        self.metrics.count(counter)
        self.finish(decode_req.req, Finish("abort", message, INTERNAL_ERROR))

    def _admit(self) -> None:
        """Admit from the head of the queue; the first one that does not fit stops it."""
        waiting = self.prealloc_queue
        self.prealloc_queue = []
        for position, item in enumerate(waiting):
            req = item.req
            if not req.fake and item.peer is not None and not item.peer.ready:
                self.prealloc_queue.append(item)
                continue
            reserve = req.prompt_len + min(self.settings.reserved_decode_tokens, req.max_new_tokens)
            if self.retracted_queue or not self.pool.reserve(req.rid, min(reserve, self.pool.tokens)):
                self.prealloc_queue += waiting[position:]
                return
            if req.fake:
                self.start(req, kv.make_kv(req.tokens))
            else:
                self.ask_for_kv(item)

    def ask_for_kv(self, item: DecodeReq) -> None:
        """Tell prefill where the KV of an admitted request goes; a seam for builds."""
        item.poll = KVPoll.WAITING_FOR_INPUT
        item.sent_at = time.monotonic()
        self.transfer_queue.append(item)
        if item.peer is not None and self.peers is not None:
            self.peers.send_transfer_info(
                item.peer, item.room, pages=item.req.prompt_len, aux_index=len(self.transfer_queue)
            )

    def _take_transferred(self) -> None:
        if self.gates.holds(TRANSFER):
            return
        for item in [item for item in self.transfer_queue if item.poll is KVPoll.SUCCESS]:
            self.transfer_queue.remove(item)
            self.start(item.req, item.kv)

    def start(self, req: Req, received: bytes) -> None:
        """The first token comes with the transfer; a request that wants no more never takes a decode step."""
        req.continuation = kv.Continuation.of(received)
        if req.max_new_tokens <= 1:
            self.finish(req, Finish("length"), tokens=1)
        else:
            self.running.append(req)
            self.emit(req)
            self._something_runs.set()
        self.after_batch()

    def on_tick(self) -> None:
        """Time out transfers that never came; that sends ABORT, too (`_check_waiting_timeout`)."""
        now = time.monotonic()
        for item in self.transfer_queue:
            elapsed = now - item.sent_at
            if elapsed > self.clocks.waiting_timeout_s and item.poll is KVPoll.WAITING_FOR_INPUT:
                self.log.once(_SLOW_TRANSFER)
                self.give_up(item, f"Request {item.room} timed out after {elapsed:.1f}s in KVPoll.WaitingForInput")
                self.wake()

    # ------------------------------------------------------------------ steps

    async def _run_steps(self) -> None:
        """One timer for the whole batch, on absolute deadlines."""
        loop = asyncio.get_running_loop()
        step = self.settings.step_ms / 1000
        while True:
            await self._something_runs.wait()
            due = loop.time()
            while self.running:
                due = max(due + step, loop.time())  # a starved machine loses steps, it does not make up for them
                await asyncio.sleep(due - loop.time())
                await self.turn()
                self._step()
            self._something_runs.clear()

    def _step(self) -> None:
        batch, self.running = deque(self.running), []
        before, produced = len(batch), 0
        retracted: list[Req] = []
        while batch:
            req = batch.popleft()
            if req.to_finish is not None:
                self.finish(req, req.to_finish)
            elif self._make_room(req, batch, retracted):
                produced += 1
                if req.generated + 1 >= req.max_new_tokens:
                    self.finish(req, Finish("length"), tokens=1)
                else:
                    self.running.append(req)
                    self.emit(req)
        self._steps += 1
        self._tokens_since_report += produced
        if produced:
            self.metrics.count("realtime_tokens_total", produced, mode="decode")
        if retracted:
            self._retract(retracted)
        if self._steps % DECODE_LOG_INTERVAL == 0:
            self._report()
        if len(self.running) < before:
            self.wake()
        self.after_batch()

    def _make_room(self, req: Req, behind: deque[Req], retracted: list[Req]) -> bool:
        """KV for one more token of `req`, at the cost of those behind it; False when it had to go itself."""
        while not self.pool.grow(req.rid, req.prompt_len + req.generated + 1, by=_GROW_BY):
            victim = behind.pop() if behind else req
            self.pool.free(victim.rid)
            retracted.append(victim)
            if victim is req:
                return False
        return True

    def _retract(self, reqs: list[Req]) -> None:
        for req in reqs:
            req.retractions += 1
        self.retracted_queue += reqs
        self.metrics.count("num_retracted_requests_total", len(reqs))
        self.log(
            f"KV cache pool is full. Retract requests. #retracted_reqs: {len(reqs)}, "
            f"#new_tokens_gained: {sum(req.prompt_len + req.generated for req in reqs)}, "
            "#new_token_ratio: 0.7000 -> 1.0000"
        )

    def resume_retracted(self) -> None:
        """Put retracted requests back, oldest first, as memory allows; a seam for builds."""
        while self.retracted_queue:
            req = self.retracted_queue[0]
            if not self.pool.reserve(req.rid, min(req.prompt_len + req.generated + _GROW_BY, self.pool.tokens)):
                return
            self.running.append(self.retracted_queue.pop(0))
            self._something_runs.set()

    # ------------------------------------------------------------------ reports

    def _report(self) -> None:
        now = time.monotonic()
        self._throughput = self._tokens_since_report / max(now - self._last_report, 1e-3)
        self._tokens_since_report, self._last_report = 0, now
        stats = self.stats()
        self.metrics.write(stats)
        held = sum(item.req.prompt_len for item in self.transfer_queue)
        self.log(
            f"Decode batch, #running-req: {len(self.running)}, #token: {self.pool.used}, "
            f"token usage: {stats.token_usage:.2f}, pre-allocated usage: {held / self.pool.tokens:.2f}, "
            f"#prealloc-req: {len(self.prealloc_queue)}, #transfer-req: {len(self.transfer_queue)}, "
            f"#retracted-req: {len(self.retracted_queue)}, cuda graph: True, "
            f"gen throughput (token/s): {self._throughput:.2f}, #queue-req: 0"
        )

    def stats(self) -> Stats:
        """What the gauges would show now."""
        return Stats(
            num_running_reqs=len(self.running),
            num_retracted_reqs=len(self.retracted_queue),
            num_decode_prealloc_queue_reqs=len(self.prealloc_queue),
            num_decode_transfer_queue_reqs=len(self.transfer_queue),
            num_used_tokens=self.pool.used,
            max_total_num_tokens=self.pool.tokens,
            gen_throughput=self._throughput if self.running else 0.0,
            decode_sum_seq_lens=sum(req.prompt_len + req.generated for req in self.running),
            pending_prealloc_tokens=sum(item.req.prompt_len for item in self.prealloc_queue),
        )

    def is_fully_idle(self) -> bool:
        """Nothing runs, waits or is being received."""
        return not (self.running or self.prealloc_queue or self.transfer_queue or self.retracted_queue)

    def is_batch_running(self) -> bool:
        """Whether a step is coming that answers health checks."""
        return bool(self.running)
