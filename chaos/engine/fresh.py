"""A deployment started anew, as its owner says how: the whole of it, before each trial."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from chaos.engine.faults.restarts import run_command
from chaos.engine.hosts import Here, HostLost, HostTrouble
from chaos.model.errors import HarnessError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.engine.hosts import Host, Hosts
    from chaos.model.target import Target

RESTART_S = 900.0
"""A large model takes minutes to load on every node."""
LISTENS_S = 600.0
CONNECT_S = 5.0
ANSWER_S = 10.0
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
    target: Target,
    progress: Callable[[str], None],
    hosts: Hosts,
    *,
    timeout_s: float = RESTART_S,
    listens_s: float = LISTENS_S,
) -> None:
    """Run the target's restart command to its end and wait until every server accepts connections.

    They are tried from where their addresses are meant to be seen. Raises HarnessError when that does not come about.
    Whether it serves is for the baseline to say.
    """
    if target.restart is None:
        raise HarnessError(f"nobody says how to restart {target.name}")
    progress(f"restarting {target.name}")
    run_command(Here(), target.restart, f"the restart command of {target.name}", timeout_s)
    deadline = time.monotonic() + listens_s
    for server in target.servers:
        at = Here() if target.via == "direct" else hosts.at(server.id)
        while (why := _deaf(at, server.spec.url)) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if why:
            raise HarnessError(f"{server.id} accepts no connection {listens_s:g} s after the restart: {why}")


def _deaf(at: Host, url: str) -> str:
    """Why nothing accepts a connection there; empty when something does."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        return str(
            at.call_now(
                "deaf", host=parts.hostname or "", port=port, within_s=CONNECT_S, timeout_s=CONNECT_S + ANSWER_S
            )
        )
    except (HostLost, HostTrouble) as why:
        return str(why)
