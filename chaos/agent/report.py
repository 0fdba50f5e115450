"""JSON lines on stdout, written by a thread: a reader that stalls must not stall the streams and their stamps."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from time import monotonic_ns
from typing import TYPE_CHECKING, Callable

from .codec import dumps

if TYPE_CHECKING:
    import asyncio
    from array import array

    from .client import Ended

_LAST_WORDS_S = 10.0  # how long a stalled reader may keep us from exiting


class Report:
    """Writes events to a file descriptor in the order of the calls, in small batches."""

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, on_broken: Callable[[], None]) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._on_broken = on_broken
        self._batch: list[bytes] = []
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="report", daemon=True)
        self._thread.start()

    def emit(self, event: str, fields: dict[str, object]) -> None:
        """Write one event, stamped now."""
        if not self._batch:
            self._loop.call_soon(self._flush)  # with all that this turn of the loop has to tell: SIGKILL may be next
        self._batch.append(dumps({"e": event, "t": monotonic_ns(), **fields}))

    def close(self) -> None:
        """Write what is left and wait until it is out."""
        self._flush()
        self._queue.put(None)
        self._thread.join(_LAST_WORDS_S)

    def _flush(self) -> None:
        if self._batch:
            self._batch.append(b"")
            self._queue.put(b"\n".join(self._batch))
            self._batch = []

    def _write(self) -> None:
        try:
            while True:
                data = self._queue.get()
                if data is None:
                    return
                while data:
                    data = data[os.write(self._descriptor, data) :]
        except OSError:  # nobody reads any more; what comes now is lost
            with contextlib.suppress(RuntimeError):  # the loop is closed: we are leaving
                self._loop.call_soon_threadsafe(self._on_broken)


def gaps(stamps: array[int]) -> dict[str, object] | None:
    """Inter-token gaps in milliseconds; None with fewer than two tokens. Percentiles are nearest-rank."""
    if len(stamps) < 2:
        return None
    ordered = sorted(later - earlier for earlier, later in zip(stamps, stamps[1:]))
    count = len(ordered)

    def rank(percent: int) -> float:
        return round(ordered[(count * percent + 99) // 100 - 1] / 1e6, 3)

    return {"n": count, "p50_ms": rank(50), "p99_ms": rank(99), "max_ms": rank(100)}


def ended_fields(ended: Ended) -> dict[str, object]:
    """The part of an `end` event that tells how the request ended."""
    stamps = ended.stamps
    return {
        "sent": ended.sent_ns,
        "first": stamps[0] if stamps else None,
        "last": ended.last_ns,
        "tokens": ended.tokens,
        "gaps": gaps(stamps),
        "status": ended.status,
        "finish": ended.finish,
        "error": ended.error,
        "detail": ended.detail,
        "ended_by": ended.ended_by,
        "prompt_tokens": ended.prompt_tokens,
        "mute": ended.mute,
    }
