"""What reading may cost its machine: bytes and CPU time per second, however fast a log grows."""

from __future__ import annotations

import time

BYTES_PER_S = 40 << 20
"""An engine under load writes below 2 MB/s."""
CPU_SHARE = 0.25
"""Of one core. A scan takes 2 ms of it per MB, ten times that on a machine that starves."""
NOTHING_LEFT_S = 0.05
"""How long to wait for more."""
SIP_S = 0.02
"""Less than what this gives is nothing: reading a few bytes at a time costs more than it brings."""


class Budget:
    """Grows with time, to what one second gives at most. To be used by one thread: it is that thread's CPU time."""

    def __init__(self, bytes_per_s: float = BYTES_PER_S, cpu_share: float = CPU_SHARE) -> None:
        self._bytes_per_s, self._cpu_share = bytes_per_s, cpu_share
        self._bytes, self._cpu_s = bytes_per_s, cpu_share
        self._wall, self._cpu = time.monotonic(), time.thread_time()

    def left(self) -> int:
        """How many bytes may be read now."""
        wall, cpu = time.monotonic(), time.thread_time()
        passed = wall - self._wall
        self._bytes = min(self._bytes_per_s, self._bytes + passed * self._bytes_per_s)
        self._cpu_s = min(self._cpu_share, self._cpu_s + passed * self._cpu_share - (cpu - self._cpu))
        self._wall, self._cpu = wall, cpu
        return int(self._bytes) if self._cpu_s > 0 and self._bytes >= self._bytes_per_s * SIP_S else 0

    def spend(self, count: int) -> None:
        """So many bytes were read."""
        self._bytes -= count
