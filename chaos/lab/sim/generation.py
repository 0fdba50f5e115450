"""HTTP handlers of the generation endpoints."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from aiohttp import web

from chaos.lab.sim import lines
from chaos.lab.sim.bodies import BadRequestError, read_request
from chaos.lab.sim.replies import Reply, error_body
from chaos.lab.sim.request import Api
from chaos.lab.sim.tracking import LINGER

if TYPE_CHECKING:
    from chaos.lab.sim.frontend import Frontend
    from chaos.lab.sim.request import Req

PATHS = {"/generate": Api.GENERATE, "/v1/chat/completions": Api.CHAT, "/v1/completions": Api.COMPLETIONS}


class Generation:
    """`/generate`, `/v1/chat/completions` and `/v1/completions` of one node."""

    def __init__(self, frontend: Frontend, *, model: str, context_len: int) -> None:
        self.frontend = frontend
        self.model = model
        self.context_len = context_len

    def add_routes(self, app: web.Application) -> None:
        """Add the endpoints."""
        for path in PATHS:
            app.router.add_post(path, self.handle)
        app.router.add_put("/generate", self.handle)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One generation."""
        try:
            req = read_request(PATHS[request.path], await request.json(), context_len=self.context_len)
            self.frontend.add(req)
        except json.JSONDecodeError as error:
            return web.json_response(error_body(f"JSON decode error: {error}", 400, "BadRequestError"), status=400)
        except BadRequestError as error:
            if error.logged:
                lines.scheduler(str(error))
            return web.json_response(error_body(str(error), 400, "BadRequestError"), status=400)
        reply = Reply(req, self.model)
        return await (self._stream(request, req, reply) if req.stream else self._whole(req, reply))

    async def _stream(self, request: web.Request, req: Req, reply: Reply) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        headers_sent = False
        try:
            if req.api is Api.GENERATE:
                headers_sent = True
                await response.prepare(request)
            while True:
                await req.wake.wait()
                req.wake.clear()
                ended = req.finish is not None
                if not headers_sent:  # OpenAI streams: nothing is sent, not even headers, before the first chunk
                    headers_sent = True
                    await response.prepare(request)
                await response.write(reply.chunks())
                if ended:
                    break
            await response.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            LINGER.set(self.frontend.client_left(req, headers_sent=headers_sent))
            raise
        LINGER.set(self.frontend.stream_ended(req))
        return response

    async def _whole(self, req: Req, reply: Reply) -> web.Response:
        try:
            while req.finish is None:
                await req.wake.wait()
                req.wake.clear()
                reply.take()
        except asyncio.CancelledError:
            LINGER.set(self.frontend.client_left(req, headers_sent=False))
            raise
        reply.take()
        status, body = reply.body()
        return web.json_response(body, status=status)
