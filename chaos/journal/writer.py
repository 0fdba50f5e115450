"""Writes the journal: one event, one line, one O_APPEND write, so that SIGKILL loses nothing already emitted.

Durability against a machine crash is a group commit (`sync`) made by the engine from a thread: fdatasync costs about
0.6 ms and must not stall the event loop. A full disk loses only what comes after it: the writer stops, says so once
through `failure`, and gives up a small reserve so that the farewell and the verdict still fit.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.model.events import AnyEvent

RESERVE_BYTES = 512 * 1024
"""Held back from a filling disk for `run.ended`, the verdict and the report's text."""


class JournalWriter:
    """Appends events to one file; gives each its gapless `seq`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: OSError | None = None
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._encoder = msgspec.json.Encoder()
        self._seq = 0
        self._torn = False
        self._reserve = path.with_suffix(".reserve")
        # Real bytes, not a sparse file: only those can be given back.
        try:
            self._reserve.write_bytes(b"\0" * RESERVE_BYTES)
        except OSError as error:
            self._fail(error)

    def stamp(self, event: AnyEvent, cycle: int) -> AnyEvent:
        """Give `event` its sequence number and cycle."""
        self._seq += 1
        return msgspec.structs.replace(event, seq=self._seq, cycle=cycle)

    def write(self, event: AnyEvent) -> None:
        """Append a stamped event. After a failure events are dropped until `farewell`; their numbers stay missing."""
        if self.failure is None:
            self._append(event)

    def farewell(self, event: AnyEvent) -> None:
        """Append the last event even after a failure, if the reserve made room for it."""
        self._append(event)

    def sync(self) -> None:
        """Force what was written to the disk; blocks for about a millisecond."""
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        """Sync and close; idempotent."""
        if self._fd < 0:
            return
        self.sync()
        os.close(self._fd)
        self._fd = -1
        self._reserve.unlink(missing_ok=True)

    def _append(self, event: AnyEvent) -> None:
        line = self._encoder.encode(event) + b"\n"
        if self._torn:
            line = b"\n" + line  # ends the torn line, so that this one stays readable
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            self._fail(error)
            return
        self._torn = written < len(line)
        if self._torn:
            self._fail(OSError(28, "No space left on device"))

    def _fail(self, error: OSError) -> None:
        if self.failure is None:
            self.failure = error
            with contextlib.suppress(OSError):
                self._reserve.unlink(missing_ok=True)
