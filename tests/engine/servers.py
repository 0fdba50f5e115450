"""A tiny chat server whose requests can be held, for tests that need an agent with sessions in a known phase."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class HeldServer:
    """Answers `tokens` tokens to each request once `gate` is set; until then requests wait."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    finish: asyncio.Event = field(default_factory=asyncio.Event)
    tokens: int = 3
    trickle: bool = False  # token after token until `finish`
    aborts: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))  # by rid
    deaf: bool = False  # takes orders to abort, and does nothing
    url: str = ""
    waiting: int = 0
    hung_up: int = 0
    resets: int = 0
    served: int = 0
    _handling: set[asyncio.Task] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def running(self):
        """Serve on a free port while inside."""
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            self.gate.set()
            self.finish.set()
            for _ in range(20):
                await asyncio.sleep(0)  # a connection that is just being accepted would be nobody's
            server.close()
            if self._handling:
                await asyncio.wait(self._handling, timeout=10)
            for task in self._handling:
                task.cancel()
            await asyncio.gather(*self._handling, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handling.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._answer(reader, writer)
        finally:
            self._handling.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        body = json.loads(await reader.readexactly(length))
        if head.startswith(b"POST /abort_request "):
            self.aborts[body["rid"]].set()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            return
        self.waiting += 1
        gone = asyncio.ensure_future(reader.read())
        opened = asyncio.ensure_future(self.gate.wait())
        aborted = asyncio.ensure_future(self.aborts[body.get("rid", "")].wait())
        ends = [gone, opened] if self.deaf else [gone, opened, aborted]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        self.waiting -= 1
        aborted.cancel()
        if aborted in ends and self.aborts[body.get("rid", "")].is_set():
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            writer.write(b'data: {"error":{"message":"Abort in waiting queue"}}\n\ndata: [DONE]\n\n')
        elif gone.done():
            self.resets += isinstance(gone.exception(), ConnectionResetError)
            self.hung_up += 1
        else:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            for i in range(self.tokens):
                writer.write(b'data: {"choices":[{"index":0,"delta":{"content":"t%d "}}]}\n\n' % i)
            await writer.drain()
            ended = asyncio.ensure_future(self.finish.wait())
            while self.trickle and not (ended.done() or gone.done()):
                writer.write(b'data: {"choices":[{"index":0,"delta":{"content":"more "}}]}\n\n')
                await asyncio.sleep(0.02)
            await asyncio.wait([gone, ended], return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            if gone.done():
                self.hung_up += 1
            else:
                writer.write(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n')
                writer.write(b"data: [DONE]\n\n")
                self.served += 1
        opened.cancel()
        gone.cancel()
