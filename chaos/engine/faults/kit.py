"""What faults are given by the run: the load, the nodes, and the ways to reach them."""

from __future__ import annotations

import itertools
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chaos.engine.hosts import Here, Hosts
from chaos.engine.owners import Owners

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    import httpx

    from chaos.engine.cleaning import Doubt
    from chaos.engine.load.fleet import Fleet
    from chaos.engine.ports import Clock, Emit, Restarter
    from chaos.engine.probes import Probes
    from chaos.engine.probes.liveness import HealthSource
    from chaos.model.section import Api
    from chaos.model.target import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How requests of ours are made at the router."""

    model: str
    urls: Mapping[Api, str]  # by language
    models_url: str = ""  # tells how long a context may be
    named: bool = True  # chat and completions may carry the id of the request
    owners: Owners = field(default_factory=lambda: Owners(()))


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKit:
    """What a fault needs from the run."""

    fleet: Fleet
    probes: Probes
    emit: Emit
    clock: Clock
    run_id: str = ""
    servers: tuple[Server, ...] = ()
    hosts: Hosts = field(default_factory=lambda: Hosts({}, Here()))  # where the servers are
    router_pid: int | None = None  # on its host, where it is known
    health: Mapping[str, HealthSource] = field(default_factory=dict)  # by node
    http: httpx.AsyncClient | None = None
    headers: Mapping[str, str] = field(default_factory=dict)  # of requests to the target
    asking: Asking | None = None
    abort_urls: tuple[str, ...] = ()  # where a request is aborted by its id
    rank_process: Mapping[str, str] = field(default_factory=dict)  # by node: how titles of ranks' processes begin
    restarter: Restarter | None = None
    seed: int = 1
    time_scale: float = 1.0
    standing: AsyncExitStack = field(default_factory=AsyncExitStack)
    """Undoes what still stands: closed by the run on every way out."""
    before_restart: Callable[[str], Awaitable[None]] | None = None
    """Saves what the end of a process would take along; told which nodes."""
    before_rest: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """What a fault gives up, like the load, before the deployment is left at rest."""
    leftovers: list[str] = field(default_factory=list)
    """What could not be undone."""
    doubts: list[Doubt] = field(default_factory=list)
    """What nobody knows whether it was."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Tell apart what faults of one run make on a host."""
