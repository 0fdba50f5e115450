"""The process of one rank, started by `rank_process`: what the engine calls `sglang::scheduler_TP0`.

It stands for the engine's scheduler process where that shows from outside: it can be seen in /proc, stopped and killed,
and nothing is scheduled on its rank without it. What it decides is decided by its parent, which asks it for every turn
and waits for its answer. Standard library only, and no import of this package: it starts in a few milliseconds.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys

TURN = b"."  # answered at once
DIVERGE = b"?"  # a collective operation that the other ranks do not take part in: never answered
SEGFAULT = b"*"  # in native code: a trace of the Python threads, SIGSEGV
ABORT = b"!"  # what std::abort does: no Python cleanup, SIGABRT


def main() -> None:
    """Answer every order until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    orders = int(sys.argv[1])
    title = sys.argv[2]
    with open("/proc/self/comm", "w") as name:  # noqa: PTH123, one import less; what setproctitle does
        name.write(title[:15])
    while order := os.read(orders, 1):
        if order == DIVERGE:
            while os.read(orders, 4096):
                pass
        elif order == ABORT:
            os.write(2, b"terminate called after throwing an instance of 'c10::DistBackendError'\n")
            os.abort()
        elif order == SEGFAULT:
            faulthandler.enable()  # as the engine does at its start
            os.kill(os.getpid(), signal.SIGSEGV)
        os.write(orders, order)


if __name__ == "__main__":
    main()
