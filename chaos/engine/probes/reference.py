"""A trivial local server that answers canaries at once: when these pass and the target's hang, the hang is not ours.

It shares the client, the event loop and the machine with every other canary, and nothing with the target. It runs on
a loop of its own in a thread, so a blocked harness loop shows as a slow reference canary too.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Self, cast

_REPLY = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    b'data: {"choices":[{"delta":{"content":"ok"},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
MAX_HEAD_BYTES = 64 << 10
START_S = 10.0


class ReferenceServer:
    """A context manager: serves on a free port of 127.0.0.1 while it is entered."""

    def __init__(self) -> None:
        self.port = 0
        self._thread = threading.Thread(target=self._main, name="reference", daemon=True)
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def url(self) -> str:
        """Where a chat completion is answered (any path is)."""
        return f"http://127.0.0.1:{self.port}/v1/chat/completions"

    def start(self) -> Self:
        """Start serving; raises OSError when no port can be had."""
        self._thread.start()
        self._ready.wait(START_S)
        if self._failure is not None:
            raise self._failure
        return self

    def close(self) -> None:
        """Stop serving and wait for the thread."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._loop = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        held: set[asyncio.Transport] = set()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Answer(held), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._loop = loop
        self._ready.set()
        await self._stop.wait()
        while coming := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(coming)  # each accepts a connection, which a server that is closed loses
        server.close()
        for transport in held:
            transport.abort()


class _Answer(asyncio.Protocol):
    """One connection. No task of its own: one that came with our end would never begin, and never close it."""

    def __init__(self, held: set[asyncio.Transport]) -> None:
        self._held = held
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._held.add(self._transport)

    def data_received(self, data: bytes) -> None:
        self._got += data
        try:
            if _whole(self._got):
                self._transport.write(_REPLY)
                self._transport.close()
        except ValueError:  # not a canary of ours
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        self._held.discard(self._transport)


def _whole(request: bytes) -> bool:
    """Whether nothing of it is missing; raises ValueError for what is no request."""
    head, ended, body = request.partition(b"\r\n\r\n")
    if len(head) > MAX_HEAD_BYTES:
        raise ValueError
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
    return bool(ended) and len(body) >= int(length.partition(b":")[2])
