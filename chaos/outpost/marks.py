"""How our own processes are known: by two variables in their environment, the run and who started them for it.

What an owner of a target starts for us (a restart command) carries neither: it is not ours to end.
"""

from __future__ import annotations

import os
from pathlib import Path

from chaos.outpost import proc

RUN = "PDCHAOS_RUN"
OWNER = "PDCHAOS_OWNER"
"""Whoever started it, as `named`. When that one is gone, what it started is a leftover."""


def marked(run: str) -> dict[str, str]:
    """Our environment, for a process that we start for a run."""
    return {**os.environ, RUN: run, OWNER: me()}


def unmarked() -> dict[str, str]:
    """Our environment, for a process that is not ours to end."""
    return {name: value for name, value in os.environ.items() if name not in (RUN, OWNER)}


def named(pid: int) -> str:
    """A process that runs, for whoever asks later: `PID:START_TICKS:NAMESPACE`."""
    found = proc.stat(pid)
    return f"{pid}:{found.start_ticks if found else 0}:{_namespace()}"


def me() -> str:
    """This process, named."""
    return named(os.getpid())


def lives(named: str) -> bool:
    """Whether the process that was named so still runs.

    One in another namespace of pids (a container's) has a number that means somebody else here: it is taken to live, so
    that nothing is done to it but from there.
    """
    try:
        pid, started, namespace = named.split(":")
        found = proc.same(int(pid), int(started))
    except ValueError:
        return False
    except PermissionError:
        return True
    return namespace != _namespace() or (found is not None and not found.gone)


def is_of_here(named: str) -> bool:
    """Whether whoever is named so is, or was, in our own namespace of pids."""
    return named.count(":") == 2 and named.rpartition(":")[2] == _namespace()


def _namespace() -> str:
    try:
        return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    except OSError:
        return ""
