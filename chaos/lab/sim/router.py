"""The router: `python -m chaos.lab.sim.router`, started by the lab's provider."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from chaos.lab.sim import lines, process
from chaos.lab.sim.builds import BUILDS
from chaos.lab.sim.dispatch import Left
from chaos.lab.sim.exposition import Exposition
from chaos.lab.sim.generation import PATHS
from chaos.lab.sim.router_families import ROUTER_FAMILIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.lab.sim.config import NodeConfig

_LARGEST_BODY = 64 << 20
_READY_POLL_S = 0.05


class Router:
    """Endpoints of the router, and its ledger of clients that left."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.page = Exposition(ROUTER_FAMILIES, {"router": {}})
        clocks = config.clocks
        self.http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=clocks.router_request_s),
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            auto_decompress=False,
        )
        build = BUILDS[config.build]
        self.workers = build.workers(config.prefill, config.decode, clocks=clocks, page=self.page, http=self.http)
        self.dispatcher = build.dispatcher(self.workers, self.http, clocks=clocks, page=self.page)
        self.disconnects: list[dict[str, object]] = []

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled."""
        app = web.Application(client_max_size=_LARGEST_BODY)
        for path in PATHS:
            app.router.add_post(path, self.generate)
        app.router.add_get("/health", self.health)
        app.router.add_get("/liveness", self.liveness)
        app.router.add_get("/readiness", self.readiness)
        app.router.add_get("/health_generate", self.health_generate)
        app.router.add_get("/workers", self.list_workers)
        for path in ("/v1/models", "/model_info", "/get_model_info", "/server_info", "/get_server_info"):
            app.router.add_get(path, self.ask_a_worker)
        app.router.add_get("/_sim/disconnects", self.ledger)
        metrics = web.Application()
        metrics.router.add_get("/metrics", self.metrics)
        await process.serve_app(metrics, self.config.sockets["metrics"])
        await process.serve_app(app, self.config.sockets["http"])
        lines.gateway("INFO", "server", "Starting router | mode: PrefillDecode | policy: RoundRobin")
        while not all(worker.healthy for worker in self.workers.all):
            await self.workers.check_all()
            await asyncio.sleep(_READY_POLL_S)
        ready()
        await self.workers.keep_checking()

    # ------------------------------------------------------------------ generation

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Dispatch to a pair; a client that leaves is written down and its upstream requests are dropped."""
        try:
            body = await request.json()
        except json.JSONDecodeError as error:
            return web.Response(status=400, text=f"Failed to parse the request body as JSON: {error}")
        if not isinstance(body, dict) or any(isinstance(body.get(key), list) for key in ("text", "rid")):
            return web.Response(status=422, text="Failed to deserialize the JSON body into the target type")
        began = time.monotonic()
        left = Left()
        self.page.inc("smg_http_requests_total", method=request.method, path=request.path)
        self.page.inc("smg_http_connections_active")
        try:
            response = await self.dispatcher.dispatch(request, body, left)
        except (asyncio.CancelledError, ConnectionError):
            self.disconnects.append({"t_ns": time.monotonic_ns(), "path": request.path, "streaming": left.streaming})
            raise
        finally:
            self.page.add("smg_http_connections_active", -1.0)
        self.page.inc("smg_http_responses_total", status_code=str(response.status), error_code="")
        self.page.observe("smg_http_request_duration_seconds", time.monotonic() - began, method="POST")
        return response

    async def ledger(self, _: web.Request) -> web.Response:
        """When clients left (CLOCK_MONOTONIC), and whether they were being streamed to."""
        return web.json_response({"disconnects": self.disconnects})

    # ------------------------------------------------------------------ health and information

    async def liveness(self, _: web.Request) -> web.Response:
        """200 while the process lives; no worker is asked."""
        return web.Response(text="OK")

    async def health(self, _: web.Request) -> web.Response:
        """200 while the last health checks left a pair to choose."""
        return web.Response(text="OK") if self.workers.is_ready() else web.Response(status=503, text="No healthy pair")

    async def readiness(self, _: web.Request) -> web.Response:
        """200 while a pair could be chosen, by the last health checks."""
        healthy = sum(worker.healthy for worker in self.workers.all)
        state = {"healthy_workers": healthy, "total_workers": len(self.workers.all)}
        if self.workers.is_ready():
            return web.json_response({"status": "ready", **state})
        return web.json_response({"status": "not ready", "reason": "no healthy pair", **state}, status=503)

    async def health_generate(self, _: web.Request) -> web.Response:
        """Ask one pair's own `/health_generate`, which uses the fake path on both sides."""
        pair = self.workers.select("prefill"), self.workers.select("decode")
        urls = []
        for worker in pair:
            if isinstance(worker, str):
                return web.Response(status=503, text=worker)
            try:
                async with self.http.get(f"{worker.url}/health_generate") as reply:
                    if reply.status != 200:
                        return web.Response(status=503, text=f"Health generate failed: {worker.url} {reply.status}")
            except aiohttp.ClientError as error:
                return web.Response(status=503, text=f"Health generate failed: {worker.url} {error}")
            urls.append(worker.url)
        return web.Response(text=f"Health generate passed on selected pair: prefill={urls[0]}, decode={urls[1]}")

    async def list_workers(self, _: web.Request) -> web.Response:
        """The workers."""
        listed = [
            {
                "id": worker.url,
                "url": worker.url,
                "worker_type": worker.kind,
                "bootstrap_port": worker.bootstrap_port or None,
                "is_healthy": worker.healthy,
                "load": worker.active,
            }
            for worker in self.workers.all
        ]
        return web.json_response({"workers": listed, "total": len(listed)})

    async def ask_a_worker(self, request: web.Request) -> web.Response:
        """Information endpoints are answered by one prefill worker."""
        worker = self.workers.select("prefill")
        if isinstance(worker, str):
            return web.Response(status=503, text=worker)
        try:
            async with self.http.get(worker.url + request.path) as reply:
                return web.Response(status=reply.status, body=await reply.read(), content_type=reply.content_type)
        except aiohttp.ClientError as error:
            return web.Response(status=502, text=str(error))

    async def metrics(self, _: web.Request) -> web.Response:
        """The Prometheus page, on a port of its own."""
        return web.Response(text=self.page.render(), content_type="text/plain")


if __name__ == "__main__":
    process.main(Router)
