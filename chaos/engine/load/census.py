"""Reads the phase bytes that an agent keeps in a memory-mapped file: a dead process cannot report a census.

The file is a 64-byte header (magic `PDCH`, u32 version, u32 slots, little-endian) and one byte per session.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_HEADER = struct.Struct("<4sII")
HEADER_BYTES = 64
PHASES = ("none", "connecting", "waiting", "streaming", "thinking", "done")
OPEN_PHASES = ("connecting", "waiting", "streaming")
"""Phases in which a session holds a connection."""


def census(path: Path) -> dict[str, int] | None:
    """Sessions by phase, `none` left out; None when the file is not there (yet) or not ours: unknown, not zero."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) < HEADER_BYTES:
        return None
    magic, version, slots = _HEADER.unpack_from(data)
    if magic != b"PDCH" or version != 1:
        return None
    counts = Counter(data[HEADER_BYTES : HEADER_BYTES + slots])
    return {name: counts.get(code, 0) for code, name in enumerate(PHASES) if code}


def of_phases(counts: Mapping[str, int]) -> dict[str, int]:
    """The census in counts by a phase's number, as an outpost tells them."""
    return {name: counts.get(str(code), 0) for code, name in enumerate(PHASES) if code}


def add(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """The census of two agents together."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in PHASES[1:]}
