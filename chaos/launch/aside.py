"""A run beside the main thread, for whoever may have an event loop there already, as a test suite may."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

    from chaos.engine.safety import Interrupt

T = TypeVar("T")
LISTEN_S = 0.2
"""A signal that comes just before the main thread goes to sleep is heard when it wakes (CPython's locks)."""


def run_aside(work: Coroutine[Any, Any, T], interrupt: Interrupt) -> T:
    """Run `work` in an event loop and a thread of its own; the main thread, which calls this, waits and hears signals.

    What is raised here meanwhile (a test's timeout) makes the run leave at once, and goes on once it has.
    """
    begin, called_off = threading.Event(), threading.Event()

    def once_awaited() -> T:
        begin.wait()
        if called_off.is_set():
            work.close()
            raise CancelledError
        return asyncio.run(work)

    with ThreadPoolExecutor(1, "pdchaos-run") as thread, interrupt.heard_aside():
        running: Future[T] | None = None
        try:
            running = thread.submit(once_awaited)
            begin.set()
            while not running.done():
                wait([running], LISTEN_S)
            return running.result()
        except BaseException as error:
            if running is None:  # nothing can be awaited that nobody knows of, so it does not even begin
                called_off.set()
                begin.set()
            elif not running.done():
                begin.set()
                reason = str(error).partition("\n")[0] or type(error).__name__
                for _ in ("gently", "at once"):
                    interrupt.pass_on(reason)
                wait([running])
            raise
