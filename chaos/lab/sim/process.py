"""What every process of the lab has in common: how it starts, says that it serves, and ends.

The starter writes one line of JSON (`NodeConfig`) to stdin and keeps the pipe open for as long as it lives. When the
pipe ends, for whatever reason, the process kills itself at once: a lab never outlives its owner, not even one that was
killed. SIGTERM ends it in an orderly way. Sockets are inherited; nothing here chooses a port.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from chaos.lab.sim import lines, rank_process
from chaos.lab.sim.config import NodeConfig

if TYPE_CHECKING:
    from collections.abc import Callable

_SHUTDOWN_S = 0.5


class Node(Protocol):
    """A kind of process."""

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled; call `ready` once requests are taken."""


def main(make: Callable[[NodeConfig], Node]) -> None:
    """Run one node until SIGTERM or until its owner is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is the owner's business
    config = NodeConfig.from_json(sys.stdin.readline())
    threading.Thread(target=_die_with_owner, name="lifeline", daemon=True).start()
    try:
        asyncio.run(_serve(make, config))
    except Exception:  # noqa: BLE001, printed here because the ordinary way out is closed
        traceback.print_exc()
        status = 1
    else:
        status = 0
    rank_process.end_all()
    # the control thread blocks in a ZMQ receive for ever, so the ordinary way out would wait for it
    os._exit(status)


async def _serve(make: Callable[[NodeConfig], Node], config: NodeConfig) -> None:
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    work = asyncio.create_task(make(config).run(lambda: _say_ready(config.ready_fd)))
    waiting = asyncio.create_task(terminated.wait())
    await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        work.result()
    if config.role != "router":
        signum, frame = int(signal.SIGTERM), sys._getframe()  # noqa: SLF001, the engine prints the interrupted frame
        lines.scheduler(f"SIGTERM received. {signum=} {frame=}. Draining requests and shutting down...")
    work.cancel()
    await asyncio.wait((work,), timeout=_SHUTDOWN_S)


def _say_ready(fd: int) -> None:
    os.write(fd, b"+")
    os.close(fd)


def _die_with_owner() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


async def serve_app(app: web.Application, fd: int, *, cancel_handlers: bool = True) -> web.AppRunner:
    """Serve an application on an inherited listening socket; handlers are cancelled when their client leaves."""
    runner = web.AppRunner(app, handler_cancellation=cancel_handlers, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    await web.SockSite(runner, socket.socket(fileno=fd), backlog=1024).start()
    return runner
