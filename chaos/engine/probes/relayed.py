"""HTTP through relays: each server is asked as seen from its host, TLS is held to its own name there.

What fails because the way broke is told apart from what the server did: it is `WayLost`, whatever it looked like.
"""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING

import aiohttp
import httpx
from aiohttp.connector import BaseConnector
from httpx_aiohttp import AiohttpTransport

from chaos.agent import door

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from aiohttp import ClientTimeout
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.tracing import Trace

    from chaos.engine.hosts.relays import Entry, Relays

NOTICED_S = 0.05
"""A thread of ours notes that the way broke; it may be a moment behind whoever it broke under."""


class WayLost(httpx.TransportError):
    """Our own way to the server's host broke, or is not there: the server is not to blame."""


class RelayTransport(httpx.AsyncBaseTransport):
    """Sends requests for names of `Relays` through their doors."""

    def __init__(self, relays: Relays, tls: ssl.SSLContext) -> None:
        self._relays = relays
        self._tls = tls
        self._doors: dict[str, AiohttpTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it through its door, as if to the server itself."""
        name = request.url.netloc.decode()
        entry = self._relays.entries[name]
        url = str(request.url).replace(name, entry.netloc, 1)
        headers = [(k, v) for k, v in request.headers.raw if k.lower() != b"host"]
        inner = httpx.Request(
            request.method,
            url,
            headers=[(b"host", entry.netloc.encode()), *headers],
            content=await request.aread(),
            extensions=request.extensions,
        )
        began_ns = time.monotonic_ns()
        try:
            response = await self._door(name, entry).handle_async_request(inner)
        except (httpx.HTTPError, aiohttp.ClientError, OSError) as error:
            await self._blame_us(entry, began_ns, error)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101
        stream = _Stream(response.stream, self, entry, began_ns)
        return httpx.Response(
            response.status_code, headers=response.headers, stream=stream, extensions=response.extensions
        )

    async def aclose(self) -> None:
        """Close what is open."""
        for transport in self._doors.values():
            await transport.aclose()

    def _door(self, name: str, entry: Entry) -> AiohttpTransport:
        if name not in self._doors:

            def session() -> aiohttp.ClientSession:
                connector = _Connector(entry.door.path, self._tls)
                return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)

            self._doors[name] = AiohttpTransport(client=session)
        return self._doors[name]

    async def _blame_us(self, entry: Entry, began_ns: int, error: BaseException | None) -> None:
        """Raise WayLost where the way broke since a request began."""
        if error is not None and not isinstance(error, WayLost):
            await asyncio.sleep(NOTICED_S)
        if entry.relay.broke(began_ns, time.monotonic_ns()):
            raise WayLost("our own way to its host broke") from error


class _Stream(httpx.AsyncByteStream):
    """A body; its end is looked at."""

    def __init__(self, inner: httpx.AsyncByteStream, transport: RelayTransport, entry: Entry, began_ns: int) -> None:
        self._inner = inner
        self._transport = transport
        self._entry = entry
        self._began_ns = began_ns

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                yield chunk
        except (httpx.HTTPError, aiohttp.ClientError, OSError) as error:
            await self._transport._blame_us(self._entry, self._began_ns, error)  # noqa: SLF001
            raise
        await self._transport._blame_us(self._entry, self._began_ns, None)  # noqa: SLF001

    async def aclose(self) -> None:
        """Let go of it."""
        await self._inner.aclose()


class _Connector(BaseConnector):
    """Connections through one door, each for one request."""

    def __init__(self, path: str, tls: ssl.SSLContext) -> None:
        super().__init__(limit=0, force_close=True)
        self._path = path
        self._tls = tls

    async def _create_connection(
        self,
        req: ClientRequest,
        traces: list[Trace],  # noqa: ARG002 - as it is called
        timeout: ClientTimeout,  # noqa: ARG002, ASYNC109 - nobody gives one
    ) -> ResponseHandler:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        secure = req.is_ssl()
        try:
            await door.enter(self._loop, sock, self._path)
            _, protocol = await self._loop.create_unix_connection(
                self._factory,
                sock=sock,
                ssl=self._tls if secure else None,
                server_hostname=req.url.raw_host if secure else None,
            )
        except door.NoWay as error:
            sock.close()
            raise WayLost(str(error)) from error
        except OSError as error:
            sock.close()
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        except BaseException:
            sock.close()
            raise
        return protocol
