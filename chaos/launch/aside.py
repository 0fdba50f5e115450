"""A run beside the main thread, for whoever may have an event loop there already, as a test suite may."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from chaos.engine.safety import Interrupt

T = TypeVar("T")


def run_aside(work: Coroutine[Any, Any, T], interrupt: Interrupt) -> T:
    """Run `work` in an event loop and a thread of its own; the main thread, which calls this, waits and hears signals.

    What is raised here meanwhile (a test's timeout) makes the run leave at once, and goes on once it has.
    """
    with ThreadPoolExecutor(1, "pdchaos-run") as thread, interrupt.heard_aside():
        running = thread.submit(asyncio.run, work)
        try:
            return running.result()
        except BaseException as error:
            if not running.done():
                reason = str(error).partition("\n")[0] or type(error).__name__
                for _ in ("gently", "at once"):
                    interrupt.pass_on(reason)
                wait([running])
            raise
