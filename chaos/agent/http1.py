"""HTTP/1.1: the request's bytes, and response parsing by httptools where it is importable, else by h11.

Both parsers sit behind `ResponseParser` and tell a `Receiver` the same story.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Protocol

from .config import API_PATHS

if TYPE_CHECKING:
    from .config import Config


class BadHttp(Exception):
    """The peer does not speak HTTP."""


class Receiver(Protocol):
    """Who is told about a response."""

    def on_head(self, status: int) -> None:
        """Take the status of the final response (not of an informational one)."""

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body, transfer coding removed."""

    def on_complete(self) -> None:
        """Take note that the body is complete by its own framing."""


class ResponseParser(Protocol):
    """Parses one response."""

    def feed(self, data: bytes) -> None:
        """Take received bytes; BadHttp when they are not HTTP."""

    def eof(self) -> bool:
        """The peer closed: whether that completes the response (its body has no other end)."""


def request_head(config: Config, host: str, prefix: str) -> Callable[[str, int], bytes]:
    """A function from request id and body length to the head; everything else is the same for all requests."""
    headers = {
        "host": ("Host", host),
        "user-agent": ("User-Agent", "pdchaos-agent"),
        "accept": ("Accept", "text/event-stream" if config.stream else "application/json"),
        "content-type": ("Content-Type", "application/json"),
        "connection": ("Connection", "close"),
    }
    if config.api_key is not None:
        headers["authorization"] = ("Authorization", f"Bearer {config.api_key}")
    headers.update({name.lower(): (name, value) for name, value in config.headers})
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.values())
    head = f"POST {prefix}{API_PATHS[config.api]} HTTP/1.1\r\n{lines}"

    def build(req: str, length: int) -> bytes:
        return f"{head}X-Request-Id: {config.run}-{req}\r\nContent-Length: {length}\r\n\r\n".encode()

    return build


class HttptoolsParser:
    """Parsing in C."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        # The C parser looks its callbacks up once, here: the body goes to the receiver without a detour.
        self.on_body = receiver.on_body
        self._parser = httptools.HttpResponseParser(self)
        self._framed = False
        self._head_seen = False
        self._complete = False

    def feed(self, data: bytes) -> None:
        """Take received bytes."""
        if self._complete:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise (error.__context__ or error) from None  # what the receiver raised
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # Bytes after a complete response are nobody's, and do no harm: the connection is not used again.
            if not self._complete:
                raise BadHttp(str(error)) from error

    def eof(self) -> bool:
        """The peer closed."""
        return self._head_seen and not self._framed

    def on_header(self, name: bytes, _value: bytes) -> None:
        """Take a header (called by the parser)."""
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        """Take note of the end of a head (called by the parser)."""
        status = self._parser.get_status_code()
        if status >= 200 and not self._complete:
            self._head_seen = True
            self._receiver.on_head(status)

    def on_message_complete(self) -> None:
        """Take note of the end of a message (called by the parser)."""
        if self._head_seen and not self._complete:
            self._complete = True
            self._receiver.on_complete()


class H11Parser:
    """Parsing in pure Python, bundled with the agent."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._connection = h11.Connection(our_role=h11.CLIENT)
        # The request goes out as our own bytes; this only tells the parser that one is under way.
        self._connection.send(h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Content-Length", "0")]))
        self._connection.send(h11.EndOfMessage())
        self._complete = False

    def feed(self, data: bytes) -> None:
        """Take received bytes."""
        if self._complete:
            return
        self._take(data)

    def eof(self) -> bool:
        """The peer closed."""
        if self._complete:
            return False
        try:
            self._take(b"")
        except BadHttp:
            return False
        return self._complete

    def _take(self, data: bytes) -> None:
        connection, receiver = self._connection, self._receiver
        try:
            connection.receive_data(data)
            while True:
                event = connection.next_event()
                if isinstance(event, h11.Data):
                    receiver.on_body(bytes(event.data))
                elif isinstance(event, h11.Response):
                    receiver.on_head(event.status_code)
                elif isinstance(event, h11.EndOfMessage):
                    self._complete = True
                    receiver.on_complete()
                    return
                elif not isinstance(event, h11.InformationalResponse):  # it needs more bytes, or the peer is gone
                    return
        except h11.RemoteProtocolError as error:
            raise BadHttp(str(error)) from error


PARSERS: dict[str, Callable[[Receiver], ResponseParser]] = {}
try:
    import httptools
except ImportError:
    pass
else:
    PARSERS["httptools"] = HttptoolsParser
try:
    import h11
except ImportError:  # somebody runs from source with httptools alone
    pass
else:
    PARSERS["h11"] = H11Parser
