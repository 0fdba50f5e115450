"""One routed request: the same body to a prefill and a decode at once, and the answer that comes of it.

As sglang-router 0.3.2's pd_router: it waits for the headers of both, then for the whole prefill body, before it answers
with decode's response; a retryable status is tried again with a fresh room. Hence prefill's silence holds a client even
after decode has given up.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from chaos.lab.sim import lines

if TYPE_CHECKING:
    from chaos.lab.sim.config import Clocks
    from chaos.lab.sim.exposition import Exposition
    from chaos.lab.sim.workers import Worker, Workers

MAX_ATTEMPTS = 5
RETRYABLE = frozenset({408, 429, 500, 502, 503, 504})
_LOG = "routers::http::pd_router"
_LARGEST_ROOM = (1 << 63) - 1
_PASSED_ON = ("Content-Type", "X-Request-Id")


@dataclass(slots=True)
class Left:
    """Where a request was when its client left, for the ledger of disconnects."""

    streaming: bool = False


class Dispatcher:
    """Sends requests to pairs."""

    def __init__(self, workers: Workers, http: aiohttp.ClientSession, *, clocks: Clocks, page: Exposition) -> None:
        self.workers = workers
        self._http = http
        self._clocks = clocks
        self._page = page

    async def dispatch(self, request: web.Request, body: dict[str, object], left: Left) -> web.StreamResponse:
        """Answer one request, after up to five attempts."""
        labels = {"endpoint": request.path, "streaming": "true" if body.get("stream") else "false"}
        began = time.monotonic()
        self._page.inc("smg_router_requests_total", **labels)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            response = await self._attempt(request, body, left)
            if response.status not in RETRYABLE or response.prepared:
                break
            self._page.inc("smg_router_request_errors_total", **labels, error_type=str(response.status))
            if attempt < MAX_ATTEMPTS:
                self._page.inc("smg_worker_retries_total", worker_type="pd", endpoint=request.path)
                pause = self._clocks.retry_base_s * 2 ** (attempt - 1) * random.uniform(0.9, 1.1)
                await asyncio.sleep(min(pause, self._clocks.retry_most_s))
        else:
            self._page.inc("smg_worker_retries_exhausted_total", worker_type="pd", endpoint=request.path)
        self._page.observe("smg_router_request_duration_seconds", time.monotonic() - began, **labels)
        return response

    async def _attempt(self, request: web.Request, body: dict[str, object], left: Left) -> web.StreamResponse:
        prefill, decode = self.workers.select("prefill"), self.workers.select("decode")
        if isinstance(prefill, str) or isinstance(decode, str):
            error = prefill if isinstance(prefill, str) else decode
            lines.gateway("ERROR", _LOG, f"Failed to select PD pair error={error}")
            return _error(503, str(error), "server_selection_failed")
        room = random.randint(0, _LARGEST_ROOM)
        addressed = {
            **body,
            "bootstrap_host": prefill.url.split("//")[1].rpartition(":")[0],
            "bootstrap_port": prefill.bootstrap_port,
            "bootstrap_room": room,
        }
        for worker in (prefill, decode):
            self.workers.started(worker, 1)
        try:
            return await self._exchange(request, json.dumps(addressed).encode(), prefill, decode, left)
        finally:
            for worker in (prefill, decode):
                self.workers.started(worker, -1)

    async def _exchange(
        self, request: web.Request, payload: bytes, prefill: Worker, decode: Worker, left: Left
    ) -> web.StreamResponse:
        posts = [asyncio.create_task(self.post(worker, request.path, payload)) for worker in (prefill, decode)]
        try:
            from_prefill, from_decode = await asyncio.gather(*posts)
        except asyncio.CancelledError:
            _drop_answered(posts)
            self.on_client_left(prefill)
            raise
        try:
            if isinstance(from_decode, str):
                lines.gateway("ERROR", _LOG, f"Decode request failed decode_url={decode.url} error={from_decode}")
                return _error(502, f"Decode server error: {from_decode}", "decode_request_failed")
            if from_decode.status >= 300:
                lines.gateway(
                    "ERROR",
                    _LOG,
                    f"Decode server returned error status decode_url={decode.url} status={from_decode.status}",
                )
                return await _copy_error(from_decode)
            if isinstance(from_prefill, str):
                lines.gateway(
                    "ERROR",
                    _LOG,
                    f"Prefill server failed (CRITICAL) prefill_url={prefill.url} error={from_prefill}. "
                    "Decode will timeout without prefill KV cache.",
                )
                return _error(502, f"Prefill server error: {from_prefill}", "prefill_request_failed")
            text = await from_prefill.read()
            if from_prefill.status >= 300:
                lines.gateway(
                    "ERROR",
                    _LOG,
                    f"Prefill server returned error status prefill_url={prefill.url} status={from_prefill.status} "
                    f"body={text.decode(errors='replace')}",
                )
                return web.Response(status=from_prefill.status, body=text, headers=_headers(from_prefill))
            return await self._answer(request, from_decode, decode, left)
        except (aiohttp.ClientError, TimeoutError) as error:
            return _error(502, f"upstream connection lost: {error}", "upstream_lost")
        finally:
            for reply in (from_prefill, from_decode):
                if not isinstance(reply, str):
                    reply.close()

    def on_client_left(self, prefill: Worker) -> None:
        """The client left before the pair had answered: nobody's fault; a seam for builds."""

    async def post(self, worker: Worker, path: str, payload: bytes) -> aiohttp.ClientResponse | str:
        """Headers of one worker's answer, or what went wrong."""
        try:
            reply = await self._http.post(worker.url + path, data=payload, headers={"Content-Type": "application/json"})
        except (aiohttp.ClientError, TimeoutError) as error:
            self.workers.result(worker, ok=False)
            self._page.inc("smg_worker_errors_total", worker_type=worker.kind, error_type=type(error).__name__)
            return f"error sending request for url ({worker.url}{path}): {error}"
        self.workers.result(worker, ok=self.is_fine(reply.status))
        self._page.inc("smg_router_upstream_responses_total", status_code=str(reply.status))
        return reply

    def is_fine(self, status: int) -> bool:
        """Whether an answer speaks for its worker: what a client asked wrongly is not the worker's fault.

        A seam for builds.
        """
        return status < 500

    async def _answer(
        self, request: web.Request, upstream: aiohttp.ClientResponse, decode: Worker, left: Left
    ) -> web.StreamResponse:
        if not upstream.headers.get("Content-Type", "").startswith("text/event-stream"):
            return web.Response(status=upstream.status, body=await upstream.read(), headers=_headers(upstream))
        left.streaming = True
        response = web.StreamResponse(status=upstream.status, headers=_headers(upstream))
        try:
            await response.prepare(request)
            async for chunk in upstream.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            lines.gateway(
                "INFO", _LOG, f"Client disconnected, cancelling upstream PD stream from {decode.url}{request.path}"
            )
            raise
        except (aiohttp.ClientError, TimeoutError):
            # decode broke off: so must the client's stream, or it would look complete
            if request.transport is not None:
                request.transport.close()
        return response


def _drop_answered(posts: list[asyncio.Task[aiohttp.ClientResponse | str]]) -> None:
    """Close the answer of whichever side had already sent headers when the client left."""
    for post in posts:
        if post.done() and not post.cancelled() and not isinstance(reply := post.result(), str):
            reply.close()


def _headers(upstream: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: upstream.headers[name] for name in _PASSED_ON if name in upstream.headers}


async def _copy_error(upstream: aiohttp.ClientResponse) -> web.Response:
    return web.Response(status=upstream.status, body=await upstream.read(), headers=_headers(upstream))


def _error(status: int, message: str, code: str) -> web.Response:
    return web.json_response({"error": {"type": "server_error", "code": code, "message": message}}, status=status)
