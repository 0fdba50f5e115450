"""Finds a server's process on its host: by pid, pid file, unit, container, command line, or who listens on a port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from chaos.engine.hosts import HostTrouble

if TYPE_CHECKING:
    from chaos.engine.hosts import Host
    from chaos.model.target import ServerSpec

UNTOLD = "the target gives no pid, pidfile, systemd, docker, cmdline or port"


@dataclass(frozen=True, slots=True)
class Located:
    """A process, told apart from later ones with the same pid by when it started.

    `start_time` is in seconds since the epoch, for the journal; `start_ticks` in clock ticks since its host booted.
    """

    pid: int
    start_time: float
    start_ticks: int


class NotLocated(Exception):
    """The process cannot be found; the text says why."""


def selectors(spec: ServerSpec) -> dict[str, Any]:
    """What the target says of where the process is; the first that is given counts."""
    told = {
        "pid": spec.pid,
        "pidfile": spec.pidfile,
        "systemd": spec.systemd,
        "docker": spec.docker,
        "cmdline": spec.cmdline,
        "port": spec.port,
    }
    return {name: value for name, value in told.items() if value is not None}


async def locate(host: Host, spec: ServerSpec) -> Located | None:
    """The process of a server; None when the target does not say how to find it. Raises NotLocated, HostLost."""
    told = selectors(spec)
    if not told:
        return None
    try:
        return msgspec.convert(await host.call("locate", **told), Located)
    except HostTrouble as why:
        raise NotLocated(why.text) from None
