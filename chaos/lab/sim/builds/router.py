"""Bugs of the router: the engines are well, and asked directly they answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from chaos.lab.sim.builds.build import Build
from chaos.lab.sim.dispatch import Dispatcher
from chaos.lab.sim.workers import Workers

if TYPE_CHECKING:
    import aiohttp

    from chaos.lab.sim.workers import Worker


class NeverCloses(Workers):
    """A prefill's breaker, once open, goes to half open and back for ever; selection does not look at it."""

    def passed_over(self, worker: Worker) -> bool:
        """Only a decode's breaker is looked at."""
        return worker.kind == "decode" and super().passed_over(worker)

    def result(self, worker: Worker, *, ok: bool) -> None:
        """A success in the half-open state is not counted."""
        if worker.opened_at is None or not ok:
            super().result(worker, ok=ok)

    def permits(self, worker: Worker) -> bool:
        """Whether a request may be sent: when half open one is, and then the breaker is open again."""
        if worker.opened_at is None:
            return True
        if self.is_open(worker):
            return False
        worker.opened_at = time.monotonic()
        return True


class HalfDispatch(Dispatcher):
    """Clients that leave count as the prefill's failures; its open breaker stops its leg and not decode's."""

    workers: NeverCloses

    def on_client_left(self, prefill: Worker) -> None:
        """Ten in a row open the breaker."""
        self.workers.result(prefill, ok=False)

    async def post(self, worker: Worker, path: str, payload: bytes) -> aiohttp.ClientResponse | str:
        """Nothing is posted to a worker whose breaker is open."""
        if worker.kind == "prefill" and not self.workers.permits(worker):
            return f"circuit breaker is open for {worker.url}"
        return await super().post(worker, path, payload)


class RefusalsCount(Dispatcher):
    """Every answer but 2xx counts as its worker's failure, so requests that were rightly refused open breakers."""

    def is_fine(self, status: int) -> bool:
        """A request that is too long is 400, and deserves it."""
        return status < 300


BUILDS = (
    Build(
        name="router-half-dispatch",
        about="clients that leave open the prefill's breaker; the router goes on posting the decode leg alone",
        version="0.5.16",
        upstream="sgl-project/sglang #31206, #31933",
        workers=NeverCloses,
        dispatcher=HalfDispatch,
    ),
    Build(
        name="refusals-open-breakers",
        about="answers of 400 count as failures of the worker: ten in a row and the router refuses all for a minute",
        version="0.5.16",
        upstream="sgl-project/sglang #25811, PR #13762 (there of the router without PD); vllm-project/router PR #60",
        dispatcher=RefusalsCount,
    ),
)
