"""The guard: a process of its own session that takes a fault back when whoever made it is gone.

It holds one end of a pipe. When the other end closes, which is what the death of its holder does, or the time is over,
or somebody sends it SIGTERM, it takes the steps of its orders, and the record of the fault is removed. A record stays
where a step failed, for `sweep`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path

from chaos.outpost import state
from chaos.outpost.trouble import Trouble
from chaos.outpost.undo import undo

ARMED = "armed"
DISARM = "disarm"
RELEASE = "release"
START = "import sys; sys.path.insert(0, sys.argv[1]); from chaos.outpost.guard import main; main()"


def command() -> tuple[list[str], tuple[int, ...]]:
    """How to start one, from the very code that runs here, and the descriptors that it must inherit for that."""
    place = str(Path(__file__).parents[2])  # a folder, or the archive that we run from
    head, _, number = place.rpartition("/")
    in_memory = head in ("/proc/self/fd", "/dev/fd") and number.isdigit()
    return [sys.executable, "-I", "-S", "-c", START, place], (int(number),) if in_memory else ()


def main() -> None:
    """Read the orders, say `armed`, wait, act. Orders: `ttl_s`, `undo` and the path of the `record`; on one line."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    woken = _sigterm_wakes()
    with open(0, "rb", buffering=0, closefd=False) as orders_come:
        line = orders_come.readline(state.LARGEST)
    if not line.endswith(b"\n"):
        return  # it died before it gave any orders, so nothing was broken; `sweep` removes the record
    orders = json.loads(line)
    _say(ARMED)
    ready, _, _ = select.select([0, woken], [], [], max(float(orders["ttl_s"]), 0.0))
    record = Path(orders["record"])
    if 0 in ready and os.read(0, 64).startswith(DISARM.encode()):
        _forget(record)
        return
    steps = undo(orders["undo"])
    failed = [step for step in steps if not step["ok"]]
    if failed:
        with suppress(Trouble):
            state.write(record, {**(state.read(record) or {}), "failed": failed})
    else:
        _forget(record)
    _say(json.dumps(steps))


def _sigterm_wakes() -> int:
    """A descriptor that can be read once SIGTERM has come."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGTERM, lambda *_: None)
    return woken


def _forget(record: Path) -> None:
    with suppress(Trouble):
        state.remove(record)


def _say(what: str) -> None:
    with suppress(OSError):  # nobody listens any more
        os.write(1, f"{what}\n".encode())
