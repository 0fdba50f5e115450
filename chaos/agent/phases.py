"""The phase of every session as one byte in a memory-mapped file: a killed process cannot report a census.

Layout: 64 bytes of header (magic `PDCH`, little-endian u32 version 1, u32 slots, rest zero), then one byte per slot.
The slot of a session is its ordinal in this process; sessions beyond the last slot take over the slot of one that is
done, so that the file's counts stay right as long as no more sessions are open than there are slots.
A slot holds an index into `PHASE_NAMES`.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import deque
from pathlib import Path

PHASE_NAMES = ("none", "connecting", "waiting", "streaming", "thinking", "done")
NONE, CONNECTING, WAITING, STREAMING, THINKING, DONE = range(len(PHASE_NAMES))
CENSUS = PHASE_NAMES[CONNECTING:DONE]  # what a session that is alive can be in

MAGIC = b"PDCH"
VERSION = 1
HEADER_BYTES = 64
_HEADER = struct.Struct("<4sII")


class PhaseFile:
    """Writes phases; also counts them, for the sessions that have no slot, too."""

    def __init__(self, path: str | os.PathLike[str], slots: int) -> None:
        size = HEADER_BYTES + slots
        # The inode stays: whoever watches the file may have opened it before us.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if os.fstat(descriptor).st_size < size:
                os.ftruncate(descriptor, size)
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self._map[HEADER_BYTES:size] = bytes(slots)
        self._map[:HEADER_BYTES] = _HEADER.pack(MAGIC, VERSION, slots).ljust(HEADER_BYTES, b"\0")
        self._slots = slots
        self._free: deque[int] = deque()
        self.counts = [0] * len(PHASE_NAMES)

    def slot(self, ordinal: int) -> int:
        """The slot for the session that starts now; -1 when all are taken."""
        if ordinal < self._slots:
            return ordinal
        return self._free.popleft() if self._free else -1

    def move(self, slot: int, old: int, new: int) -> None:
        """Note that the session in `slot` (or without one: -1) went from phase `old` to `new`."""
        self.counts[old] -= 1
        self.counts[new] += 1
        if slot >= 0:
            self._map[HEADER_BYTES + slot] = new
            if new == DONE:
                self._free.append(slot)

    def census(self) -> dict[str, int]:
        """How many sessions are in each phase, `none` left out."""
        return dict(zip(PHASE_NAMES[1:], self.counts[1:]))

    def close(self) -> None:
        """Unmap; the file stays."""
        self._map.close()


def read_phases(path: str | os.PathLike[str]) -> bytes:
    """The slots of a phase file, also of a process that is dead; ValueError when it is none."""
    data = Path(path).read_bytes()
    if len(data) < HEADER_BYTES:
        raise ValueError("shorter than its header")
    magic, version, slots = _HEADER.unpack_from(data)
    if (magic, version) != (MAGIC, VERSION):
        raise ValueError(f"not a phase file of version {VERSION}")
    return data[HEADER_BYTES : HEADER_BYTES + slots]
