"""This machine as a host: each operation and each stream has a thread of its own.

They are not taken from a pool: streams last as long as a run, and would leave nothing of a small pool to operations.
One that never returns must not keep us from ending, so these threads are not waited for at our end.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from chaos.engine.hosts.host import PATIENCE_S, HostLost, HostTrouble
from chaos.outpost.ops import OPS, STREAMS
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

_END = object()


class Here:
    """The machine that we run on."""

    label = "this machine"
    remote = False
    offset_ns = 0

    async def call(self, op: str, /, *, timeout_s: float = PATIENCE_S, **args: Any) -> Any:
        """Carry it out in a thread; one that does not return in time is left to end by itself."""
        try:
            async with asyncio.timeout(timeout_s):
                return await _threaded(partial(self.call_now, op, **args))
        except TimeoutError:
            raise HostLost(f"{op} did not end within {timeout_s:g} s") from None

    def call_now(self, op: str, /, *, timeout_s: float = PATIENCE_S, **args: Any) -> Any:  # noqa: ARG002 - it is ours
        """Carry it out at once."""
        try:
            return OPS[op](**args)
        except Trouble as trouble:
            raise HostTrouble(trouble.kind, trouble.text) from None

    async def stream(self, name: str, /, **args: Any) -> AsyncGenerator[Any, None]:
        """Run the stream in a thread until it ends, or the generator is closed."""
        loop, stopped = asyncio.get_running_loop(), threading.Event()
        heard: asyncio.Queue[Any] = asyncio.Queue()

        def send(value: Any) -> None:
            loop.call_soon_threadsafe(heard.put_nowait, value)

        def run() -> None:
            try:
                STREAMS[name](send, stopped, **args)
            finally:
                send(_END)

        running = _threaded(run)
        try:
            while (value := await heard.get()) is not _END:
                yield value
            await running
        except Trouble as trouble:
            raise HostTrouble(trouble.kind, trouble.text) from None
        finally:
            stopped.set()
            await asyncio.wait([running])

    def close(self) -> None:
        """Nothing to let go of."""


def _threaded(work: Callable[[], Any]) -> asyncio.Future[Any]:
    """What `work` gives, from a thread of its own."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return  # given up
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as raised:  # noqa: BLE001 - it is raised where it is awaited
            error = raised
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="host", daemon=True).start()
    return future
