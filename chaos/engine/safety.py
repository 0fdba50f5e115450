"""The first Ctrl-C (or SIGTERM) ends the run gently: drain, then judge. The second leaves at once, cleanly.

The third also gives up the last look that the second still takes at the target, which is over within seconds.

Gentleness is not politeness: on vulnerable releases a request that we hang up on is itself the fatal abort.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """What the run has been told by signals. `before` hears each wish first, and says whether that was all of it."""

    def __init__(self, notice: Callable[[str], None], before: Callable[[str], bool] = lambda _: False) -> None:
        self._before = before
        self.gentle = asyncio.Event()
        self.now = asyncio.Event()
        self.blindly = asyncio.Event()
        self.reason = ""
        self._notice = notice
        self._loop: asyncio.AbstractEventLoop | None = None

    def request(self, reason: str) -> None:
        """One more wish to stop."""
        if self._before(reason):
            return
        if not self.gentle.is_set():
            self.reason = reason
            self.gentle.set()
            self._notice(
                f"{reason}: no further wave; letting open requests finish, then judging. Once more leaves at once."
            )
        elif not self.now.is_set():
            self.now.set()
            self._notice(
                f"{reason} again: hanging up on open requests and leaving, after a last look of a few seconds at what "
                "that did. Once more leaves without it."
            )
        elif not self.blindly.is_set():
            self.blindly.set()
            self._notice(f"{reason} again: leaving without a last look.")

    def waits(self, at_most_s: float) -> None:
        """Tell whoever asked for a gentle stop how long open requests may still take."""
        self._notice(f"waiting for open requests, up to {at_most_s:.0f} s more.")

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Route SIGINT, SIGTERM and SIGHUP here while inside; beside the main thread, it must do so (`heard_aside`)."""
        loop = self._loop = asyncio.get_running_loop()
        ours = _SIGNALS if threading.current_thread() is threading.main_thread() else ()
        for number in ours:
            loop.add_signal_handler(number, self.request, signal.Signals(number).name)
        try:
            yield
        finally:
            self._loop = None
            for number in ours:
                loop.remove_signal_handler(number)

    @contextmanager
    def heard_aside(self) -> Iterator[None]:
        """On the main thread while the run is in another one: pass SIGINT, SIGTERM and SIGHUP on to it."""
        before = {
            number: signal.signal(number, lambda number, _: self.pass_on(signal.Signals(number).name))
            for number in _SIGNALS
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def pass_on(self, reason: str) -> None:
        """One more wish to stop, from another thread than the run's."""
        loop = self._loop
        if loop is None:  # it has not begun to listen, or listens no more: nobody waits, so nobody is to be woken
            self.request(reason)
            return
        with suppress(RuntimeError):  # it ended this very moment
            loop.call_soon_threadsafe(self.request, reason)
