"""The guard: a tiny process of its own session that continues stopped processes should pdchaos be gone.

Run as a file, with the standard library alone: `python guard_main.py TTL PID:START ...`. It says `armed`, then waits
for a word on stdin. `done` ends it without a deed. The end of stdin means that pdchaos died, and after TTL seconds it
is taken for dead: then every process that is still the one it was gets SIGCONT.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time


def _start_ticks(pid: int) -> str:
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - starts faster
        return file.read().rpartition(b")")[2].split()[19].decode()


def _continue(processes: list[tuple[int, str]]) -> None:
    for pid, started in processes:
        try:
            if _start_ticks(pid) == started:
                os.kill(pid, signal.SIGCONT)
        except OSError:
            pass  # it has ended


def main(arguments: list[str]) -> None:
    """Wait, and continue the processes unless told that it is not needed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    deadline = time.monotonic() + float(arguments[0])
    pairs = [text.partition(":") for text in arguments[1:]]
    processes = [(int(pid), started) for pid, _, started in pairs]
    os.write(1, b"armed\n")
    ready, _, _ = select.select([0], [], [], max(deadline - time.monotonic(), 0))
    if not (ready and os.read(0, 16).startswith(b"done")):
        _continue(processes)


if __name__ == "__main__":
    main(sys.argv[1:])
