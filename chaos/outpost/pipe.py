"""Frames over one pipe of bytes: kind, stream, length, then as many bytes; both ways, never waiting.

What is said after one look at everything leaves in one write, so that what ends together here ends together there.
"""

from __future__ import annotations

import os
import select
import struct
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = struct.Struct(">BII")
OPEN, OPENED, FAILED, DATA, MORE, FIN, CLOSE, RESET, PING, PONG = range(1, 11)
READ_BYTES = 1 << 18
MOST_BYTES = 1 << 20
"""No frame is longer; what says that it is comes from somebody else."""
CONGESTED = 1 << 20
"""With so many bytes waiting to be written no more should be said."""
IN, OUT = select.EPOLLIN, select.EPOLLOUT


class Pipe:
    """Our end of it, watched by an epoll of the owner. `over` once nobody is at the other end any more."""

    def __init__(self, poll: select.epoll, incoming: int, outgoing: int) -> None:
        self.incoming, self.outgoing = incoming, outgoing
        self._poll = poll
        for descriptor in (incoming, outgoing):
            os.set_blocking(descriptor, False)
        poll.register(incoming, IN)
        self._said: list[bytes] = []
        self._left = memoryview(b"")  # of the last write
        self._waiting = 0  # bytes
        self._out_wanted = False
        self._rest = b""  # of a frame that has not come whole
        self.over = False
        self.heard = time.monotonic()

    @property
    def congested(self) -> bool:
        """Whether too much waits to be written."""
        return self._waiting > CONGESTED

    def say(self, kind: int, ident: int, body: bytes = b"") -> None:
        """Send a frame with the next flush."""
        if self.over:
            return
        self._said.append(HEADER.pack(kind, ident, len(body)))
        if body:
            self._said.append(body)
        self._waiting += HEADER.size + len(body)

    def flush(self) -> None:
        """Write what it takes."""
        try:
            while self._left or self._said:
                if not self._left:
                    self._left, self._said = memoryview(b"".join(self._said)), []
                written = os.write(self.outgoing, self._left)
                self._left = self._left[written:]
                self._waiting -= written
        except BlockingIOError:
            pass
        except OSError:  # nobody reads any more
            self.end()
        self._want_out(bool(self._left or self._said))

    def frames(self) -> Iterator[tuple[int, int, memoryview]]:
        """What has come, frame by frame; a body is only good until the next one."""
        try:
            data = os.read(self.incoming, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end()
            return
        self.heard = time.monotonic()
        if self._rest:
            data = self._rest + data
        view, at, size = memoryview(data), 0, len(data)
        while size - at >= HEADER.size:
            kind, ident, length = HEADER.unpack_from(data, at)
            end = at + HEADER.size + length
            if length > MOST_BYTES:
                self.end()
                return
            if end > size:
                break
            yield kind, ident, view[at + HEADER.size : end]
            at = end
        self._rest = data[at:]

    def end(self) -> None:
        """Take it for gone."""
        if self.over:
            return
        self.over = True
        self._poll.unregister(self.incoming)
        if self._out_wanted and self.outgoing != self.incoming:
            self._poll.unregister(self.outgoing)
        self._said, self._left, self._waiting = [], memoryview(b""), 0

    def _want_out(self, wanted: bool) -> None:
        if wanted == self._out_wanted or self.over:
            return
        self._out_wanted = wanted
        if self.outgoing == self.incoming:
            self._poll.modify(self.incoming, IN | (OUT if wanted else 0))
        elif wanted:
            self._poll.register(self.outgoing, OUT)
        else:
            self._poll.unregister(self.outgoing)
