"""How our own processes are known: by two variables in their environment, the run and who started them for it.

What an owner of a target starts for us (a restart command) carries neither: it is not ours to end.
"""

from __future__ import annotations

import os

from chaos.outpost import proc

RUN = "PDCHAOS_RUN"
OWNER = "PDCHAOS_OWNER"
"""`PID:START_TICKS` of whoever started it. When that one is gone, what it started is a leftover."""


def marked(run: str) -> dict[str, str]:
    """Our environment, for a process that we start for a run."""
    return {**os.environ, RUN: run, OWNER: me()}


def unmarked() -> dict[str, str]:
    """Our environment, for a process that is not ours to end."""
    return {name: value for name, value in os.environ.items() if name not in (RUN, OWNER)}


def me() -> str:
    """This process, as an owner."""
    found = proc.stat(os.getpid())
    return f"{os.getpid()}:{found.start_ticks if found else 0}"


def lives(owner: str) -> bool:
    """Whether the process that is named so still runs."""
    pid, _, started = owner.partition(":")
    try:
        found = proc.same(int(pid), int(started))
    except ValueError:
        return False
    except PermissionError:
        return True
    return found is not None and not found.gone
