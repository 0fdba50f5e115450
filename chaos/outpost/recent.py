"""The end of what followed commands printed: of a log that is no file, nobody else can say later what stood there."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Callable

from chaos.outpost.trouble import Trouble

KEPT_BYTES = 256 << 10
"""Of each stream of a command."""


class Recent:
    """The last blocks of one text."""

    def __init__(self) -> None:
        self._blocks: deque[bytes] = deque()
        self._size = 0
        self._whole = True  # from its very beginning
        self._lock = threading.Lock()  # one thread follows, another asks

    def keep(self, block: bytes) -> None:
        """Keep a block, and let go of the oldest."""
        with self._lock:
            self._blocks.append(block[-KEPT_BYTES:])
            self._size += len(self._blocks[-1])
            self._whole = self._whole and self._size <= KEPT_BYTES and len(block) <= KEPT_BYTES
            while self._size - len(self._blocks[0]) >= KEPT_BYTES:
                self._size -= len(self._blocks.popleft())

    def text(self) -> str:
        """What is kept, in whole lines."""
        with self._lock:
            whole = b"".join(self._blocks)
        cut = whole[-KEPT_BYTES:]
        if not self._whole:
            cut = cut[cut.find(b"\n") + 1 :]
        return cut.decode(errors="replace")


_kept: dict[tuple[str, str], list[Recent]] = {}


def remember(kind: str, what: str, texts: list[Recent]) -> None:
    """These are the texts of a command that is followed from now on."""
    _kept[kind, what] = texts


def forget(kind: str, what: str, texts: list[Recent]) -> None:
    """It is not followed any more; not where somebody else began to meanwhile."""
    if _kept.get((kind, what)) is texts:
        del _kept[kind, what]


def recent(kind: str, what: str) -> str:
    """The end of what a followed command printed, its streams one after the other. Raises Trouble `missing`."""
    texts = _kept.get((kind, what))
    if texts is None:
        raise Trouble("missing", "nobody follows it now")
    return "\n".join(filter(None, (text.text() for text in texts)))


OPS: dict[str, Callable[..., Any]] = {"log.recent": recent}
