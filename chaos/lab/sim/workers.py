"""The router's view of its workers: health checks, circuit breakers, selection (sglang-router 0.3.2 defaults)."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import aiohttp

from chaos.lab.sim import lines

if TYPE_CHECKING:
    from chaos.lab.sim.config import Clocks, Upstream
    from chaos.lab.sim.exposition import Exposition

UNHEALTHY_AFTER = 3  # failed health checks in a row
BREAKER_OPENS_AFTER = 10  # failed requests in a row
_LEAST_HEALTH_TIMEOUT_S = 1.0  # scaled timeouts must not call a worker on a starved machine unhealthy


@dataclass(slots=True, eq=False)
class Worker:
    """One prefill or decode server."""

    url: str
    kind: Literal["prefill", "decode"]
    bootstrap_port: int
    healthy: bool = False
    failed_checks: int = 0
    failures: int = 0
    opened_at: float | None = None
    active: int = 0
    given_up: bool = False  # never checked again


class Workers:
    """All workers of a router."""

    def __init__(
        self,
        prefill: tuple[Upstream, ...],
        decode: tuple[Upstream, ...],
        *,
        clocks: Clocks,
        page: Exposition,
        http: aiohttp.ClientSession,
    ) -> None:
        self.all = [
            *(Worker(each.url, "prefill", each.bootstrap_port) for each in prefill),
            *(Worker(each.url, "decode", 0) for each in decode),
        ]
        self.clocks = clocks
        self.page = page
        self._http = http
        self._turn = {"prefill": itertools.count(), "decode": itertools.count()}

    # ------------------------------------------------------------------ selection

    def select(self, kind: Literal["prefill", "decode"]) -> Worker | str:
        """The next usable worker of a kind, round robin; a text says why there is none."""
        mine = [worker for worker in self.all if worker.kind == kind]
        if not any(worker.healthy for worker in mine):
            return f"No {kind} workers available. Please check if {kind} servers are configured and healthy."
        usable = [worker for worker in mine if worker.healthy and not self.passed_over(worker)]
        if not usable:
            return f"No available {kind} workers (all circuits open or unhealthy)"
        worker = usable[next(self._turn[kind]) % len(usable)]
        self.page.inc("smg_worker_selection_total", worker_type=kind, worker=worker.url)
        return worker

    def passed_over(self, worker: Worker) -> bool:
        """Whether selection leaves a healthy worker out; a seam for builds."""
        return self.is_open(worker)

    def is_ready(self) -> bool:
        """Whether a pair can be chosen."""
        return {worker.kind for worker in self.all if worker.healthy} == {"prefill", "decode"}

    # ------------------------------------------------------------------ breaker

    def is_open(self, worker: Worker) -> bool:
        """Whether its breaker is open."""
        return worker.opened_at is not None and time.monotonic() - worker.opened_at < self.clocks.breaker_open_s

    def result(self, worker: Worker, *, ok: bool) -> None:
        """Count the outcome of a request.

        One that was under way when the breaker opened leaves it open, and for no longer. Half open, one failure opens
        it again and one success closes it (sgl-router's `circuit_breaker.rs`, where that takes several).
        """
        self.page.inc("smg_worker_cb_outcomes_total", worker=worker.url, outcome="success" if ok else "failure")
        worker.failures = 0 if ok else worker.failures + 1
        half_open = worker.opened_at is not None and not self.is_open(worker)
        if ok and half_open:
            worker.opened_at = None
        elif half_open or (worker.opened_at is None and worker.failures >= BREAKER_OPENS_AFTER):
            worker.opened_at = time.monotonic()
        self.page.set("smg_worker_cb_state", 1.0 if self.is_open(worker) else 0.0, worker=worker.url)

    def started(self, worker: Worker, by: int) -> None:
        """Count requests in flight; a seam for builds."""
        worker.active += by
        self.page.set("smg_worker_requests_active", worker.active, worker=worker.url)

    # ------------------------------------------------------------------ health

    async def keep_checking(self) -> None:
        """Check every worker at the health interval, until cancelled."""
        while True:
            await asyncio.sleep(self.clocks.router_health_s)
            await self.check_all()

    async def check_all(self) -> None:
        """One round of health checks."""
        async with asyncio.TaskGroup() as tasks:
            for worker in self.all:
                if not worker.given_up:
                    tasks.create_task(self._check(worker))
        for kind in ("prefill", "decode"):
            self.page.set("smg_worker_pool_size", sum(w.kind == kind for w in self.all), worker_type=kind)

    def lost(self, worker: Worker) -> None:
        """Select it no more."""
        worker.healthy = False
        lines.gateway("WARN", "core::worker", f"Worker {worker.url} is unhealthy")
        self.page.set("smg_worker_health", 0.0, worker=worker.url)

    async def _check(self, worker: Worker) -> None:
        timeout = max(self.clocks.router_health_timeout_s, _LEAST_HEALTH_TIMEOUT_S)
        try:
            async with self._http.get(f"{worker.url}/health", timeout=aiohttp.ClientTimeout(total=timeout)) as reply:
                ok = reply.status == 200
        except (aiohttp.ClientError, TimeoutError):
            ok = False
        self.page.inc("smg_worker_health_checks_total", worker_type=worker.kind, result="success" if ok else "failure")
        worker.failed_checks = 0 if ok else worker.failed_checks + 1
        if ok and not worker.healthy:
            worker.healthy = True
            lines.gateway("INFO", "core::worker", f"Worker {worker.url} is healthy")
        elif worker.healthy and worker.failed_checks >= UNHEALTHY_AFTER:
            self.lost(worker)
        self.page.set("smg_worker_health", float(worker.healthy), worker=worker.url)
