"""What the HTTP process itself keeps: the access log and the request counters, live whatever the scheduler does."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING

from aiohttp import web

from chaos.lab.sim import lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chaos.lab.sim.exposition import Exposition

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LINGER: ContextVar[float] = ContextVar("linger", default=0.0)  # how long a request counts as active after its handler
PRIVATE = "/_sim/"  # the lab's own endpoints: neither logged nor counted


class Tracking:
    """Middleware and signal of one node's application."""

    def __init__(self, page: Exposition) -> None:
        self._page = page

    def install(self, app: web.Application) -> None:
        """Count and log this application's requests."""
        app.middlewares.append(self._count)
        app.on_response_prepare.append(self._log)

    @web.middleware
    async def _count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith(PRIVATE):
            return await handler(request)
        labels = {"endpoint": request.path, "method": request.method}
        self._page.inc("sglang:http_requests_total", **labels)
        self._page.inc("sglang:http_requests_active", **labels)
        LINGER.set(0.0)
        try:
            response = await handler(request)
            self._page.inc("sglang:http_responses_total", **labels, status_code=str(response.status))
            return response
        finally:
            asyncio.get_running_loop().call_later(LINGER.get(), self._ended, labels)

    def _ended(self, labels: dict[str, str]) -> None:
        self._page.add("sglang:http_requests_active", -1.0, **labels)

    @staticmethod
    async def _log(request: web.Request, response: web.StreamResponse) -> None:
        """Write the access line when headers go out, as uvicorn does: a client that left before gets none."""
        response.headers["Server"] = "uvicorn"
        peer = request.transport.get_extra_info("peername") if request.transport else None
        if peer and not request.path.startswith(PRIVATE):
            lines.access(f"{peer[0]}:{peer[1]}", request.method, request.path_qs, response.status)
