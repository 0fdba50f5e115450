"""A deployment started anew, as its owner says how: the whole of it, before each trial."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from chaos.engine.faults.restarts import run_command
from chaos.engine.hosts import Here
from chaos.model.errors import HarnessError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.model.target import Target

RESTART_S = 900.0
"""A large model takes minutes to load on every node."""
LISTENS_S = 600.0
CONNECT_S = 5.0
POLL_S = 0.5


def demand_restart(target: Target, asked: str) -> None:
    """Raise `Refused` when the target's file does not say how to start it anew, or does not allow that.

    `asked` is where somebody asked for several runs, as file:line:col.
    """
    hint = f"in its target file: restart: COMMAND and allow: [{', '.join(dict.fromkeys([*target.allow, 'restart']))}]"
    if target.restart is None:
        raise Refused(
            f"{asked}: every trial takes a freshly started deployment, and {target.name} says no way to restart it",
            hint=f"{hint}; or use a lab",
        )
    if "restart" not in target.allow:
        raise Refused(f"{asked}: every trial restarts the deployment, which {target.name} does not allow", hint=hint)


def restart_deployment(
    target: Target, progress: Callable[[str], None], *, timeout_s: float = RESTART_S, listens_s: float = LISTENS_S
) -> None:
    """Run the target's restart command to its end and wait until every server accepts connections.

    Raises HarnessError when that does not come about. Whether it serves is for the baseline to say.
    """
    if target.restart is None:
        raise HarnessError(f"nobody says how to restart {target.name}")
    progress(f"restarting {target.name}")
    run_command(Here(), target.restart, f"the restart command of {target.name}", timeout_s)
    deadline = time.monotonic() + listens_s
    for server in target.servers:
        while (why := _deaf(server.spec.url)) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if why:
            raise HarnessError(f"{server.id} accepts no connection {listens_s:g} s after the restart: {why}")


def _deaf(url: str) -> str:
    """Why nothing accepts a connection there; empty when something does."""
    parts = urlsplit(url)
    try:
        address = (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        socket.create_connection(address, timeout=CONNECT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
