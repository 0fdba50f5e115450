"""One request: send it, follow the answer, and say how it ended.

A success needs HTTP 200, the stream's end marker, a finish reason that is not an abort and at least one token; an error
object on HTTP 200 is an error. The error words are those of `Ended.error`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Protocol

from .answer import Answer, shorten
from .http1 import BadHttp
from .reach import ConnectError, WayLost
from .sse import EventTooLong
from .wire import Stage, Wire

if TYPE_CHECKING:
    from array import array

    from .config import Config
    from .http1 import Receiver, ResponseParser
    from .reach import Remote
    from .wire import Farewell

MAX_BODY_BYTES = 64 * 1024 * 1024
SURELY_TEXT = 4  # a token may decode to no text (an end marker, half a character); so many do not
_AFTER_DONE_S = 5.0  # how long a server may leave a connection open after the stream's end marker


@dataclass(frozen=True)
class Ended:
    """How a request ended.

    `error` is empty for a success, else one of: connect refused status in-band truncated no-tokens timeout reset
    cancelled protocol way (the relay that connects in our place is gone). `ended_by` is `server`, `harness` (our
    timeout, a stop, a lost way), `fault` (a wave) or `error`.
    """

    error: str
    detail: str
    ended_by: str
    sent_ns: int | None
    last_ns: int | None
    status: int | None
    finish: str
    tokens: int
    stamps: array[int]
    text: str  # as far as it came, where it was to be kept
    prompt_tokens: int | None = None
    mute: bool = False  # tokens by the server's count, and not a letter of text


class Watcher(Protocol):
    """Who follows a request while it runs."""

    def on_sent(self, sent_ns: int, local_port: int) -> None:
        """The request left."""

    def on_first(self) -> None:
        """The first token arrived."""


@dataclass(frozen=True)
class Tools:
    """What every request of a process shares."""

    config: Config
    remote: Remote
    head: Callable[[str, int], bytes]
    parser: Callable[[Receiver], ResponseParser]


class Call:
    """A request in flight. `run` once; `hang_up` at any moment."""

    def __init__(self, tools: Tools, req: str, body: bytes, watcher: Watcher, *, keep_text: bool) -> None:
        self.rid = f"{tools.config.run}-{req}"
        self._blamed = False
        self._loop = asyncio.get_running_loop()
        self._tools = tools
        self._watcher = watcher
        self._data = tools.head(req, len(body)) + body
        self._stream = tools.config.stream
        self._keep_text = keep_text
        self._over: asyncio.Future[tuple[str, str, str]] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._wire = Wire(self._loop, self)
        self._parser = tools.parser(self)
        self._body: list[bytes] = []  # of a response that is not an event stream
        self._body_bytes = 0
        self._now_ns = 0
        self._last_ns: int | None = None
        self._sent_ns: int | None = None
        self._status: int | None = None
        self._done_seen = False
        self.answer = Answer(tools.config.api, keep_text=keep_text, on_first=watcher.on_first)

    async def run(self) -> Ended:
        """Send the request and wait until it ended, however that may be."""
        self._timer = self._loop.call_later(self._tools.config.timeout_s, self._overdue)
        try:
            try:
                await self._wire.open(self._tools.remote, self._data)
            except WayLost as error:
                self.settle("way", str(error), "harness")
            except ConnectError as error:
                refused = isinstance(error.__cause__, ConnectionRefusedError)
                self.settle("refused" if refused else "connect", str(error), "error")
            except OSError as error:  # while sending
                self.settle("reset", str(error), "error")
            except asyncio.CancelledError:
                if not self._over.done():  # not our own hang-up
                    raise
            self._data = b""
            error_word, detail, ended_by = await self._over
        finally:
            self._timer.cancel()
            self._wire.close()
        if self._blamed and error_word and ended_by != "harness":
            ended_by = "fault"
        answer = self.answer
        return Ended(
            error=error_word,
            detail=detail,
            ended_by=ended_by,
            sent_ns=self._sent_ns,
            last_ns=self._last_ns,
            status=self._status,
            finish=answer.finish,
            tokens=answer.tokens,
            stamps=answer.stamps,
            text=answer.text() if self._keep_text else "",
            prompt_tokens=answer.prompt_tokens,
            mute=not answer.said and answer.tokens >= SURELY_TEXT,
        )

    @property
    def sent_ns(self) -> int | None:
        """When it left; None before."""
        return self._sent_ns

    async def ended_within(self, seconds: float) -> bool:
        """Wait for its end, but not longer; whether it came."""
        await asyncio.wait([self._over], timeout=seconds)
        return self._over.done()

    def blame(self) -> None:
        """From now on it is a fault's doing when it fails."""
        self._blamed = True

    def hold(self, how: str) -> None:
        """Take nothing from the server any more: `stall` or `blackhole`. Nobody loses patience meanwhile."""
        self._wire.hold(how)
        self.blame()
        self.suspend_timeout()

    @property
    def held(self) -> bool:
        """Whether it takes nothing from the server."""
        return self._wire.held

    def arrived(self) -> tuple[bool, int, int]:
        """What the kernel has of the connection: whether it is held, bytes unread, segments dropped."""
        return self._wire.arrived()

    def release(self) -> None:
        """Read on, as if nothing had been."""
        self._wire.release()

    @property
    def connected(self) -> bool:
        """Whether there is an open socket."""
        return self._wire.stage in (Stage.ATTACHING, Stage.OPEN)

    def hang_up(self, how: str, error: str, ended_by: str, detail: str = "") -> Farewell | None:
        """End the request now; None when there was no open socket to end."""
        farewell = self.cut(how)
        self.settle(error, detail, ended_by)
        return farewell

    def cut(self, how: str) -> Farewell | None:
        """The first half of `hang_up`: end the connection. A wave cuts all before the work of settling any."""
        return None if self._over.done() else self._wire.hang_up(how)

    def settle(self, error: str, detail: str, ended_by: str) -> None:
        """Decide how the request ended, unless that is decided."""
        if not self._over.done():
            self._over.set_result((error, detail, ended_by))

    def suspend_timeout(self) -> None:
        """From now on wait for the server, however long it takes."""
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------------------------------------ the wire calls these

    def sent(self, now_ns: int, local_port: int) -> None:
        """The request left."""
        self._sent_ns = now_ns
        self._watcher.on_sent(now_ns, local_port)

    def received(self, data: bytes, now_ns: int) -> None:
        """Bytes arrived."""
        self._now_ns = now_ns
        try:
            self._parser.feed(data)
        except (BadHttp, EventTooLong) as error:
            self._wire.close()
            detail = str(error) or "an event that does not end"
            self.settle("protocol", f"{detail}: {shorten(data[:80])}", "error")

    def lost(self, error: Exception | None) -> None:
        """The connection ended."""
        if self._over.done():
            return
        if error is None and self._parser.eof():
            self.on_complete()
            return
        if error is not None and not isinstance(error, OSError):
            self.settle("protocol", f"defect of the agent: {error!r}", "error")
        elif self._status == 200 and self.answer.done:  # all was said; only the transfer coding's end is missing
            self.settle(*self._judged())
        elif self._status is not None and self._status != 200:
            self.settle(*self._bad_status())
        elif self.answer.in_band is not None:
            self.settle("in-band", self.answer.in_band, "server")
        elif error is not None:
            self.settle("reset", str(error), "error")
        else:
            detail = "closed before the end of the answer" if self._status else "closed without an answer"
            self.settle("truncated", detail, "server")

    # ------------------------------------------------------------------------------------------ the parser calls these

    def on_head(self, status: int) -> None:
        """Take the status."""
        self._status = status

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._last_ns = self._now_ns
        if self._stream and self._status == 200:
            self.answer.feed(data, self._now_ns)
            if self.answer.done and not self._done_seen:
                self._after_done()
            return
        self._body_bytes += len(data)
        if self._body_bytes > MAX_BODY_BYTES:
            raise EventTooLong
        self._body.append(data)

    def on_complete(self) -> None:
        """Judge the complete response, and close."""
        if self._status != 200:
            verdict = self._bad_status()
        else:
            if self._stream:
                self.answer.end_of_stream()
            else:
                self.answer.whole(b"".join(self._body))
            verdict = self._judged()
        self._wire.close()
        self.settle(*verdict)

    # ------------------------------------------------------------------------------------------ verdicts

    def _bad_status(self) -> tuple[str, str, str]:
        return "status", shorten(b"".join(self._body)), "server"

    def _judged(self) -> tuple[str, str, str]:
        answer = self.answer
        if answer.in_band is not None:
            return "in-band", answer.in_band, "server"
        if answer.garbage is not None:
            return "protocol", f"not the API's: {answer.garbage}", "server"
        if not answer.done:
            rest = shorten(answer.rest())
            return "truncated", f"no end marker; the last bytes: {rest}" if rest else "no end marker", "server"
        if not answer.finish:
            return "truncated", "no finish reason", "server"
        if answer.tokens < 1:
            return "no-tokens", f"finish reason {answer.finish}", "server"
        return "", "", "server"

    def _after_done(self) -> None:
        """Wait for the end of the response after its end marker, but not forever: the answer is complete."""
        self._done_seen = True
        self.suspend_timeout()
        self._timer = self._loop.call_later(_AFTER_DONE_S, self._left_open)

    def _left_open(self) -> None:
        error, detail, ended_by = self._judged()
        self.settle(error, detail or "connection left open after [DONE]", ended_by)

    def _overdue(self) -> None:
        detail = f"no end within {self._tools.config.timeout_s:g} s"
        if self.answer.in_band is not None:
            self.hang_up("cancel", "in-band", "harness", self.answer.in_band)
        else:
            self.hang_up("cancel", "timeout", "harness", detail)
