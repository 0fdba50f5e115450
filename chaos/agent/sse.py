"""Framing of server-sent events: bytes in, the data of complete events out, whatever the network cut them into."""

from __future__ import annotations

# The longest event taken. Native streams repeat the whole text in each event, so it is generous.
MAX_EVENT_BYTES = 4 * 1024 * 1024


class EventTooLong(Exception):
    """An event did not end within `MAX_EVENT_BYTES`."""


class EventSplitter:
    """Collects bytes into events. `failed` holds the text of an event that the server named `error`."""

    __slots__ = ("_rest", "failed")

    def __init__(self) -> None:
        self._rest = b""
        self.failed: bytes | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """The data of the events that `data` completes; comments and nameless fields are dropped."""
        if self._rest:
            data = self._rest + data
        held = b""
        if b"\r" in data:
            if data.endswith(b"\r"):  # its line feed may still be under way
                data, held = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        blocks = data.split(b"\n\n")
        self._rest = blocks.pop() + held
        if len(self._rest) > MAX_EVENT_BYTES:
            raise EventTooLong
        payloads = []
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block:
                payloads.append(block[6:])
            else:
                payload = self._fields(block)
                if payload is not None:
                    payloads.append(payload)
        return payloads

    def rest(self) -> bytes:
        """What was received after the last complete event."""
        return self._rest

    def _fields(self, block: bytes) -> bytes | None:
        name = comment = b""
        data = []
        for line in block.split(b"\n"):
            if line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line.startswith(b"event:"):
                name = line[6:].strip()
            elif line.startswith(b":"):
                comment = line[1:].strip()
        payload = b"\n".join(data)
        if name == b"error":
            self.failed = payload or comment or b"an event named error"
            return None
        return payload if data else None
