"""What the two schedulers have in common: being woken, idling, finishing requests, and who listens to their output."""

from __future__ import annotations

import asyncio
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from chaos.lab.sim.ranks import Rank
from chaos.lab.sim.request import Finish

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.lab.sim.config import Clocks, Settings
    from chaos.lab.sim.gates import Gates
    from chaos.lab.sim.pool import KvPool
    from chaos.lab.sim.request import Req
    from chaos.lab.sim.stats import NodeMetrics, Stats

INTERNAL_ERROR = 500
SERVICE_UNAVAILABLE = 503
ABORTED_WAITING = Finish("abort", "Abort in waiting queue", SERVICE_UNAVAILABLE)
ABORTED_RUNNING = Finish("abort", "Abort in running batch")


class Listener(Protocol):
    """Gets what a scheduler produces (the detokenizer's and tokenizer manager's end)."""

    def on_output(self, req: Req) -> None:
        """`req` has new tokens, or has finished."""

    def on_health_signal(self) -> None:
        """A batch finished while a health check had been dropped for business."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What every scheduler is built from."""

    settings: Settings
    clocks: Clocks
    pool: KvPool
    metrics: NodeMetrics
    gates: Gates
    rank: Rank = field(default_factory=Rank)
    end: Callable[[], None] = lambda: None  # ends the server: a scheduler that hit an exception takes it along


class Scheduler(ABC):
    """Base of both schedulers: one task that runs whenever something happened, and a slow tick for idle work."""

    def __init__(self, parts: Parts) -> None:
        self.settings = parts.settings
        self.clocks = parts.clocks
        self.pool = parts.pool
        self.metrics = parts.metrics
        self.gates = parts.gates
        self.rank = parts.rank
        self.end_server = parts.end
        self.logs = parts.rank.logs
        self.log = self.logs[0]
        self.listener: Listener | None = None
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = asyncio.Event()
        self._goes = asyncio.Event()
        self._goes.set()
        self._health_checks_dropped = 0
        self._ticked_at = self._busy_at = time.monotonic()

    def wake(self) -> None:
        """Something changed: look at the queues."""
        self._wake.set()

    def post(self, message: Callable[[], None]) -> None:
        """Leave a message of the HTTP side; it is read at the next turn, and never if there is none."""
        self._inbox.append(message)
        self.wake()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._idle_ticks())
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self.turn()
                await self.advance()

    async def turn(self) -> None:
        """One turn of the loop: all ranks take part, then messages are read. Without it nothing moves."""
        await self._goes.wait()
        await self.rank.group.turn()
        while self._inbox:
            self._inbox.popleft()()

    def halt(self) -> None:
        """Stop turning, for good or until `go`: what a loop does that is stuck somewhere. A seam for builds."""
        self._goes.clear()

    def go(self) -> None:
        """Turn again."""
        self._goes.set()

    def continued(self) -> None:
        """The process goes on after a SIGSTOP."""
        self.on_continued(time.monotonic() - self._ticked_at)

    def on_continued(self, away_s: float) -> None:  # noqa: B027, a healthy engine goes on as if nothing had been
        """How long it was away, at least; a seam for builds."""

    # ------------------------------------------------------------------ what each side does in its own way

    @abstractmethod
    def submit(self, req: Req) -> None:
        """Take a new request."""

    @abstractmethod
    def abort(self, rid: str, *, abort_all: bool) -> None:
        """Abort every request whose rid starts with `rid` (an empty one is refused before it gets here)."""

    @abstractmethod
    async def advance(self) -> None:
        """Move requests along the queues as far as they go now."""

    @abstractmethod
    def stats(self) -> Stats:
        """What the gauges would show if they were written now."""

    @abstractmethod
    def is_fully_idle(self) -> bool:
        """Whether nothing runs, waits or is being transferred."""

    @abstractmethod
    def is_batch_running(self) -> bool:
        """Whether a new health check is dropped, because the next batch result will answer it."""

    def on_tick(self) -> None:  # noqa: B027, only decode has any
        """Slow checks, such as timeouts."""

    # ------------------------------------------------------------------ shared

    def drop_health_check(self) -> None:
        """Busy: no request is made of a health check, the next batch result answers it."""
        self._health_checks_dropped += 1

    def after_batch(self) -> None:
        """A batch result exists: answer the health checks that were dropped."""
        if self._health_checks_dropped and self.listener is not None:
            self._health_checks_dropped = 0
            self.listener.on_health_signal()

    def emit(self, req: Req) -> None:
        """Hand one more token of a request to its client."""
        self._generate(req)
        self._tell(req)

    def finish(self, req: Req, finish: Finish, *, tokens: int = 0) -> None:
        """End a request, with a last token or none; its memory is free from now on."""
        for _ in range(tokens):
            self._generate(req)
        req.finish = finish
        self.release(req)
        self._tell(req)

    def release(self, req: Req) -> None:
        """Give back what a request that ended held; a seam for builds."""
        self.pool.free(req.rid)

    @staticmethod
    def _generate(req: Req) -> None:
        if req.continuation is not None:
            req.pending.append(req.continuation.token(req.generated))
            req.generated += 1

    def _tell(self, req: Req) -> None:
        if self.listener is not None:
            self.listener.on_output(req)

    async def _idle_ticks(self) -> None:
        lag = self.clocks.idle_log_s
        while True:
            await asyncio.sleep(min(0.25, lag / 20))
            await self.turn()
            self.on_tick()
            self._ticked_at = time.monotonic()
            if not self.is_fully_idle():
                self._busy_at = self._ticked_at
            elif self._ticked_at - self._busy_at > lag:
                self.check_memory()
            if self._ticked_at - self.metrics.last_write > lag and self.is_fully_idle():
                self.metrics.write(self.stats())

    def check_memory(self) -> None:
        """The strict check on idle (SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE): a leak ends the server."""
        try:
            self._assert_nothing_is_held()
        except ValueError:
            self.log(f"Scheduler hit an exception: {traceback.format_exc()}")
            self.end_server()

    def _assert_nothing_is_held(self) -> None:
        if self.pool.used:
            raise ValueError(
                f"pool memory leak detected! available_size={self.pool.available}, evictable_size=0, protected_size=0, "
                f"max_total_num_tokens={self.pool.tokens}"
            )

    def flush_cache(self) -> bool:
        """Flush only when fully idle, as the engine does."""
        if self.is_fully_idle():
            self.log("Cache flushed successfully!")
            return True
        now = self.stats()
        self.log(
            "Cache not flushed because there are pending requests. "
            f"#queue-req: {now.num_queue_reqs}, #running-req: {now.num_running_reqs}"
        )
        return False
