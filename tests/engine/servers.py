"""A tiny chat server whose requests can be held, for tests that need an agent with sessions in a known phase."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field


@dataclass
class HeldServer:
    """Answers `tokens` tokens to each request once `gate` is set; until then requests wait."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    finish: asyncio.Event = field(default_factory=asyncio.Event)
    tokens: int = 3
    url: str = ""
    waiting: int = 0
    hung_up: int = 0
    resets: int = 0
    served: int = 0

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
            server.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        self.waiting += 1
        gone = asyncio.ensure_future(reader.read())
        opened = asyncio.ensure_future(self.gate.wait())
        await asyncio.wait([gone, opened], return_when=asyncio.FIRST_COMPLETED)
        self.waiting -= 1
        if gone.done():
            self.resets += isinstance(gone.exception(), ConnectionResetError)
            self.hung_up += 1
        else:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            for i in range(self.tokens):
                writer.write(b'data: {"choices":[{"index":0,"delta":{"content":"t%d "}}]}\n\n' % i)
            await writer.drain()
            ended = asyncio.ensure_future(self.finish.wait())
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
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
