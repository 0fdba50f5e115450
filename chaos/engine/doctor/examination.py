"""The whole examination: hosts, servers, paths, in this order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chaos.engine.doctor import nodes, paths, places
from chaos.engine.doctor.row import Row, State
from chaos.engine.hosts.failures import grouped
from chaos.engine.ports import SystemClock
from chaos.engine.probes.discover import look, put_together
from chaos.engine.probes.http import make_http
from chaos.engine.probes.inquiry import Inquiry
from chaos.engine.secrets import request_headers
from chaos.model.plan import resolve_plan
from chaos.model.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chaos.engine.hosts import Hosts
    from chaos.model.errors import UserError
    from chaos.model.pack import Pack
    from chaos.model.target import Target

LOOK = Scenario(version=1, name="doctor")


async def examine(
    target: Target,
    packs: Mapping[str, Pack],
    hosts: Hosts,
    failures: Mapping[str, UserError],
    progress: Callable[[str], None],
    *,
    again: str,
    run: str,
    ask: bool = True,
) -> list[Row]:
    """Look at everything; `failures` tell by server why its host was not reached. What bears `run` is this look's own.

    Without `ask` no canary is sent.
    """
    rows = [Row.of(", ".join(servers), "ssh", error) for servers, error in grouped(failures)]
    for host in hosts.all:
        progress(f"looking at {host.label}")
        rows += await asyncio.to_thread(lambda at: list(places.look(at, target, hosts, again=again, run=run)), host)
    servers = [server for server in target.servers if server.id not in failures]
    plan = resolve_plan(LOOK, target, packs[target.engine])
    headers, clock = request_headers(target), SystemClock()
    async with make_http(target.tls, hosts.relays) as http:
        progress(f"asking {len(servers)} servers about themselves")
        looked = await look(target, servers, packs, Inquiry(http, headers, plan.time_scale), hosts, clock)
        for server, one in zip(servers, looked, strict=True):
            rows += [row async for row in nodes.look(server, one, target, hosts, http=http, headers=headers)]
        deaf = [problem for one in looked for problem in one.problems if problem.topic == "http"]
        if deaf or failures:
            rows.append(Row("paths", "canary", State.NOTE, "not sent: not every server can be asked"))
        elif not ask:
            said = "not sent: it is a production deployment"
            rows.append(Row("paths", "canary", State.NOTE, said, "--production sends one on each path"))
        else:
            found = put_together(target, plan, looked, clock=clock, headers=headers)
            asking = paths.setup(plan, run, LOOK)
            seen = await paths.look(found, asking, http=http, progress=progress)
            unread = {row.where for row in rows if (row.what, row.state) == ("log", State.PROBLEM)}
            rows += [row for row in seen if not (row.what == "log grows" and row.where in unread)]
    return rows
