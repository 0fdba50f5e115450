"""A virtual clock, a recorder of events, and a scriptable HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

if TYPE_CHECKING:
    from chaos.model.events import AnyEvent

E = TypeVar("E")
SETTLE_TURNS = 50
PATIENCE_S = 60.0
"""Nothing takes this long, but on a machine that starves."""


async def settle() -> None:
    """Let everything run that can run without time passing."""
    for _ in range(SETTLE_TURNS):
        await asyncio.sleep(0)


class VirtualClock:
    """A clock that moves only when told to."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self._now_ns = int(start_s * 1e9)
        self._order = itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now_ns(self) -> int:
        return self._now_ns

    async def sleep(self, seconds: float) -> None:
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_ns + int(seconds * 1e9), next(self._order), wake))
        await wake

    async def advance(self, seconds: float) -> None:
        """Move on, waking each sleeper at its moment."""
        await settle()
        until = self._now_ns + int(seconds * 1e9)
        while self._sleepers and self._sleepers[0][0] <= until:
            due, _, wake = heapq.heappop(self._sleepers)
            self._now_ns = max(self._now_ns, due)
            if not wake.done():
                wake.set_result(None)
                await settle()
        self._now_ns = until

    async def stall(self, seconds: float) -> None:
        """Move on at once, as if the loop had been blocked: whoever slept wakes late."""
        await settle()
        self._now_ns += int(seconds * 1e9)
        await self.advance(0)


@dataclass
class Recorder:
    """An `Emit` that keeps everything."""

    events: list[AnyEvent] = field(default_factory=list)

    def __call__(self, event: AnyEvent, /) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


async def until(condition: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Wait for something that another task, thread or process does."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - other threads and processes set no event of ours
            await asyncio.sleep(0.005)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(**routes: Handler) -> AsyncIterator[str]:
    """Serve handlers by path (`health=...` is /health, `v1__models` is /v1/models) on loopback; yields the base URL."""
    app = web.Application()
    for name, handler in routes.items():
        app.router.add_route("*", "/" + name.replace("__", "/"), _plain(handler))
    # Handlers see a client that hangs up as a cancellation, so tests can tell.
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await settle()  # a connection that is just being accepted would be nobody's
        await runner.cleanup()


def _plain(handler: Handler) -> Handler:
    """A coroutine function, which is all that aiohttp takes."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await handler(request)

    return handle


def text(body: str | bytes, *, status: int = 200, content_type: str = "text/plain") -> Handler:
    """A handler that answers always the same."""
    raw = body.encode() if isinstance(body, str) else body

    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=raw, status=status, content_type=content_type)

    return handle


@dataclass
class ModelServer:
    """Answers streamed requests: holds them while `gate` is clear, counts those whose client hung up."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    events: tuple[bytes, ...] = (
        b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"b"},"finish_reason":"length"}]}\n\n',
        b'data: {"choices":[],"usage":{"completion_tokens":2}}\n\n',
        b"data: [DONE]\n\n",
    )
    status: int = 200
    asked: list[tuple[str, dict[str, object], dict[str, str]]] = field(default_factory=list)
    hung_up: int = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.path, await request.json(), dict(request.headers)))
        try:
            await self.gate.wait()
            if self.status != 200:
                return web.Response(status=self.status, text="no worker")
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            for event in self.events:
                await response.write(event)
            await response.write_eof()
        except asyncio.CancelledError:
            self.hung_up += 1
            raise
        return response
