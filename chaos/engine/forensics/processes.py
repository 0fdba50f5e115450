"""What a host knows of an engine's processes, as it may be written down: command lines, environments, sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from chaos.engine.forensics.redact import Redactor
    from chaos.engine.hosts import Host
    from chaos.engine.probes.locate import Located


class Seen(msgspec.Struct, omit_defaults=True):
    """One process, as it is written down; what could not be read is only named."""

    pid: int
    name: str = ""
    state: str = ""
    started: float = 0.0  # seconds since the epoch
    environment: dict[str, str] = {}
    command: list[str] = []
    memory_bytes: int = 0
    cpu_s: float = 0.0
    os_threads: int = 0
    open_files: int = 0
    sockets: list[str] = []
    sockets_left_out: int = 0
    unreadable: list[str] = []


async def inspect(host: Host, root: Located) -> Any:
    """A process and all that came of it, as the host tells it: secrets and all. Raises HostLost, HostTrouble."""
    return await host.call("inspect", pid=root.pid, start_ticks=root.start_ticks)


def redacted(told: Any, redactor: Redactor) -> list[Seen]:
    """What of it may be written down."""
    seen = msgspec.convert(told, list[Seen])
    for one in seen:
        # before the command line: it teaches the redactor what must not stand there either
        one.environment = redactor.environment(one.environment)
        one.command = redactor.arguments(one.command)
    return seen
