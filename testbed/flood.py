"""Floods a log: `python -m testbed.flood FILE MB_PER_S SECONDS` appends lines like the engine's, at an even pace."""

from __future__ import annotations

import sys
import time
from pathlib import Path

_CHUNKS_PER_S = 20
_MB = 1 << 20


def main() -> None:
    """Write, and end by itself."""
    path, mb_per_s, seconds = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    line = f"[{stamp}] Decode batch, #running-req: 9, #token: 4321, token usage: 0.07, #queue-req: 0, gen: 812.5\n"
    size = int(mb_per_s * _MB / _CHUNKS_PER_S)
    chunk = (line.encode() * (size // len(line) + 1))[: size - 1] + b"\n"
    start = time.monotonic()
    with path.open("ab", buffering=0) as log:
        for n in range(int(seconds * _CHUNKS_PER_S)):
            log.write(chunk)
            time.sleep(max(0.0, start + (n + 1) / _CHUNKS_PER_S - time.monotonic()))


if __name__ == "__main__":
    main()
