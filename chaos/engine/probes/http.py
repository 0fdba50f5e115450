"""The one HTTP client of canaries, probes and engine API calls, and what its failures are called."""

from __future__ import annotations

import errno
import importlib.util
import os
import socket
import ssl
from typing import TYPE_CHECKING

import httpx

from chaos import __version__
from chaos.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.engine.hosts.relays import Relays
    from chaos.model.target import Tls

_AIOHTTP = importlib.util.find_spec("httpx_aiohttp") is not None and importlib.util.find_spec("aiohttp") is not None

if _AIOHTTP:
    import aiohttp
    from aiohttp import http_exceptions
    from httpx_aiohttp import AiohttpTransport

    from chaos.engine.probes.relayed import RelayTransport, WayLost

    TRANSPORT_ERRORS: tuple[type[Exception], ...] = (
        httpx.HTTPError,
        httpx.InvalidURL,
        httpx.StreamError,
        aiohttp.ClientError,
        OSError,
        UnicodeError,  # a host name that is none
    )
    """Everything a request can fail with short of cancellation; the transport lets some of aiohttp's own through."""
    _CUT: tuple[type[Exception], ...] = (aiohttp.ClientPayloadError,)
    _GARBLED: tuple[type[Exception], ...] = (
        aiohttp.ClientResponseError,
        http_exceptions.HttpProcessingError,
        httpx.ProtocolError,
    )
    _UNCONNECTED: tuple[type[Exception], ...] = (aiohttp.ClientConnectorError, httpx.ConnectError, socket.gaierror)
    _HUNG_UP: tuple[type[Exception], ...] = (aiohttp.ServerDisconnectedError, ConnectionError)
    _OURS: tuple[type[Exception], ...] = (WayLost,)
else:
    TRANSPORT_ERRORS = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, UnicodeError)
    _CUT = ()
    _GARBLED = (httpx.ProtocolError,)
    _UNCONNECTED = (httpx.ConnectError, socket.gaierror)
    _HUNG_UP = (ConnectionError,)
    _OURS = ()


OUR_WAY = "way"
"""The error of what failed because our own way there broke."""


def transport_name() -> str:
    """Which transport `make_http` uses here, for people."""
    return "httpx-aiohttp" if _AIOHTTP else "httpx"


def make_http(tls: Tls | None = None, relays: Relays | None = None) -> httpx.AsyncClient:
    """Build the client: no pool limit, no default timeout, no proxies or credentials from the environment.

    Every request has a connection of its own. An engine closes an idle connection after a few seconds (uvicorn: 5 s),
    and a request that meets that close fails although the server is fine; a canary must not fail like that. Servers
    behind `relays` are asked through them.
    """
    context = _context(tls)
    return httpx.AsyncClient(
        transport=_transport(context),
        mounts=_mounts(relays, context) if relays is not None and relays.entries else None,
        timeout=None,  # noqa: S113 - a waiting canary is never hung up; callers that want a deadline set one
        trust_env=False,
        follow_redirects=False,
        headers={"user-agent": f"pdchaos/{__version__}", "accept-encoding": "identity"},
    )


def _context(tls: Tls | None) -> ssl.SSLContext:
    """How servers are checked; raises UsageError when the target's own authority cannot be read."""
    if tls is None or (tls.verify and tls.ca is None):
        return httpx.create_ssl_context(trust_env=False)
    if not tls.verify:
        return httpx.create_ssl_context(verify=False, trust_env=False)
    try:
        return ssl.create_default_context(cafile=tls.ca)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"cannot use the certificate authority {tls.ca}: {error}", hint="see tls.ca") from error


def _transport(context: ssl.SSLContext) -> httpx.AsyncBaseTransport:
    if not _AIOHTTP:
        return httpx.AsyncHTTPTransport(
            verify=context, trust_env=False, limits=httpx.Limits(max_connections=None, max_keepalive_connections=0)
        )

    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True, ssl=context),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    return AiohttpTransport(client=session)


def _mounts(relays: Relays, context: ssl.SSLContext) -> dict[str, httpx.AsyncBaseTransport | None]:
    if not _AIOHTTP:
        raise UsageError("requests through SSH connections need httpx-aiohttp", hint="pip install httpx-aiohttp")
    through = RelayTransport(relays, context)
    return {f"all://{name}": through for name in relays.entries}


def describe(error: BaseException) -> tuple[str, str]:
    """The code (as in `RequestEnded.error`) and a short text for a transport error, from its whole chain of causes.

    The class of the outermost error does not tell: the transport maps a server that hung up to a connect timeout.
    """
    chain = list(_causes(error))
    numbers = {cause.errno for cause in chain if isinstance(cause, OSError)}
    said = (text for tell in (_reworded, str) for cause in chain if (text := tell(cause)))
    text = next(said, type(error).__name__)
    if any(isinstance(cause, _OURS) for cause in chain):
        return OUR_WAY, text
    if errno.ECONNREFUSED in numbers:
        return "refused", text
    if errno.ECONNRESET in numbers or errno.EPIPE in numbers:
        return "reset", text
    timed_out: tuple[type[Exception], ...] = (TimeoutError,)
    for kinds, code in (
        (_UNCONNECTED, "connect"),
        (timed_out, "timeout"),
        (_CUT, "truncated"),
        (_HUNG_UP, "reset"),
        (_GARBLED, "protocol"),
    ):
        if any(isinstance(cause, kinds) for cause in chain):
            return code, text
    return "connect" if isinstance(error, httpx.TransportError) else "protocol", text


def _reworded(cause: BaseException) -> str:
    """In our words what the transport tells in terms of its options (`ssl:default`) or of its parser; else empty."""
    if _AIOHTTP and isinstance(cause, aiohttp.ClientConnectorError) and not isinstance(cause, aiohttp.ClientSSLError):
        why, number = cause.os_error, cause.os_error.errno or 0
        told = os.strerror(number) if number in errno.errorcode else why.strerror or str(why)
        more = "" if number == errno.ECONNREFUSED else f" ({told})"  # which the code says
        return f"no connection to {cause.host}:{cause.port}{more}"
    return "the connection ended before the whole body was there" if isinstance(cause, _CUT) else ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    next_one: BaseException | None = error
    while next_one is not None and id(next_one) not in seen:
        seen.add(id(next_one))
        yield next_one
        next_one = next_one.__cause__ or next_one.__context__
