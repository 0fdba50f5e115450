"""Every endpoint of a node that does not generate text: health, information, metrics, administration, gates."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from chaos.lab.sim.config import NodeConfig
    from chaos.lab.sim.frontend import Frontend
    from chaos.lab.sim.scheduler import Scheduler

_FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
_FLUSH_POLL_S = 0.02


class Endpoints:
    """Health, information and administration of one node."""

    def __init__(self, frontend: Frontend, config: NodeConfig, *, version: str) -> None:
        self.frontend = frontend
        self.config = config
        self.version = version
        self.starting = True
        self.stopping = False

    def add_routes(self, app: web.Application) -> None:
        """Add the endpoints."""
        for path in ("/health", "/health_generate"):
            app.router.add_get(path, self.health)
        for path in ("/server_info", "/get_server_info"):
            app.router.add_get(path, self.server_info)
        for path in ("/model_info", "/get_model_info"):
            app.router.add_get(path, self.model_info)
        app.router.add_get("/ping", self.ping)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/v1/loads", self.loads)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_post("/abort_request", self.abort_request)
        app.router.add_route("*", "/flush_cache", self.flush_cache)
        app.router.add_post("/_sim/gates", self.set_gates)
        app.router.add_get("/_sim/gates", self.get_gates)

    # ------------------------------------------------------------------ health and information

    async def health(self, request: web.Request) -> web.Response:
        """200 when a request on the fake path, or anything else, came back; it never touches the transfer path."""
        if self.starting or self.stopping:
            return web.Response(status=503)
        if request.path == "/health" and not self.frontend.health_generates:
            return web.Response()
        return web.Response(status=200 if await self.frontend.is_healthy() else 503)

    async def ping(self, _: web.Request) -> web.Response:
        """Always 200."""
        return web.Response()

    async def models(self, _: web.Request) -> web.Response:
        """The one model."""
        settings = self.config.settings
        card = {"id": settings.model, "object": "model", "created": int(time.time()), "owned_by": "sglang"}
        more = {"root": settings.model, "parent": None, "max_model_len": settings.context_len}
        return web.json_response({"object": "list", "data": [{**card, **more}]})

    async def model_info(self, _: web.Request) -> web.Response:
        """Paths of the model."""
        model = self.config.settings.model
        return web.json_response({"model_path": model, "tokenizer_path": model, "is_generation": True})

    async def server_info(self, request: web.Request) -> web.Response:
        """Server arguments, a little internal state, version and role."""
        settings = self.config.settings
        host, port = request.transport.get_extra_info("sockname")[:2] if request.transport else ("127.0.0.1", 0)
        states = [
            {
                "last_gen_throughput": scheduler.stats().gen_throughput,
                "memory_usage": {"weight": 0.0, "kvcache": 0.0, "token_capacity": scheduler.pool.tokens},
                "effective_max_running_requests_per_dp": scheduler.pool.slots,
            }
            for scheduler in self.frontend.ranks.schedulers
        ]
        return web.json_response(
            {
                "model_path": settings.model,
                "tokenizer_path": settings.model,
                "served_model_name": settings.model,
                "host": host,
                "port": port,
                "tp_size": settings.tp,
                "dp_size": settings.dp,
                "pp_size": 1,
                "context_length": settings.context_len,
                "max_running_requests": settings.slots,
                "max_total_tokens": settings.kv_tokens,
                "max_total_num_tokens": settings.kv_tokens,
                "num_reserved_decode_tokens": settings.reserved_decode_tokens,
                "decode_log_interval": 40,
                "enable_metrics": True,
                "disaggregation_mode": self.config.role,
                "disaggregation_transfer_backend": "nixl",
                "disaggregation_bootstrap_port": self.config.bootstrap_port,
                "internal_states": states,
                "version": self.version,
            }
        )

    async def loads(self, _: web.Request) -> web.Response:
        """The same snapshot as the gauges, with the same staleness (0.5.13 to 0.5.18)."""
        loads = [self._load(scheduler) for scheduler in self.frontend.ranks.schedulers]
        return web.json_response({"timestamp": time.time(), "version": self.version, "loads": loads})

    def _load(self, scheduler: Scheduler) -> dict[str, object]:
        now = scheduler.metrics.snapshot
        core: dict[str, object] = {
            "dp_rank": scheduler.rank.dp,
            "num_running_reqs": now.num_running_reqs,
            "num_waiting_reqs": now.num_queue_reqs,
            "num_used_tokens": now.num_used_tokens,
            "max_total_num_tokens": now.max_total_num_tokens,
            "token_usage": round(now.token_usage, 4),
            "gen_throughput": now.gen_throughput,
        }
        disaggregation = {
            "mode": self.config.role,
            "prefill_bootstrap_queue_reqs": now.num_prefill_bootstrap_queue_reqs,
            "prefill_inflight_queue_reqs": now.num_prefill_inflight_queue_reqs,
            "decode_prealloc_queue_reqs": now.num_decode_prealloc_queue_reqs,
            "decode_transfer_queue_reqs": now.num_decode_transfer_queue_reqs,
            "decode_retracted_queue_reqs": now.num_retracted_reqs,
            "kv_transfer_speed_gb_s": 0.0,
            "kv_transfer_latency_ms": 0.0,
        }
        queues = {"waiting": now.num_queue_reqs, "grammar": 0, "paused": 0, "retracted": now.num_retracted_reqs}
        return {**core, "disaggregation": disaggregation, "queues": queues}

    async def metrics(self, _: web.Request) -> web.Response:
        """The Prometheus page."""
        return web.Response(
            body=self.frontend.metrics.page.render().encode(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    # ------------------------------------------------------------------ administration

    async def abort_request(self, request: web.Request) -> web.Response:
        """Always 200, also for an unknown rid."""
        body = await request.json() if request.can_read_body else {}
        self.frontend.abort(str(body.get("rid") or ""), abort_all=bool(body.get("abort_all")))
        return web.Response()

    async def flush_cache(self, request: web.Request) -> web.Response:
        """200 when fully idle (within `?timeout=` seconds), else 400."""
        timeout = float(request.query.get("timeout") or 0.0)
        ranks = self.frontend.ranks
        deadline = time.monotonic() + timeout
        while timeout and not ranks.is_fully_idle():
            if time.monotonic() > deadline:
                return web.Response(status=400, text="Timed out waiting for idle state.")
            await asyncio.sleep(_FLUSH_POLL_S)
        if ranks.flush_cache():
            return web.Response(text=_FLUSHED)
        return web.Response(status=400, text="Flush cache failed.\n")

    async def set_gates(self, request: web.Request) -> web.Response:
        """Hold or open gates."""
        problem = self.frontend.ranks.gates.apply(await request.json())
        if problem:
            return web.Response(status=400, text=problem)
        return await self.get_gates(request)

    async def get_gates(self, _: web.Request) -> web.Response:
        """State of the gates."""
        return web.json_response({"pid": os.getpid(), "gates": self.frontend.ranks.gates.state()})
