"""Real servers on loopback that answer as a test scripts it, and the agent run against them, in process or as one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from chaos.agent.client import Call, Ended, Tools
from chaos.agent.config import Config
from chaos.agent.http1 import PARSERS, request_head
from chaos.agent.main import resolve

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    import pytest

PATIENCE_S = 60.0  # for things that must happen; generous, because these machines starve now and then


@dataclass
class Connection:
    """One accepted connection, after its request was read."""

    writer: asyncio.StreamWriter
    reader: asyncio.StreamReader
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw_body: bytes
    answered: bool = False  # the script has run to its end
    end: str = "open"  # how the client left: open fin reset
    left_early: bool = False  # it left before the script was through
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with contextlib.suppress(OSError):
            await self.writer.drain()


class Server:
    """Runs `script` for each connection, then waits for the client to leave and notes how it did."""

    def __init__(self, script: Callable[[Connection], Awaitable[None]], tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        self.connections: list[Connection] = []
        self.changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"
        self._tasks: set[asyncio.Task[Any]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        for _ in range(20):
            await asyncio.sleep(0)  # a connection that is just being accepted would be nobody's
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for connection in self.connections:
            connection.writer.transport.abort()  # a client that takes nothing would keep it from closing
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; it is looked at when a request arrives and when a client leaves."""
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(condition), PATIENCE_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                await self._exchange(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        raw = await reader.readexactly(int(headers["content-length"]))
        connection = Connection(writer, reader, lines[0].split()[1], headers, json.loads(raw), raw)
        self.connections.append(connection)
        await self._note()
        watch = asyncio.create_task(self._watch(connection))
        script = asyncio.create_task(self._run(connection))
        try:
            # A script that waits for something is through when the client has left.
            await watch
        finally:
            script.cancel()
            watch.cancel()
            await asyncio.gather(watch, script, return_exceptions=True)

    async def _run(self, connection: Connection) -> None:
        await self._script(connection)
        connection.answered = True

    async def _watch(self, connection: Connection) -> None:
        try:
            while await connection.reader.read(65536):
                pass
            connection.end = "fin"
        except ConnectionError:
            connection.end = "reset"
        await asyncio.sleep(0)  # a script that has said all may not have come to its end yet
        connection.left_early = not connection.answered
        connection.left.set()
        await self._note()

    async def _note(self) -> None:
        async with self.changed:
            self.changed.notify_all()


# ---------------------------------------------------------------------------------------------- answers


def chat_events(count: int, *, finish: str | None = "length", usage: bool = True, text: str = " tok") -> list[bytes]:
    """The events of a chat stream of `count` tokens, as SGLang sends them."""

    def chunk(delta: Mapping[str, object], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason, "matched_stop": None}
        return _json({"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], "usage": None})

    events = [chunk({"role": "assistant", "content": ""})]
    events += [chunk({"role": None, "content": f"{text}{i}"}) for i in range(count)]
    if finish is not None:
        events.append(chunk({"role": None, "content": None}, finish))
    if usage:
        events.append(_json({"id": "1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": count}}))
    return [*events, b"[DONE]"]


def completions_events(count: int, *, finish: str | None = "length", usage: bool = True) -> list[bytes]:
    """The events of a completions stream."""
    events = [
        _json({"choices": [{"index": 0, "text": f" t{i}", "finish_reason": None}], "usage": None}) for i in range(count)
    ]
    if finish is not None:
        events.append(_json({"choices": [{"index": 0, "text": "", "finish_reason": finish}], "usage": None}))
    if usage:
        events.append(_json({"choices": [], "usage": {"completion_tokens": count}}))
    return [*events, b"[DONE]"]


def generate_events(count: int, *, finish: object = None) -> list[bytes]:
    """The events of a native stream: each repeats the text; the last token comes with the reason."""
    reason = finish or {"type": "length", "length": count}
    return [
        _json(
            {
                "text": "".join(f" t{k}" for k in range(i + 1)),
                "output_ids": [i],
                "meta_info": {
                    "id": "1",
                    "finish_reason": reason if i + 1 == count else None,
                    "completion_tokens": i + 1,
                },
            }
        )
        for i in range(count)
    ] + [b"[DONE]"]


EVENTS = {"chat": chat_events, "completions": completions_events, "generate": generate_events}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def sse(events: Iterable[bytes]) -> bytes:
    return b"".join(b"data: " + event + b"\n\n" for event in events)


def head(status: str = "200 OK", *fields: str, kind: str = "text/event-stream") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Type: {kind}", *fields, "", ""]).encode()


def chunked(body: bytes, size: int | None = None, *, end: bool = True) -> bytes:
    """The body in HTTP chunks of `size` bytes (one chunk by default)."""
    size = size or max(1, len(body))
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + (b"0\r\n\r\n" if end else b"")


CHUNKED = "Transfer-Encoding: chunked"


def stream_response(events: Iterable[bytes]) -> bytes:
    return head("200 OK", CHUNKED) + chunked(sse(events))


def json_response(value: object, status: str = "200 OK") -> bytes:
    body = _json(value)
    return head(status, f"Content-Length: {len(body)}", kind="application/json") + body


def always(data: bytes) -> Callable[[Connection], Awaitable[None]]:
    """A script that sends `data`."""

    async def script(connection: Connection) -> None:
        await connection.send(data)

    return script


def then_close(data: bytes) -> Callable[[Connection], Awaitable[None]]:
    """A script that sends `data` and closes in good manner."""

    async def script(connection: Connection) -> None:
        await connection.send(data)
        connection.writer.close()

    return script


# ---------------------------------------------------------------------------------------------- the agent in process


def jump(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have every timer of this loop that is due within `seconds` be due now."""
    loop = asyncio.get_running_loop()
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + seconds)


class Watched:
    """Notes what a call tells its watcher."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.first = asyncio.Event()
        self.sent = asyncio.Event()

    def on_sent(self, sent_ns: int, local_port: int) -> None:
        self.seen.append("sent")
        self.sent.set()

    def on_first(self) -> None:
        self.seen.append("first")
        self.first.set()


def make_config(url: str, **values: Any) -> Config:
    return Config(**{"group": "g", "base_url": url, "api": "chat", "phase_file": "", "run": "t", **values})


def make_tools(config: Config, parser: str = "h11") -> Tools:
    remote, host, prefix = resolve(config)
    return Tools(config, remote, request_head(config, host, prefix), PARSERS[parser])


async def ask(config: Config, parser: str, watcher: Watched | None = None, *, keep_text: bool = True) -> Ended:
    """Run one request in this process."""
    call = Call(make_tools(config, parser), "g-s1-r1", b"{}", watcher or Watched(), keep_text=keep_text)
    return await asyncio.wait_for(call.run(), PATIENCE_S)


# ---------------------------------------------------------------------------------------------- the agent as a process

ROOT = Path(__file__).parents[2]
SOURCE = [sys.executable, "-m", "chaos.agent"]


class Process:
    """A running agent. Use as an async context manager; it is killed at the end if it still runs."""

    def __init__(self, command: list[str], config: Mapping[str, object]) -> None:
        self._command = command
        self.config = config
        self.events: list[dict[str, Any]] = []
        self.changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, stderr=pipe, limit=2**24, cwd=ROOT, start_new_session=True
        )
        await self.say(self.config)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        await self.process.wait()
        await self._reading
        self.hang_up_stdin()
        assert self.process.stderr is not None
        self.stderr = (await self.process.stderr.read()).decode()

    async def say(self, message: Mapping[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await self.process.stdin.drain()

    def hang_up_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["e"] == kind]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; it is looked at whenever an event arrives."""
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(condition), PATIENCE_S)

    async def ended(self) -> int:
        """Wait for the exit; its status."""
        status = await asyncio.wait_for(self.process.wait(), PATIENCE_S)
        await self._reading
        return status

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.events.append(json.loads(line))
            async with self.changed:
                self.changed.notify_all()
