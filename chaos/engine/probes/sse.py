"""Splits a stream of server-sent events into their data, whatever the chunks it arrives in."""

from __future__ import annotations

import re

MAX_EVENT_BYTES = 4 << 20
"""A token's event is some hundred bytes; beyond this the peer does not speak our protocol."""

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")


class SseError(ValueError):
    """The stream is no event stream, or one event never ends."""


class SseDecoder:
    """Feed it bytes, get the data of each complete event."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that `chunk` completes."""
        within_line = b"\n" not in chunk and b"\r" not in chunk and not self._rest.endswith(b"\r")
        self._rest += chunk
        lines: list[bytes] = []
        if not within_line:  # else a line of megabytes would be searched once per chunk
            *lines, rest = _LINE_END.split(bytes(self._rest))
            self._rest = bytearray(rest)
        events = [event for line in lines if (event := self._line(line)) is not None]
        if len(self._rest) + sum(map(len, self._data)) > MAX_EVENT_BYTES:
            raise SseError(f"an event longer than {MAX_EVENT_BYTES} bytes")
        return events

    def finish(self) -> list[bytes]:
        """What the end of the stream completes: servers do not always send the last blank line."""
        events = [event for line in (bytes(self._rest).rstrip(b"\r"), b"") if (event := self._line(line)) is not None]
        self._rest.clear()
        return events

    def _line(self, line: bytes) -> bytes | None:
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            return None
        if not self._data:
            return None
        event, self._data = b"\n".join(self._data), []
        return event
