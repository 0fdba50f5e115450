"""The tokenizer manager's part: who is waiting for what, when a client's leaving is noticed, and what `/health` means.

Lateness, from sglang 0.5.14: once a stream's headers are out, its abort is sent 2 s after the client left
(`create_abort_task`); before the first token of an OpenAI stream, and for anything not streamed, the connection is
looked at every 4 s (`SGLANG_REQUEST_STATE_WAIT_TIMEOUT`, "type 1") or when a token comes ("type 3").
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, ClassVar

from chaos.lab.sim import kv, lines
from chaos.lab.sim.bodies import BadRequestError
from chaos.lab.sim.request import FAKE_BOOTSTRAP_HOST, HEALTH_RID_PREFIX, Api, Req

if TYPE_CHECKING:
    from chaos.lab.sim.config import Clocks
    from chaos.lab.sim.ranks import DataParallel
    from chaos.lab.sim.stats import NodeMetrics

FORCED_STREAM_INTERVAL = 50  # tokens after which an answer that is not streamed is looked at anyway


class Frontend:
    """Requests by id, between the HTTP handlers and the schedulers."""

    health_generates: ClassVar[bool] = (
        True  # SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION; without it /health is a constant
    )

    def __init__(self, ranks: DataParallel, clocks: Clocks, metrics: NodeMetrics) -> None:
        self.ranks = ranks
        self.clocks = clocks
        self.metrics = metrics
        self.requests: dict[str, Req] = {}
        self.last_receive = 0.0  # when anything last came back from the scheduler
        ranks.listen(self)

    # ------------------------------------------------------------------ requests

    def add(self, req: Req) -> None:
        """Hand a request to the scheduler; BadRequestError when its id is in use."""
        if req.rid in self.requests:
            raise BadRequestError(f"Duplicate request ID detected: {req.rid}")
        self.requests[req.rid] = req
        self.ranks.submit(req)

    def on_output(self, req: Req) -> None:
        """Tokens or an end: wake the handler, keep the metrics."""
        now = self.last_receive = time.monotonic()
        if not req.is_health_check:
            self._measure(req, now)
        if req.finish is not None:
            self.requests.pop(req.rid, None)
        if req.stream or req.finish is not None or req.generated % FORCED_STREAM_INTERVAL == 0:
            req.last_event_at = now
            req.wake.set()
            if req.after_leaving is not None:
                req.after_leaving()
                req.after_leaving = None

    def on_health_signal(self) -> None:
        """A batch finished; that is what a health check waits for."""
        self.last_receive = time.monotonic()

    def _measure(self, req: Req, now: float) -> None:
        if req.generated and req.first_token_at is None:
            req.first_token_at = now
            self.metrics.observe("time_to_first_token_seconds", now - req.created)
        elif req.generated and req.finish is None:
            self.metrics.observe("inter_token_latency_seconds", now - req.last_token_at)
        req.last_token_at = now
        if req.finish is not None:
            self.metrics.count("num_requests_total")
            self.metrics.count("prompt_tokens_total", req.prompt_len)
            self.metrics.count("generation_tokens_total", req.generated)
            self.metrics.observe("e2e_request_latency_seconds", now - req.created)
            self.metrics.observe("prompt_tokens_histogram", req.prompt_len)
            self.metrics.observe("uncached_prompt_tokens_histogram", req.prompt_len)
            self.metrics.observe("generation_tokens_histogram", req.generated)

    # ------------------------------------------------------------------ aborts

    def abort(self, rid: str, *, abort_all: bool = False) -> None:
        """Send an abort to the scheduler unless the request is gone; there, `rid` matches as a prefix."""
        if not rid and not abort_all:
            lines.scheduler("Ignore abort_request with empty rid and abort_all=False")
            return
        if abort_all or rid in self.requests:
            self.metrics.count("num_aborted_requests_total")
            self.ranks.abort(rid, abort_all=abort_all)

    def client_left(self, req: Req, *, headers_sent: bool) -> float:
        """Arrange the abort of a request whose client left; seconds until the engine notices."""
        if headers_sent:
            self.abort_later(req)
            return self.clocks.stream_abort_delay_s
        poll = self.clocks.disconnect_poll_s
        wait = poll - (time.monotonic() - req.last_event_at) % poll
        timer = asyncio.get_running_loop().call_later(wait, self._noticed, req, 1)

        def on_next_output() -> None:
            timer.cancel()
            if req.stream:
                self.abort_later(req)  # the first chunk starts the response, whose client is found gone at once
            else:
                self._noticed(req, 3)

        req.after_leaving = on_next_output
        return wait

    def stream_ended(self, req: Req) -> float:
        """A stream ended in the normal way: the same abort is sent, and finds nothing. Seconds until it is over."""
        self.abort_later(req)
        return self.clocks.stream_abort_delay_s

    def abort_later(self, req: Req) -> None:
        """Send the abort when its delay is over (`create_abort_task`); a seam for builds."""
        asyncio.get_running_loop().call_later(self.clocks.stream_abort_delay_s, self.abort, req.rid)

    def _noticed(self, req: Req, kind: int) -> None:
        req.after_leaving = None
        if req.rid in self.requests:
            self.abort(req.rid)
            if req.api is Api.GENERATE and not req.stream:
                obj = req  # the engine's own name in this line
                lines.scheduler(
                    "[http_server] Error: Request is disconnected from the client side "
                    f"(type {kind}). Abort request {obj.rid=}"
                )

    # ------------------------------------------------------------------ health

    async def is_healthy(self) -> bool:
        """A one-token request on the fake path; true as soon as anything at all came back from the scheduler."""
        began = time.monotonic()
        rid = f"{HEALTH_RID_PREFIX}{uuid.uuid4().hex}"
        if self.ranks.first.is_batch_running():
            self.ranks.first.drop_health_check()
        else:
            self.add(Req(rid, Api.GENERATE, False, kv.tokenize("0"), 1, 0, bootstrap_host=FAKE_BOOTSTRAP_HOST))
        while time.monotonic() - began < self.clocks.health_timeout_s:
            await asyncio.sleep(self.clocks.health_pause_s)
            if self.last_receive > began:
                self.requests.pop(rid, None)
                return True
        self.requests.pop(rid, None)
        lines.scheduler(
            "Health check failed. Server couldn't get a response from detokenizer for last "
            f"{self.clocks.health_timeout_s:g} seconds. tic start time: {_clock(began)}. "
            f"last_heartbeat time: {_clock(self.last_receive)}"
        )
        return False

    async def warm_up(self) -> None:
        """The engine's own start-up request, on the fake path too."""
        req = Req(
            uuid.uuid4().hex, Api.GENERATE, False, kv.tokenize("0 1 2 3"), 8, 0, bootstrap_host=FAKE_BOOTSTRAP_HOST
        )
        lines.scheduler("Start of pd disaggregation warmup ...")
        self.add(req)
        while req.finish is None:
            await req.wake.wait()
            req.wake.clear()
        lines.scheduler("End of disaggregation warmup")


def _clock(monotonic: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time.time() - time.monotonic() + monotonic))
